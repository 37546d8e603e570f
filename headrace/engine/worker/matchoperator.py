"""Pairs rows with the queries that they match, in a worker: reads the table of queries, and keeps its index."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

import numpy as np
import pyarrow as pa

from headrace.engine.columns.queryindex import QueryIndex
from headrace.engine.worker.blame import blame
from headrace.engine.worker.bundles import Bundle
from headrace.engine.worker.columnbundles import ColumnBundle
from headrace.engine.worker.hidden import END, START, TIME
from headrace.engine.worker.microbatch import current_batch
from headrace.engine.worker.operators import ColumnsOperator, Tagged
from headrace.local.querytable import QueryTable
from headrace.model.matching import MatchQueries, Parameter
from headrace.model.times import Int64Array

_HIDDEN: Final = (TIME, START, END)


class _IndexedTable:
    """A table of queries with the index of those that count in a micro-batch, made anew when they are others."""

    def __init__(self, path: str) -> None:
        self._table = QueryTable(Path(path))
        self._of: object = None
        self._index: QueryIndex | None = None
        self._numbers: Int64Array = np.zeros(0, np.int64)

    def index(self, parameters: tuple[Parameter, ...]) -> tuple[QueryIndex, Int64Array]:
        """Returns the index for the micro-batch of this task, and the numbers of its queries."""
        batch, table = current_batch(), self._table
        table.refresh()
        if table.version is None:
            raise FileNotFoundError(f"the table of queries {table.path} is not on this machine; use local executors")
        settled = batch is None or batch >= table.settled
        of = (table.version, None if settled else batch, parameters)
        if self._index is None or of != self._of:
            queries = table.active(None if settled else batch)
            self._index = QueryIndex(parameters, [query.constants for query in queries])
            self._of, self._numbers = of, np.array([query.number for query in queries], np.int64)
        return self._index, self._numbers


_tables: dict[str, _IndexedTable] = {}  # of this process, which may work for many micro-batches


@dataclass
class MatchOperator(ColumnsOperator):
    """Gives each row as often as there are queries that it matches."""

    table: str
    parameters: tuple[Parameter, ...]
    keep: tuple[str, ...]
    number: str

    @classmethod
    def of(cls, label: str, transform: MatchQueries) -> Self:
        """Makes the operator of a transform."""
        return cls(label, transform.table, transform.parameters, transform.keep, transform.number)

    @property
    def used(self) -> frozenset[str] | None:
        return frozenset((*(each.column for each in self.parameters), *self.keep))

    def open(self) -> None:
        if self.table not in _tables:
            _tables[self.table] = _IndexedTable(self.table)
        with blame(self.label):
            self._index, self._numbers = _tables[self.table].index(self.parameters)

    def run(self, bundle: Bundle) -> Iterator[Tagged]:
        raise NotImplementedError("queries are matched with columns, which the plan sees to")

    def run_whole(self, bundle: ColumnBundle) -> Iterator[ColumnBundle]:
        for positions, rows in self.matched(bundle.rows):
            panes = None if bundle.panes is None else bundle.panes.take(positions)
            yield replace(bundle, rows=rows, panes=panes, schema=None)

    def matched(self, rows: pa.RecordBatch) -> Iterator[tuple[pa.Array, pa.RecordBatch]]:
        """Yields positions of rows, and the rows there with the numbers of queries that they match."""
        columns = rows.select([*self.keep, *(name for name in _HIDDEN if name in rows.schema.names)])
        for found, queries in self._index.matches([rows.column(each.column) for each in self.parameters]):
            positions = pa.array(found)
            numbers = pa.array(self._numbers[queries])
            all_once = len(found) == rows.num_rows and bool((np.diff(found) == 1).all())
            matched = columns if all_once else columns.take(positions)
            yield positions, matched.append_column(self.number, numbers)

    def over_batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Callable by mapInArrow."""
        self.open()
        for batch in batches:
            yield from (rows for _, rows in self.matched(batch))
