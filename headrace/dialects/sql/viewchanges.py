"""Follows the changes of a view: what was committed to its table, in the order of commits, and nothing twice.

While somebody follows a view, triggers of the database write each change of its table to a log, in the transaction that
makes the change; so whoever changes the table, the log has it if and only if the table has. A subscription reads the
table and the end of the log in one snapshot, and then the log from there on. What all have read is deleted; with the
last one the triggers and the log go.

In PostgreSQL, writers of a table that is followed wait for each other, so that numbers of the log are in the order of
commits; SQLite has one writer at a time. A subscription is renewed by its reader; one that was not read for minutes has
lapsed, its changes are not kept any longer, and its reader is told so.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Event
from types import TracebackType
from typing import Any, Final, Self

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from headrace.dialects.sql.sqlerrors import SqlError
from headrace.dialects.sql.tablereads import TablePart, as_row, in_snapshot, read_rows
from headrace.edges.databases import lock_table_creation

_POLL: Final = 0.1  # seconds
_LEASE: Final = 300  # seconds that changes are kept for a reader who does not read
_MARGIN: Final = 60  # seconds before its end at which a lease is over for its reader, though not yet for writers
_RENEWAL: Final = 5  # seconds
_CHUNK: Final = 5_000  # changes that are read at once
_PATIENCE: Final = "2s"  # for others to leave a table whose triggers are to be removed

_SUBSCRIBERS: Final = sa.Table(
    "headrace_subscribers",
    sa.MetaData(),
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("view", sa.Text, nullable=False),
    sa.Column("position", sa.BigInteger, nullable=False),
    sa.Column("until", sa.Double, nullable=False),
)
_NOW: Final = {
    "sqlite": "((julianday('now') - 2440587.5) * 86400.0)",
    "postgresql": "extract(epoch from statement_timestamp())::double precision",
}
Row = dict[str, Any]


@dataclass(frozen=True)
class Change:
    """A change of a view: a row that came has no `old`, one that went no `new`."""

    old: Row | None
    new: Row | None


class Subscription:
    """Iterates over the changes of a view as they are committed, until `stop`.

    The rows that are there come first, as rows that came; not without `snapshot`. More of them than `most` are refused.
    `read` returns what is new without waiting.
    """

    def __init__(
        self,
        engine: sa.Engine,
        view: str,
        schema: pa.Schema,
        *,
        part: TablePart | None = None,
        snapshot: bool = True,
        most: int | None = None,
    ) -> None:
        self.view, self._engine, self._schema = view, engine, schema
        self._log = ChangeLog(engine, view, schema, part)
        self._id, self._stopped = uuid.uuid4().hex, Event()
        self._log.join(self._id)
        self._renewed, self._first = time.monotonic(), list[Change]()
        self.position = 0
        try:
            with in_snapshot(engine) as connection:
                self.position = self._log.end(connection)
                if snapshot:
                    self._first = [Change(None, row) for row in read_rows(connection, view, schema, most)]
        except BaseException:
            self.stop()
            raise

    def read(self) -> list[Change]:
        """Returns the changes that were committed since the last call, or some of the first of them."""
        if self._stopped.is_set():
            return []
        first, self._first = self._first, []
        if first:
            return first
        try:
            with in_snapshot(self._engine) as connection:
                found = self._log.read(connection, self.position, _CHUNK)
                self._log.check(connection, self._id)  # if it holds now, all that was found before is all there was
        except DBAPIError:
            with self._engine.connect() as connection:
                self._log.check(connection, self._id)
            raise
        changes = [change for _, change in found]
        if found:
            self.position = found[-1][0]
        if time.monotonic() - self._renewed > _RENEWAL:
            self._log.renew(self._id, self.position)
            self._renewed = time.monotonic()
        return changes

    def stop(self) -> None:
        """Ends the subscription, and an iteration over it."""
        if not self._stopped.is_set():
            self._stopped.set()
            self._log.leave(self._id)

    def __iter__(self) -> Iterator[Change]:
        while not self._stopped.is_set():
            changes = self.read()
            yield from changes
            if not changes:
                self._stopped.wait(_POLL)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class ChangeLog:
    """The log of a view's changes, in the database of its table, with a column for each old and each new value.

    A view may be a part of a table.
    """

    def __init__(self, engine: sa.Engine, view: str, schema: pa.Schema, part: TablePart | None = None) -> None:
        self._engine, self._view, self._schema, self._part = engine, view, schema, part
        self._written = view if part is None else part.table
        self._name = log_name(view)
        numbers = range(len(schema))
        self._olds, self._news = [f"old_{n}" for n in numbers], [f"new_{n}" for n in numbers]
        self._table = sa.table(
            self._name,
            *map(sa.column, ("id", "kind", *self._olds, *self._news)),
        )
        self._now = sa.literal_column(_NOW[engine.dialect.name], sa.Double)

    def join(self, subscriber: str) -> None:
        """Adds a subscriber: from its commit on, every change is in the log."""
        with self._engine.begin() as connection:
            lock_table_creation(connection)
            if not sa.inspect(connection).has_table(_SUBSCRIBERS.name):
                _SUBSCRIBERS.create(connection)
            if connection.dialect.name == "postgresql":  # writers who have not seen this subscriber are waited for
                connection.exec_driver_sql(f"LOCK TABLE {self._quoted(self._written)} IN SHARE ROW EXCLUSIVE MODE")
            if not sa.inspect(connection).has_table(self._name):
                for statement in self._creation(connection):
                    connection.exec_driver_sql(statement)
            self._forget_lapsed(connection)
            if not self._subscribers(connection):
                connection.execute(sa.delete(self._table))
            connection.execute(
                sa.insert(_SUBSCRIBERS).values(id=subscriber, view=self._view, position=0, until=self._now + _LEASE)
            )

    def end(self, connection: sa.Connection) -> int:
        """Returns the number of the last change."""
        return connection.execute(sa.select(sa.func.max(self._table.c.id))).scalar() or 0

    def read(self, connection: sa.Connection, after: int, most: int) -> list[tuple[int, Change]]:
        """Reads changes after a number, the first ones if there are more."""
        table = self._table
        found = connection.execute(sa.select(table).where(table.c.id > after).order_by(table.c.id).limit(most)).all()
        width = len(self._schema)
        return [
            (number, Change(self._row(kind != "insert", cells[:width]), self._row(kind != "delete", cells[width:])))
            for number, kind, *cells in found
        ]

    def check(self, connection: sa.Connection, subscriber: str) -> None:
        """Refuses a subscriber whose changes are not kept any more."""
        row = _SUBSCRIBERS.c
        lease = sa.select(row.id).where(row.id == subscriber, row.until > self._now + _MARGIN)
        if not sa.inspect(connection).has_table(_SUBSCRIBERS.name) or connection.execute(lease).first() is None:
            raise SqlError(
                f"the subscription to {self._view} has ended: the view was dropped, or its changes were not read for "
                f"{_LEASE - _MARGIN} seconds; subscribe again"
            )

    def renew(self, subscriber: str, position: int) -> None:
        """Keeps changes for a subscriber who has read those up to a position; deletes what all have read."""
        row = _SUBSCRIBERS.c
        with self._engine.begin() as connection:
            lock_table_creation(connection)
            self.check(connection, subscriber)
            connection.execute(
                sa.update(_SUBSCRIBERS).where(row.id == subscriber).values(position=position, until=self._now + _LEASE)
            )
            self._forget_lapsed(connection)
            read = sa.select(sa.func.min(row.position)).where(row.view == self._view).scalar_subquery()
            connection.execute(sa.delete(self._table).where(self._table.c.id <= read))

    def leave(self, subscriber: str) -> None:
        """Removes a subscriber; after the last one, the log and what writes it, unless others hold the table."""
        try:
            with self._engine.begin() as connection:
                lock_table_creation(connection)
                if not sa.inspect(connection).has_table(_SUBSCRIBERS.name):
                    return
                connection.execute(sa.delete(_SUBSCRIBERS).where(_SUBSCRIBERS.c.id == subscriber))
                self._forget_lapsed(connection)
                if self._subscribers(connection):
                    return
        except DBAPIError:  # what is left lapses
            return
        # What cannot be removed now costs little, and the next one who leaves removes it.
        with suppress(DBAPIError), self._engine.begin() as connection:
            lock_table_creation(connection)
            if self._subscribers(connection):
                return
            if connection.dialect.name == "postgresql":
                connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{_PATIENCE}'")
            for statement in self._removal(connection):
                connection.exec_driver_sql(statement)

    def _subscribers(self, connection: sa.Connection) -> bool:
        there = sa.select(_SUBSCRIBERS.c.id).where(_SUBSCRIBERS.c.view == self._view)
        return connection.execute(there).first() is not None

    def _forget_lapsed(self, connection: sa.Connection) -> None:
        connection.execute(
            sa.delete(_SUBSCRIBERS).where(_SUBSCRIBERS.c.view == self._view, _SUBSCRIBERS.c.until <= self._now)
        )

    def _row(self, there: bool, cells: Sequence[Any]) -> Row | None:
        return as_row(self._schema, cells) if there else None

    def _quoted(self, name: str) -> str:
        return self._engine.dialect.identifier_preparer.quote_identifier(name)

    def _creation(self, connection: sa.Connection) -> Iterator[str]:
        """Yields the statements that make the log and let the database write it."""
        table, log = self._quoted(self._written), self._quoted(self._name)
        names = [self._quoted(name) for name in self._schema.names]
        types = {column["name"]: column["type"] for column in sa.inspect(connection).get_columns(self._written)}
        kinds = [types[name].compile(self._engine.dialect) for name in self._schema.names]
        columns = [f"{old} {kind}" for old, kind in zip((*self._olds, *self._news), kinds * 2, strict=True)]
        followed = (
            f"EXISTS (SELECT 1 FROM {_SUBSCRIBERS.name} WHERE view = '{self._view}' "
            f"AND until > {_NOW[self._engine.dialect.name]})"
        )
        writes = {
            "insert": (self._news, [f"NEW.{name}" for name in names]),
            "update": (
                [*self._olds, *self._news],
                [*(f"OLD.{name}" for name in names), *(f"NEW.{name}" for name in names)],
            ),
            "delete": (self._olds, [f"OLD.{name}" for name in names]),
        }
        logged = {
            kind: f"INSERT INTO {log} (kind, {', '.join(into)}) VALUES ('{kind}', {', '.join(values)});"
            for kind, (into, values) in writes.items()
        }
        if self._engine.dialect.name == "sqlite":
            yield f"CREATE TABLE {log} (id INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, {', '.join(columns)})"
            differ = " OR ".join(f"OLD.{name} IS NOT NEW.{name}" for name in names)
            for kind, statement in logged.items():
                when = f"{followed} AND ({differ})" if kind == "update" else followed
                if self._part is not None and self._part.number is not None:
                    row = "NEW" if kind == "insert" else "OLD"
                    when = f"{row}.{self._quoted(self._part.column)} = {self._part.number:d} AND {when}"
                trigger = self._quoted(f"{self._name}_{kind}")
                yield f"CREATE TRIGGER {trigger} AFTER {kind} ON {table} WHEN {when} BEGIN {statement} END"
            return
        yield (
            f"CREATE TABLE {log} (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, kind text NOT NULL, "
            f"{', '.join(columns)})"
        )
        yield (
            f"CREATE OR REPLACE FUNCTION {log}() RETURNS trigger LANGUAGE plpgsql AS $body$ BEGIN "
            f"IF TG_LEVEL = 'STATEMENT' THEN PERFORM pg_advisory_xact_lock(hashtextextended('{self._name}', 0)); "
            f"ELSIF NOT {followed} THEN RETURN NULL; {self._other_part()}"
            f"ELSIF TG_OP = 'INSERT' THEN {logged['insert']} "
            f"ELSIF TG_OP = 'DELETE' THEN {logged['delete']} "
            f"ELSIF OLD IS DISTINCT FROM NEW THEN {logged['update']} END IF; RETURN NULL; END $body$"
        )
        events = "INSERT OR UPDATE OR DELETE"
        order, each = self._quoted(f"{self._name}_order"), self._quoted(f"{self._name}_each")
        yield f"CREATE TRIGGER {order} BEFORE {events} ON {table} FOR EACH STATEMENT EXECUTE FUNCTION {log}()"
        yield f"CREATE TRIGGER {each} AFTER {events} ON {table} FOR EACH ROW EXECUTE FUNCTION {log}()"

    def _other_part(self) -> str:
        """Returns the branch of PostgreSQL's function for rows that are of another part of the table."""
        if self._part is None or self._part.number is None:
            return ""
        column = self._quoted(self._part.column)
        return f"ELSIF COALESCE(NEW.{column}, OLD.{column}) <> {self._part.number:d} THEN RETURN NULL; "

    def _removal(self, connection: sa.Connection) -> Iterator[str]:
        log = self._quoted(self._name)
        if connection.dialect.name == "postgresql":
            yield f"DROP FUNCTION IF EXISTS {log}() CASCADE"
        else:
            for kind in ("insert", "update", "delete"):
                yield f"DROP TRIGGER IF EXISTS {self._quoted(f'{self._name}_{kind}')}"
        yield f"DROP TABLE IF EXISTS {log}"


def log_name(view: str) -> str:
    """Returns the name of a view's log of changes, and of what writes it."""
    return f"headrace_log_{view}"


def drop_log(connection: sa.Connection, view: str) -> None:
    """Removes the log of a view whose table is removed in this transaction, and ends subscriptions to it."""
    quoted = connection.dialect.identifier_preparer.quote_identifier(log_name(view))
    if sa.inspect(connection).has_table(_SUBSCRIBERS.name):  # first: in SQLite, this is what begins the transaction
        connection.execute(sa.delete(_SUBSCRIBERS).where(_SUBSCRIBERS.c.view == view))
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"DROP FUNCTION IF EXISTS {quoted}() CASCADE")
    else:
        for kind in ("insert", "update", "delete"):  # of a table that may stay, if the view is a part of it
            trigger = connection.dialect.identifier_preparer.quote_identifier(f"{log_name(view)}_{kind}")
            connection.exec_driver_sql(f"DROP TRIGGER IF EXISTS {trigger}")
    connection.exec_driver_sql(f"DROP TABLE IF EXISTS {quoted}")
