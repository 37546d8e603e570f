"""Requests of ad-hoc SQL: a statement, its tables in memory or in Parquet files, its limits, and their encoding."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, TypedDict

import pyarrow as pa

from headrace.model.times import format_instant
from headrace.views.declare.layout import check_name
from headrace.views.errors import ViewError

_LONGEST: Final = 100_000  # characters of a statement


class Dialect(NamedTuple):
    """The SQL dialect of an engine: how a column is quoted, and the keyword of a timestamp with a time zone."""

    quote: str
    time: str


DUCKDB: Final = Dialect('"', "TIMESTAMPTZ")
SPARK: Final = Dialect("`", "TIMESTAMP")


@dataclass(frozen=True)
class ParquetRows:
    """A table that consists of rows of Parquet files: ranges of offsets of partitions, between two times.

    It has these columns, or all if none are given. `column` has the times of rows; `zoned` are columns of times in UTC,
    which files may not say. `bad` is a column that is null in the rows of the table.

    >>> ParquetRows(("a.parquet",), {0: (5, 9)}).condition(SPARK)
    '(_partition = 0 AND _offset >= 5 AND _offset < 9)'
    """

    paths: tuple[str, ...]
    offsets: Mapping[int, tuple[int, int]] | None = None
    column: str = ""
    since: int | None = None
    until: int | None = None
    columns: tuple[str, ...] = ()
    zoned: tuple[str, ...] = ()
    bad: str | None = None

    def condition(self, dialect: Dialect) -> str:
        """Returns the SQL condition of the rows."""
        parts = []
        if self.offsets is not None:
            ranges = [
                f"(_partition = {number} AND _offset >= {first} AND _offset < {end})"
                for number, (first, end) in sorted(self.offsets.items())
            ]
            parts.append(" OR ".join(ranges) or "false")
        if self.bad is not None:
            parts.append(f"{self.bad} IS NULL")
        for sign, time in ((">=", self.since), ("<", self.until)):
            if time is not None:
                column = dialect.quote + self.column + dialect.quote
                parts.append(f"{column} {sign} {dialect.time} '{format_instant(time)}'")
        return " AND ".join(f"({part})" for part in parts) if len(parts) > 1 else "".join(parts)


Tables = Mapping[str, pa.Table | ParquetRows]
"""Tables by name: an Arrow table, or rows of Parquet files."""


@dataclass(frozen=True)
class Limits:
    """The limits of one statement: seconds, rows of the result, and megabytes beside its tables."""

    seconds: float = 10
    rows: int = 10_000
    megabytes: int = 256


class JsonLimits(TypedDict):
    """The limits of a result as JSON: its cells, of which every element of a list is one, and its bytes."""

    cells: int
    bytes: int


@dataclass(frozen=True)
class JsonResult:
    """The rows of a statement as the JSON text of a list of lists; `truncated` if there were more than the limit."""

    columns: list[str]
    rows: bytes
    truncated: bool


@dataclass(frozen=True)
class SqlResult:
    """The rows of a statement; `truncated` if there were more than the limit."""

    table: pa.Table
    truncated: bool


# Dicts, since the DuckDB sandbox reads them: importing Headrace would double the time in which that process starts.


class ParquetTable(TypedDict):
    """A table of Parquet files as a sandbox gets it: columns, those of times in UTC, and an SQL condition on rows."""

    paths: list[str]
    columns: list[str]
    zoned: list[str]
    where: str


class StatementLimits(TypedDict):
    """The limits of a statement as a sandbox gets them."""

    seconds: float
    rows: int
    megabytes: int


class RequestHead(TypedDict):
    """The head of a request: the statement, its limits, the sizes of its Arrow tables in bytes, and Parquet tables.

    `json` has the limits of the result as JSON; without, it is an Arrow stream.
    """

    sql: str
    limits: StatementLimits
    json: JsonLimits | None
    arrow: dict[str, int]
    parquet: dict[str, ParquetTable]


class Engine(Protocol):
    """An engine that runs statements: one SELECT each, read-only, within limits."""

    @property
    def limits(self) -> Limits: ...

    def query(self, sql: str, tables: Tables) -> SqlResult:
        """Runs one SELECT over these tables."""

    def query_json(self, sql: str, tables: Tables, limits: JsonLimits) -> JsonResult:
        """Runs one SELECT over these tables; encodes the result in the process that runs it."""

    def close(self) -> None:
        """Ends its processes."""


def encode_request(
    sql: str, tables: Tables, limits: Limits, dialect: Dialect, json_limits: JsonLimits | None = None
) -> bytes:
    """Encodes a statement for a sandbox process: a line of JSON, and the Arrow tables after it.

    >>> encode_request("SELECT 1", {}, Limits(), SPARK).partition(b', "limits"')[0]
    b'{"sql": "SELECT 1"'
    """
    if not isinstance(sql, str) or len(sql) > _LONGEST:
        raise ViewError(f"a statement is text of at most {_LONGEST:,} characters")
    arrow: dict[str, bytes] = {}
    parquet: dict[str, ParquetTable] = {}
    for name, table in tables.items():
        check_name(name)
        if isinstance(table, pa.Table):
            arrow[name] = _stream(table)
        else:
            parquet[name] = {
                "paths": [_absolute(path) for path in table.paths],
                "columns": list(table.columns),
                "zoned": list(table.zoned),
                "where": table.condition(dialect),
            }
    head: RequestHead = {
        "sql": sql,
        "limits": {"seconds": limits.seconds, "rows": limits.rows, "megabytes": limits.megabytes},
        "json": json_limits,
        "arrow": {name: len(data) for name, data in arrow.items()},
        "parquet": parquet,
    }
    return b"".join([json.dumps(head).encode(), b"\n", *arrow.values()])


def _absolute(path: str) -> str:
    return path if "://" in path or path.startswith("file:") else os.path.abspath(path)


def _stream(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()
