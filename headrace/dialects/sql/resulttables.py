"""The tables of views in the session's database: ordinary tables, which any client may read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from headrace.dialects.sql.sqlerrors import SqlError
from headrace.edges.columntypes import column_kind, sql_type
from headrace.edges.databases import open_database
from headrace.model.tables import database_url


class ResultTables:
    """The tables of views, in a database by its URL."""

    def __init__(self, url: str) -> None:
        self._engine = open_database(database_url("the session's database", url))

    def check_free(self, name: str) -> None:
        """Refuses the name of a table that is there already."""
        if sa.inspect(self._engine).has_table(name):
            raise SqlError(f"the database has a table {name!r} already, which is no view of this session; rename one")

    def create(self, name: str, columns: pa.Schema, key: Sequence[str] | None) -> None:
        """Creates the table of a view, which is to be empty. Parts of its key may be null, as those of groups may."""
        made = [sa.Column(field.name, sql_type(field.name, column_kind(field.name, field.type))) for field in columns]
        unique = [sa.UniqueConstraint(*key)] if key else []
        with self._engine.begin() as connection:
            sa.Table(name, sa.MetaData(), *made, *unique).create(connection)

    def drop(self, name: str) -> None:
        """Removes the table of a view."""
        with self._engine.begin() as connection:
            sa.Table(name, sa.MetaData()).drop(connection, checkfirst=True)

    def read(self, views: Mapping[str, pa.Schema]) -> dict[str, pa.Table]:
        """Reads the tables of views, all as of one moment."""
        with self._engine.connect() as connection:
            return {name: self._read(connection, name, columns) for name, columns in views.items()}

    def close(self) -> None:
        """Closes the connections."""
        self._engine.dispose()

    def _read(self, connection: sa.Connection, name: str, columns: pa.Schema) -> pa.Table:
        table = sa.table(name, *(sa.column(each) for each in columns.names))
        rows = connection.execute(sa.select(*table.columns)).all()
        cells = zip(*rows, strict=True) if rows else [()] * len(columns)
        arrays = [
            pa.array([_as_type(value, field.type) for value in each], field.type)
            for field, each in zip(columns, cells, strict=True)
        ]
        return pa.table(arrays, schema=columns)


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
