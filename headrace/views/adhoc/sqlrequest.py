"""What ad-hoc SQL is asked of: tables in memory and rows of Parquet files; and how they travel to who answers."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

import pyarrow as pa

from headrace.model.times import format_instant
from headrace.views.declare.layout import check_name
from headrace.views.errors import ViewError

_LONGEST: Final = 100_000  # letters of a statement


class Dialect(NamedTuple):
    """How a column is quoted, and how a time with a time zone begins."""

    quote: str
    time: str


DUCKDB: Final = Dialect('"', "TIMESTAMPTZ")
SPARK: Final = Dialect("`", "TIMESTAMP")


@dataclass(frozen=True)
class Files:
    """Rows of Parquet files: of each partition those from one offset to before another, and between two times.

    They have these columns, or all if none are given. `column` is the one that times are of; `zoned` are those of
    times, which files may not tell to be in UTC. `bad` is a column that is null in the rows that are meant.

    >>> Files(("a.parquet",), {0: (5, 9)}).condition(SPARK)
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
        """Which rows are meant, in SQL."""
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


Tables = Mapping[str, pa.Table | Files]
"""By name, an Arrow table or Parquet files."""


@dataclass(frozen=True)
class Limits:
    """What one statement may use: seconds, rows of the result, and megabytes beside its tables."""

    seconds: float = 10
    rows: int = 10_000
    megabytes: int = 256


@dataclass(frozen=True)
class Found:
    """The rows a statement gave; `truncated` if there were more than the limit."""

    table: pa.Table
    truncated: bool


class Engine(Protocol):
    """Who answers statements: one SELECT each, read-only, within limits."""

    @property
    def limits(self) -> Limits: ...

    def query(self, sql: str, tables: Tables) -> Found:
        """The rows of one SELECT over these tables."""

    def close(self) -> None:
        """Ends what it has started."""


def request(sql: str, tables: Tables, limits: Limits, dialect: Dialect) -> bytes:
    """A statement as a process reads it: a line of JSON, and the Arrow tables behind it.

    >>> request("SELECT 1", {}, Limits(), SPARK).partition(b', "limits"')[0]
    b'{"sql": "SELECT 1"'
    """
    if not isinstance(sql, str) or len(sql) > _LONGEST:
        raise ViewError(f"a statement is text of at most {_LONGEST:,} letters")
    arrow: dict[str, bytes] = {}
    parquet: dict[str, dict[str, Any]] = {}
    for name, table in tables.items():
        check_name(name)
        if isinstance(table, pa.Table):
            arrow[name] = _stream(table)
        else:
            parquet[name] = {
                "paths": [_absolute(path) for path in table.paths],
                "columns": table.columns,
                "zoned": table.zoned,
                "where": table.condition(dialect),
            }
    asked = {"seconds": limits.seconds, "rows": limits.rows, "megabytes": limits.megabytes}
    sizes = {name: len(data) for name, data in arrow.items()}
    head = {"sql": sql, "limits": asked, "arrow": sizes, "parquet": parquet}
    return b"".join([json.dumps(head).encode(), b"\n", *arrow.values()])


def _absolute(path: str) -> str:
    return path if "://" in path or path.startswith("file:") else os.path.abspath(path)


def _stream(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()
