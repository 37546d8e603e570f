"""Reads rows of views' tables, in a snapshot of the database, as values of the views' types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from headrace.dialects.sql.sqlerrors import SqlError
from headrace.edges.columntypes import column_kind, sql_type


@dataclass(frozen=True)
class TablePart:
    """The part of a table that a view is: some columns of all rows, or of those with its number in a column."""

    table: str
    column: str = ""
    number: int | None = None


def stored_name(view: str) -> str:
    """Returns the name of the table of a view that has hidden columns, and is a view of the others."""
    return f"headrace_of_{view}"


@contextmanager
def in_snapshot(engine: sa.Engine) -> Iterator[sa.Connection]:
    """Opens a connection whose statements all read the database as of one moment."""
    if engine.dialect.name == "postgresql":
        with engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
            yield connection
        return
    with engine.connect() as connection:
        connection.exec_driver_sql("BEGIN")  # otherwise each statement has a snapshot of its own
        yield connection


def read_table(
    connection: sa.Connection,
    name: str,
    columns: pa.Schema,
    equal: Mapping[str, Any] = MappingProxyType({}),
    limit: int | None = None,
) -> pa.Table:
    """Reads the rows of a table with these values of columns, at most so many."""
    selection = _selection(name, columns).limit(limit)
    for column, value in equal.items():
        kind = sql_type(column, column_kind(column, columns.field(column).type))
        selection = selection.where(sa.column(column, kind) == sa.literal(value, kind))
    rows = connection.execute(selection).all()
    cells = zip(*rows, strict=True) if rows else [()] * len(columns)
    arrays = [
        pa.array([_as_type(value, field.type) for value in each], field.type)
        for field, each in zip(columns, cells, strict=True)
    ]
    return pa.table(arrays, schema=columns)


def read_rows(connection: sa.Connection, name: str, columns: pa.Schema, most: int | None) -> list[dict[str, Any]]:
    """Reads the rows of a table, by names of columns; refused if there are more than `most`."""
    rows = connection.execute(_selection(name, columns).limit(None if most is None else most + 1)).all()
    if most is not None and len(rows) > most:
        raise SqlError(f"{name} has more than {most:,} rows; follow its changes without a snapshot")
    return [as_row(columns, row) for row in rows]


def _selection(name: str, columns: pa.Schema) -> sa.Select[Any]:
    return sa.select(*sa.table(name, *(sa.column(each) for each in columns.names)).columns)


def as_cells(columns: pa.Schema, cells: Sequence[Any]) -> list[Any]:
    """Returns the cells of a row as values of the types of columns."""
    return [_as_type(cell, field.type) for field, cell in zip(columns, cells, strict=True)]


def as_row(columns: pa.Schema, cells: Sequence[Any]) -> dict[str, Any]:
    """Returns the cells of a row as values of the types of columns, by name."""
    return {field.name: _as_type(cell, field.type) for field, cell in zip(columns, cells, strict=True)}


def _as_type(value: Any, kind: pa.DataType) -> Any:
    """Returns a value of a database, which may have no type for it but text, as one of the view's type."""
    if not isinstance(value, str):
        return bool(value) if pa.types.is_boolean(kind) and value is not None else value
    if pa.types.is_timestamp(kind):
        read = datetime.fromisoformat(value)
        return read if read.tzinfo is not None or kind.tz is None else read.replace(tzinfo=UTC)
    if pa.types.is_date(kind):
        return datetime.fromisoformat(value).date()
    return Decimal(value) if pa.types.is_decimal(kind) else value
