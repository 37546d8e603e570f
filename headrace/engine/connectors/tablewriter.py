"""The writer of WriteTable: each batch is one transaction, with the number of the batch in it.

What a batch amounts to is worked out first: what it adds and takes back again cancels. So the order in which elements
arrive matters only where several stay for one key, and then windows and panes decide.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

import pyarrow as pa
from sqlalchemy.engine import Connection
from sqlalchemy.exc import SQLAlchemyError

from headrace.edges.columntypes import Kind, columns_of, kind_of, typed
from headrace.edges.databases import DatabaseError, Progress, making_tables, open_database, reason
from headrace.edges.tablestatements import HeldTable, Row, Target
from headrace.engine.worker.blame import blame
from headrace.model.errors import PipelineError
from headrace.model.pipeline import Graph, Node, PCollection
from headrace.model.sinks import WindowedValue
from headrace.model.tables import SIGN, WINDOW_BOUNDS, WriteTable
from headrace.model.validate import is_grouping
from headrace.model.windows import CountWindows

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class TableWriter:
    """Writes batches to a table. `columns` tells those of the elements once sources are open; None if nobody knows.

    What is wrong with the database, the table or the elements' type is told before anything runs as far as it is known
    then, and else with the first batch.
    """

    def __init__(self, node: Node, columns: Callable[[], pa.Schema | None]) -> None:
        sink, (pc,) = node.transform, node.inputs
        assert isinstance(sink, WriteTable)
        self.node, self.sink, self._columns = node, sink, columns
        self._timed = not (pc.windowing.is_global or isinstance(pc.windowing.window, CountWindows))
        self._signed = sink.mode == "append" and takes_back(pc.pipeline.graph(), pc)
        self._kinds: dict[str, Kind] | None = None
        self._held: HeldTable | None = None
        self._before_anything(self._open)

    def begin(self, stream: str) -> None:
        self._before_anything(partial(self._begin, stream))

    def write(self, elements: list[WindowedValue], batch_id: int) -> None:
        with blame(self.node.label):
            try:
                self._write(elements, batch_id)
            except SQLAlchemyError as error:
                raise DatabaseError(f"{self.sink}: {reason(error, self.sink.url)}") from None

    def close(self) -> None:
        self._engine.dispose()

    def _before_anything(self, act: Callable[[], None]) -> None:
        """What is wrong now is wrong with the pipeline as it was written."""
        try:
            act()
        except SQLAlchemyError as error:
            raise PipelineError(f"{self.node}: {self.sink}: {reason(error, self.sink.url)}") from None
        except (DatabaseError, PipelineError) as error:
            raise PipelineError(f"{self.node}: {error}") from None

    def _open(self) -> None:
        self._engine = open_database(self.sink.url)
        if (schema := self.node.inputs[0].schema) is not None:
            self._know(self.sink.parts or schema.names, schema.types)
        with self._engine.begin() as connection:
            held = HeldTable.find(connection, self.sink.table)
            if held is not None and self._kinds is not None:
                self._target(held, self._kinds)

    def _begin(self, stream: str) -> None:
        if self._kinds is None and (schema := self._columns()) is not None:
            self._know(schema.names, schema.types)
        with self._engine.begin() as connection:
            making_tables(connection)
            self._progress = Progress(connection, stream, self.node.label)
            if self._kinds is not None:
                self._held = self._made(connection, self._kinds)

    def _know(self, names: Sequence[str], types: Sequence[pa.DataType]) -> None:
        self._kinds = {name: kind_of(name, type) for name, type in zip(names, types, strict=True)}

    def _write(self, elements: list[WindowedValue], batch_id: int) -> None:
        with self._engine.begin() as connection:
            if not self._progress.advance(connection, batch_id):
                return  # it was written before the run was broken off
            kinds: dict[str, Kind] = {}
            columns: dict[str, list[Any]] = {}
            for name, values in columns_of([each.value for each in elements], self.sink.parts).items():
                kinds[name], columns[name] = typed(name, values, (self._kinds or {}).get(name))
            held = self._held or self._made(connection, kinds)
            target = self._target(held, kinds)
            for name in target.names:
                if name not in columns:
                    columns[name] = [_FILLED[name](each) for each in elements]
            rows = list(zip(*(columns[name] for name in target.names), strict=True))
            _MODES[self.sink.mode](connection, target, rows, elements)
        self._held = held

    def _made(self, connection: Connection, kinds: dict[str, Kind]) -> HeldTable:
        """The table, made if it is missing, once it is known to take these columns."""
        making_tables(connection)
        held = HeldTable.find(connection, self.sink.table)
        if held is None:
            held = HeldTable.make(connection, self.sink.table, self._all(kinds, None), self.sink.key)
        self._target(held, kinds)
        return held

    def _target(self, held: HeldTable, kinds: dict[str, Kind]) -> Target:
        if self.sink.mode == "upsert" and frozenset(self.sink.key) not in held.unique:
            raise DatabaseError(
                f"the table {held.name!r} may have several rows of one {', '.join(self.sink.key)}: give it a primary "
                "key or a unique index of exactly these columns, by which rows can be replaced"
            )
        return Target.of(held, self._all(kinds, held), self.sink.key, self._engine.dialect.name)

    def _all(self, kinds: dict[str, Kind], held: HeldTable | None) -> dict[str, Kind]:
        """The columns of elements, and those that are filled in the table, or in one that is to be made."""
        named = {*self.sink.key, *(self.sink.columns or ())}
        if held is None and {*self.sink.key} & {*WINDOW_BOUNDS} - {*kinds}:
            named.update(WINDOW_BOUNDS)
        elif held is not None and self._timed:
            named.update(held.types)
        bounds = [name for name in WINDOW_BOUNDS if name in named and name not in kinds]
        if bounds and not self._timed:
            window = self.node.inputs[0].windowing.window
            raise DatabaseError(
                f"{', '.join(bounds)} would be bounds of windows, but elements are in {window!r}, whose bounds are no "
                "times; put WindowInto(FixedWindows(...)) before it"
            )
        if self._signed and SIGN in kinds:
            raise DatabaseError(f"elements have a column {SIGN!r}, which is to tell retractions; rename it with Select")
        every: dict[str, Kind] = {
            **kinds,
            **dict.fromkeys(bounds, "timestamp"),
            **({SIGN: "integer"} if self._signed else {}),
        }
        if missing := [name for name in self.sink.key if name not in every]:
            raise DatabaseError(f"the key {missing[0]!r} is no column of the elements, which have {', '.join(every)}")
        return every


def takes_back(graph: Graph, pc: PCollection) -> bool:
    """Tells whether some elements of a collection may be retractions."""
    node = next(node for node in graph if node.label == pc.label)  # its own may be of other element types
    if is_grouping(node):
        return node.inputs[0].windowing.accumulation == "retracting"
    return any(takes_back(graph, read) for read in node.inputs)


def _append(connection: Connection, target: Target, rows: list[Row], elements: list[WindowedValue]) -> None:
    target.insert(connection, rows)


def _upsert(connection: Connection, target: Target, rows: list[Row], elements: list[WindowedValue]) -> None:
    keys, net = target.keys(rows), _net(rows, elements)
    # Of what stays for a key the last counts: by window, pane and time, and as it came where these are equal.
    ordered = sorted(range(len(rows)), key=lambda at: _order(elements[at]))
    stays = {keys[at]: rows[at] for at in ordered if net[rows[at]] > 0 and not elements[at].retraction}
    gone = {rows[at]: keys[at] for at in ordered if net[rows[at]] < 0}
    target.delete_equal(connection, [row for row, key in gone.items() if key not in stays])
    target.upsert(
        connection, [stays[key] for key in sorted(stays)]
    )  # in one order everywhere: nobody waits in a circle


def _retract(connection: Connection, target: Target, rows: list[Row], elements: list[WindowedValue]) -> None:
    target.keys(rows)
    net = _net(rows, elements)
    target.take(connection, [row for row, count in net.items() for _ in range(-count)])
    target.insert(connection, [row for row, count in net.items() for _ in range(count)])


def _net(rows: list[Row], elements: list[WindowedValue]) -> Counter[Row]:
    """How many of each row a batch adds; if fewer than none, it takes them away."""
    net: Counter[Row] = Counter()
    for row, element in zip(rows, elements, strict=True):
        net[row] += -1 if element.retraction else 1
    return net


def _order(element: WindowedValue) -> tuple[int, int, int, int]:
    return element.window.end, element.window.start, element.pane.index, element.timestamp


_MODES: Final[dict[str, Callable[[Connection, Target, list[Row], list[WindowedValue]], None]]] = {
    "append": _append,
    "upsert": _upsert,
    "retract": _retract,
}
_FILLED: Final[dict[str, Callable[[WindowedValue], Any]]] = {
    "window_start": lambda element: _EPOCH + timedelta(microseconds=element.window.start),
    "window_end": lambda element: _EPOCH + timedelta(microseconds=element.window.end),
    SIGN: lambda element: -1 if element.retraction else 1,
}
