"""The tables of views in the session's database: ordinary tables, which any client may read."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from headrace.dialects.sql.relations import NUMBER
from headrace.dialects.sql.sqlerrors import SqlError
from headrace.dialects.sql.tablereads import TablePart, as_cells, in_snapshot, read_table, stored_name
from headrace.dialects.sql.viewchanges import Subscription, drop_log
from headrace.edges.columntypes import column_kind, sql_type
from headrace.edges.databases import open_database
from headrace.model.tables import database_url


class ResultTables:
    """The tables of views, in a database by its URL."""

    _lent: sa.PoolProxiedConnection | None
    _quick: Any

    def __init__(self, url: str) -> None:
        self._engine = open_database(database_url("the session's database", url))
        self._lent, self._quick = None, None  # the connection for rows by their keys, and SQLite's own of it

    def check_free(self, name: str) -> None:
        """Refuses the name of a table that is there already."""
        if sa.inspect(self._engine).has_table(name):
            raise SqlError(f"the database has a table {name!r} already, which is no view of this session; rename one")

    def create(self, name: str, columns: pa.Schema, key: Sequence[str] | None, ttl_column: str | None = None) -> None:
        """Creates the table of a view, which is to be empty. Parts of its key may be null, as those of groups may.

        Rows expire by `ttl_column`.
        """
        made = [
            sa.Column(
                field.name,
                sql_type(field.name, column_kind(field.name, field.type)),
                index=True if field.name == ttl_column else None,
            )
            for field in columns
        ]
        unique: list[Any] = [sa.UniqueConstraint(*key)] if key else []
        if NUMBER in columns.names and not key:
            unique.append(sa.Index(f"{name}{NUMBER}", NUMBER))
        with self._engine.begin() as connection:
            sa.Table(name, sa.MetaData(), *made, *unique).create(connection)

    def create_views(self, views: Mapping[str, tuple[Sequence[str], TablePart]]) -> None:
        """Creates views by name, each of columns of a part of a table."""
        quote = self._engine.dialect.identifier_preparer.quote_identifier
        with self._engine.begin() as connection:
            for name, (columns, part) in views.items():
                chosen = f"SELECT {', '.join(map(quote, columns))} FROM {quote(part.table)}"
                where = "" if part.number is None else f" WHERE {quote(part.column)} = {part.number:d}"
                connection.exec_driver_sql(f"CREATE VIEW {quote(name)} AS {chosen}{where}")

    def drop_view(self, name: str) -> None:
        """Removes a view; who follows its changes is told that it is gone."""
        quoted = self._engine.dialect.identifier_preparer.quote_identifier(name)
        with self._engine.begin() as connection:
            drop_log(connection, name)
            connection.exec_driver_sql(f"DROP VIEW {quoted}")

    def views(self) -> set[str]:
        """Returns the names of the views there are."""
        return set(sa.inspect(self._engine).get_view_names())

    def delete_queries(self, table: str, numbers: Sequence[int]) -> None:
        """Removes the rows of queries from the table of their shape."""
        if not numbers:
            return
        column = sa.column(NUMBER, sa.BigInteger)
        deletion = sa.delete(sa.table(table, column)).where(column == sa.bindparam("number"))
        with self._engine.begin() as connection:
            connection.execute(deletion, [{"number": number} for number in numbers])

    def drop(self, name: str) -> None:
        """Removes the table of a view; who follows its changes is told that it is gone."""
        with self._engine.begin() as connection:
            drop_log(connection, name)
            if name in sa.inspect(connection).get_view_names():
                connection.exec_driver_sql(f"DROP VIEW {connection.dialect.identifier_preparer.quote_identifier(name)}")
            for table in (name, stored_name(name)):
                sa.Table(table, sa.MetaData()).drop(connection, checkfirst=True)

    def read(
        self, views: Mapping[str, pa.Schema], equal: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
    ) -> dict[str, pa.Table]:
        """Reads the tables of views, all as of one moment; of some only the rows that have given values of columns."""
        with in_snapshot(self._engine) as connection:
            return {name: read_table(connection, name, columns, equal.get(name, {})) for name, columns in views.items()}

    def read_point(self, name: str, columns: pa.Schema, equal: Mapping[str, Any], limit: int | None) -> pa.Table:
        """Reads the rows of a view that have given values of columns, at most so many."""
        with self._engine.connect() as connection:
            return read_table(connection, name, columns, equal, limit)

    def read_cells(self, name: str, columns: pa.Schema, equal: Mapping[str, Any], limit: int) -> list[list[Any]]:
        """Reads columns of the rows of a view that have given texts and numbers, at most so many, in one statement."""
        mark = "%s" if self._engine.dialect.name == "postgresql" else "?"
        chosen = ", ".join(map(self._quoted, columns.names))
        conditions = " AND ".join(f"{self._quoted(column)} = {mark}" for column in equal)
        text = f"SELECT {chosen} FROM {self._quoted(name)} WHERE {conditions} LIMIT {mark}"
        with self._engine.connect() as connection:
            found = connection.exec_driver_sql(text, (*equal.values(), limit)).all()
        return [as_cells(columns, row) for row in found]

    def quick_text(self, name: str, columns: pa.Schema, equal: Sequence[str], short: int) -> str | None:
        """Returns the statement for `quick_row`: the row with given values, if it is short; None but for SQLite."""
        if self._engine.dialect.name != "sqlite":
            return None
        sized = [each.name for each in columns if not pa.types.is_primitive(each.type)]
        length = " + ".join(f"coalesce(length({self._quoted(column)}), 0)" for column in sized)
        conditions = [
            *(f"{self._quoted(column)} = ?" for column in equal),
            *([f"{length} <= {short}"] if sized else []),
        ]
        chosen = ", ".join(map(self._quoted, columns.names))
        return f"SELECT {chosen} FROM {self._quoted(name)} WHERE {' AND '.join(conditions)}"

    def quick_row(self, text: str, values: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Reads a row by a connection that waits for nobody; None if there is none, or if it would have to wait.

        To be called by one thread.
        """
        try:
            if self._quick is None:
                self._lent = self._engine.raw_connection()
                self._quick = self._lent.driver_connection
                self._quick.execute("PRAGMA busy_timeout = 0")
            found: tuple[Any, ...] | None = self._quick.execute(text, values).fetchone()
        except (sqlite3.Error, sa.exc.SQLAlchemyError):  # it is being written, or the view is gone
            return None
        return found

    def subscribe(
        self,
        name: str,
        columns: pa.Schema,
        part: TablePart | None = None,
        *,
        snapshot: bool = True,
        most: int | None = None,
    ) -> Subscription:
        """Follows the changes of a view, which may be a part of a table."""
        return Subscription(self._engine, name, columns, part=part, snapshot=snapshot, most=most)

    def close(self) -> None:
        """Closes the connections."""
        if self._lent is not None:
            self._lent.invalidate()  # others would wait for nobody, either
        self._engine.dispose()

    def _quoted(self, name: str) -> str:
        """Returns a name as the driver takes it in the text of a statement."""
        quoted = self._engine.dialect.identifier_preparer.quote_identifier(name)
        return quoted.replace("%", "%%") if self._engine.dialect.name == "postgresql" else quoted
