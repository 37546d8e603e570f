"""Writes the batches of WriteTable, each in one transaction that also records the batch's number.

Tables of one database share the transaction of a batch: to commit costs more than to write a few rows.

The net effect of a batch is computed first: an element and its retraction cancel. So the order of arrival matters only
if several elements of one key remain, and then windows and panes decide.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain
from typing import Any, Final, NamedTuple

import pyarrow as pa
from sqlalchemy.engine import Connection
from sqlalchemy.exc import SQLAlchemyError

from headrace.edges.columntypes import Kind, column_kind, converted, element_columns
from headrace.edges.databases import (
    BatchProgress,
    DatabaseError,
    error_text,
    lock_table_creation,
    open_database,
    set_patience,
)
from headrace.edges.tablestatements import DatabaseTable, Row, TableTarget
from headrace.engine.connectors.piecewisebatch import Mark, PiecewiseBatch
from headrace.engine.worker.blame import blame
from headrace.model.errors import PipelineError
from headrace.model.grouping import in_panes, may_retract
from headrace.model.pipeline import Node
from headrace.model.sinks import WindowedValue
from headrace.model.tables import SIGN, WriteTable
from headrace.model.times import SECOND

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EARLIEST: Final = -(62_000_000_000 * SECOND)  # of times that a datetime can be
_LATEST: Final = 250_000_000_000 * SECOND
_PATIENCE: Final = 600.0  # seconds for a statement, which may wait for what others have locked


class TableWriter:
    """Writes batches to a table. `columns` returns those of the elements once sources are open; None if unknown.

    Errors of the database, the table or the elements' type are raised before anything runs if they are known then,
    and otherwise with the first batch.
    """

    def __init__(self, node: Node, columns: Callable[[], pa.Schema | None]) -> None:
        sink, (pc,) = node.transform, node.inputs
        assert isinstance(sink, WriteTable)
        self.node, self.sink, self._columns = node, sink, columns
        self._by_watermark = in_panes(pc.pipeline.graph(), pc)
        self._expired: datetime | None = None  # the time up to which rows are deleted
        self._signed = sink.mode == "append" and may_retract(pc.pipeline.graph(), pc)
        self._kinds: dict[str, Kind] | None = None
        self._table: DatabaseTable | None = None
        self._prepare(self._open)

    def begin(self, stream: str) -> None:
        self._prepare(partial(self._begin, stream))

    def write(self, elements: list[WindowedValue], batch_id: int, watermark: int | None = None) -> None:
        """Writes a batch, and deletes rows whose time is over; it may be empty if these are to be looked for."""
        write_together([TableBatch(self, lambda: iter([elements] if elements else []), watermark)], batch_id)

    def close(self) -> None:
        self._engine.dispose()

    def _prepare(self, step: Callable[[], None]) -> None:
        """Runs a step before the first batch; its errors are errors of the pipeline."""
        try:
            step()
        except SQLAlchemyError as error:
            raise PipelineError(f"{self.node}: {self.sink}: {error_text(error, self.sink.url)}") from None
        except (DatabaseError, PipelineError) as error:
            raise PipelineError(f"{self.node}: {error}") from None

    def _open(self) -> None:
        self._engine = open_database(self.sink.url)
        if (schema := self.node.inputs[0].schema) is not None:
            self._set_kinds(self.sink.parts or schema.names, schema.types)
        with self._engine.begin() as connection:
            table = DatabaseTable.find(connection, self.sink.table)
            if table is not None and self._kinds is not None:
                self._target(table, self._kinds)

    def _begin(self, stream: str) -> None:
        if self._kinds is None and (schema := self._columns()) is not None:
            self._set_kinds(schema.names, schema.types)
        with self._transaction() as connection:
            lock_table_creation(connection)
            self._progress = BatchProgress(connection, stream, self.node.label)
            if self._kinds is not None:
                self._table = self._find_or_create(connection, self._kinds)

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        with self._engine.begin() as connection:
            set_patience(connection, _PATIENCE)
            yield connection

    def _set_kinds(self, names: Sequence[str], types: Sequence[pa.DataType]) -> None:
        self._kinds = {name: column_kind(name, type) for name, type in zip(names, types, strict=True)}

    def _expired_at(self, watermark: int | None) -> datetime | None:
        """Returns the time up to which the watermark lets rows expire; None if it lets none."""
        if self.sink.ttl is None or watermark is None or not self._by_watermark:
            return None
        until = min(watermark, _LATEST) - self.sink.ttl
        return _EPOCH + timedelta(microseconds=until) if until > _EARLIEST else None

    def _write(
        self, connection: Connection, pieces: Iterator[list[WindowedValue]], batch_id: int, expired: datetime | None
    ) -> DatabaseTable | None:
        """Writes a batch, which comes in pieces, in a transaction; returns the table, None if it is not there yet."""
        if not self._progress.advance(connection, batch_id):
            return self._table  # it was written before a crash
        table, target = self._table, None
        with PiecewiseBatch() as batch:
            for elements in pieces:
                before = target
                table, target, rows = self._rows(connection, table, elements)
                if self.sink.mode == "append":
                    target.insert(connection, rows)
                    continue
                if before is not None and before.names != target.names:
                    raise DatabaseError(
                        f"elements of one large batch have different columns, {', '.join(before.names)} and "
                        f"{', '.join(target.names)}; give all of them the same, or make batches smaller"
                    )
                batch.add(target.keys(rows), rows, list(map(_mark, elements)))
            for rows, marks in batch.parts():
                assert target is not None
                _MODES[self.sink.mode](connection, target, rows, marks)
        if target is None and table is not None and self._kinds is not None:
            target = self._target(table, self._kinds)
        if target is not None:
            self._expire(connection, target, expired)
        return table

    def _rows(
        self, connection: Connection, table: DatabaseTable | None, elements: list[WindowedValue]
    ) -> tuple[DatabaseTable, TableTarget, list[Row]]:
        """Returns the rows of elements, and the table, which is created if it is missing."""
        kinds: dict[str, Kind] = {}
        columns: dict[str, list[Any]] = {}
        for name, values in element_columns([element.value for element in elements], self.sink.parts).items():
            kinds[name], columns[name] = converted(name, values, (self._kinds or {}).get(name))
        table = table or self._find_or_create(connection, kinds)
        target = self._target(table, kinds)
        for name in target.names:
            if name not in columns:
                columns[name] = [_COMPUTED[name](element) for element in elements]
        return table, target, list(zip(*(columns[name] for name in target.names), strict=True))

    def _expire(self, connection: Connection, target: TableTarget, until: datetime | None) -> None:
        """Deletes the rows whose time is over."""
        if (column := self.sink.ttl_column) is None:
            return
        assert self.sink.ttl is not None
        if not self._by_watermark and (newest := target.newest(connection, column)) is not None:
            until = newest - timedelta(microseconds=self.sink.ttl)
        if until is not None:
            target.delete_until(connection, column, until)

    def _find_or_create(self, connection: Connection, kinds: dict[str, Kind]) -> DatabaseTable:
        """Returns the table, created if it is missing. Refuses one that does not take these columns."""
        lock_table_creation(connection)
        table = DatabaseTable.find(connection, self.sink.table)
        if table is None:
            table = DatabaseTable.create(connection, self.sink.table, self._all(kinds, None), self.sink.key)
        self._target(table, kinds)
        return table

    def _target(self, table: DatabaseTable, kinds: dict[str, Kind]) -> TableTarget:
        if self.sink.mode == "upsert" and frozenset(self.sink.key) not in table.unique:
            raise DatabaseError(
                f"the table {table.name!r} may have several rows of one {', '.join(self.sink.key)}; add a primary key "
                "or a unique index of exactly these columns, by which rows can be replaced"
            )
        every, ttl_column = self._all(kinds, table), self.sink.ttl_column
        if ttl_column is not None and every.get(ttl_column) not in ("timestamp", "null"):
            found = f"is {every[ttl_column]}" if ttl_column in every else f"is none of {', '.join(every)}"
            raise DatabaseError(f"ttl_column is a column with times, and {ttl_column!r} {found}")
        return TableTarget.of(table, every, self.sink.key, self._engine.dialect.name)

    def _all(self, kinds: dict[str, Kind], table: DatabaseTable | None) -> dict[str, Kind]:
        """Returns the columns of elements and the computed ones, for a table or, if it is None, for one to create."""
        pc, known = self.node.inputs[0], None if table is None else table.types
        computed = self.sink.computed_columns(pc, kinds, known, signed=self._signed)
        return {**kinds, **{name: "integer" if name == SIGN else "timestamp" for name in computed}}


class TableBatch(NamedTuple):
    """The part of a batch that a table is given; `elements` decodes it, piece by piece if it is large."""

    writer: TableWriter
    elements: Callable[[], Iterator[list[WindowedValue]]]
    watermark: int | None


def write_together(batches: Sequence[TableBatch], batch_id: int) -> None:
    """Writes a batch to tables of one database, to all of them or to none."""
    written: list[tuple[TableWriter, DatabaseTable | None, datetime | None]] = []
    first = batches[0].writer
    with blame(first.node.label), _naming(first), ExitStack() as transaction:
        connection: Connection | None = None
        # In the order of tables: two streams that write the same ones never wait for each other in a circle.
        for writer, elements_of_table, watermark in sorted(batches, key=lambda each: each.writer.sink.table):
            with blame(writer.node.label), _naming(writer):
                pieces, expired = elements_of_table(), writer._expired_at(watermark)
                first_piece = next(pieces, None)
                if first_piece is not None or (expired is not None and expired != writer._expired):
                    connection = connection or transaction.enter_context(first._transaction())
                    pieces = chain([] if first_piece is None else [first_piece], pieces)
                    written.append((writer, writer._write(connection, pieces, batch_id, expired), expired))
    for writer, table, expired in written:
        writer._table, writer._expired = table, expired


@contextmanager
def _naming(writer: TableWriter) -> Iterator[None]:
    """Names the table in errors of the database."""
    try:
        yield
    except SQLAlchemyError as error:
        raise DatabaseError(f"{writer.sink}: {error_text(error, writer.sink.url)}") from None


def _upsert(connection: Connection, target: TableTarget, rows: list[Row], marks: list[Mark]) -> None:
    keys, net = target.keys(rows), _net(rows, marks)
    # The last element of a key counts: by window, pane and time and, if these are equal, by arrival.
    ordered = sorted(range(len(rows)), key=lambda at: marks[at].order)
    added = {keys[at]: rows[at] for at in ordered if net[rows[at]] > 0 and not marks[at].retraction}
    removed = {rows[at]: keys[at] for at in ordered if net[rows[at]] < 0}
    target.delete_equal(connection, [row for row, key in removed.items() if key not in added])
    # In the order of keys: two writers then never wait for each other in a circle.
    in_order = sorted(added, key=lambda key: [(value is not None, value) for value in key])
    target.upsert(connection, [added[key] for key in in_order])


def _retract(connection: Connection, target: TableTarget, rows: list[Row], marks: list[Mark]) -> None:
    net = _net(rows, marks)
    target.delete(connection, [row for row, count in net.items() for _ in range(-count)])
    target.insert(connection, [row for row, count in net.items() for _ in range(count)])


def _net(rows: list[Row], marks: list[Mark]) -> Counter[Row]:
    """Returns how many of each row a batch adds; a negative number, if it removes them."""
    net: Counter[Row] = Counter()
    for row, mark in zip(rows, marks, strict=True):
        net[row] += -1 if mark.retraction else 1
    return net


def _mark(element: WindowedValue) -> Mark:
    window = element.window
    return Mark((window.end, window.start, element.pane.index, element.timestamp), element.retraction)


# Rows of "append" need not be compared with each other, and are inserted as they come.
_MODES: Final[dict[str, Callable[[Connection, TableTarget, list[Row], list[Mark]], None]]] = {
    "upsert": _upsert,
    "retract": _retract,
}
_COMPUTED: Final[dict[str, Callable[[WindowedValue], Any]]] = {
    "window_start": lambda element: _EPOCH + timedelta(microseconds=element.window.start),
    "window_end": lambda element: _EPOCH + timedelta(microseconds=element.window.end),
    SIGN: lambda element: -1 if element.retraction else 1,
}
