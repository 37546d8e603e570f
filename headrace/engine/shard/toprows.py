"""The first rows of groups in a stream: the output that sends them to shards, and the work that emits rows.

A task sends no rows that cannot be among the first: it sorts columns by arrays, and makes objects of what is left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.engine.aggregation.arrayaccumulators import encode_accumulators
from headrace.engine.aggregation.toprowsfn import TopRowsFn
from headrace.engine.columns.cells import decode_cells, encode_cells
from headrace.engine.columns.sorting import leading_rows, sort_keys
from headrace.engine.shard.columnrows import ToGroups
from headrace.engine.shard.identity import Identity
from headrace.engine.shard.work import Grouping
from headrace.engine.worker.blame import blame
from headrace.engine.worker.columnbundles import PANE_COLUMNS, RETRACTION, ColumnBundle
from headrace.engine.worker.hidden import END, START, TIME
from headrace.engine.worker.shuffle import KEY, VALUE
from headrace.model.schema import column_values

_RANK_TYPE: Final = pa.int32()
"""The type of Spark's row_number."""
_PLACE: Final = (KEY, START, END)


@dataclass
class ToTopRows(ToGroups):
    """Groups columns and sends the first rows of each group, or each row by itself where they may be taken back."""

    fn: Any
    keyed: Any

    @property
    def reads(self) -> None:
        """All columns."""
        return None

    def bind(self, columns: pa.Schema) -> ToTopRows:
        """Returns the output for rows with these columns."""
        fn = self.fn.bind(columns)
        pairs = replace(self.pairs, fn=fn) if hasattr(self.pairs, "fn") else self.pairs
        return replace(self, fn=fn, keyed=replace(self.keyed, names=tuple(columns.names)), pairs=pairs)

    def _numeric(self, rows: pa.RecordBatch) -> bool:
        return False

    def _rows(self, rows: pa.RecordBatch) -> list[tuple[Any, ...]]:
        return list(zip(*[column_values(rows.column(name)) for name in self.keyed.names], strict=True))

    def _cells(self, rows: pa.RecordBatch) -> pa.BinaryArray:
        return encode_cells(self._rows(rows))

    def _combined_objects(self, bundle: ColumnBundle) -> pa.RecordBatch:
        rows = bundle.placed().rows
        _, groups = self._group_codes(rows)
        keys = [
            key
            for order in self.fn.by
            for key in sort_keys(rows.column(order.column), descending=order.descending, nulls_first=order.nulls_first)
        ]
        first = leading_rows(groups.numbers, keys, self.fn.n)
        edges = [0, *np.cumsum(np.bincount(groups.numbers[first], minlength=groups.count)).tolist()]
        values = self._rows(rows.take(pa.array(first)))
        with blame(self.label):
            cells = encode_accumulators(self.fn, [values[begin:end] for begin, end in pairwise(edges)])
        counts = np.bincount(groups.numbers, minlength=groups.count)
        return self._sent(rows.take(pa.array(groups.first_rows())), cells, counts)


@dataclass(frozen=True)
class TopRowsWork(Grouping):
    """Finds the first rows of groups, and emits them as rows; with `rank`, with a column of their places, from 1.

    Where panes are retracted, a row that stays where it is is neither retracted nor emitted again.
    """

    keys: tuple[str, ...] = field(kw_only=True)
    rank: str | None = field(kw_only=True)

    def bind(self, columns: pa.Schema) -> TopRowsWork:
        """Returns the work of rows with these columns."""
        assert isinstance(self.fn, TopRowsFn)
        return replace(self, fn=self.fn.bind(columns))

    def identity(self) -> Identity:
        return {**super().identity(), "kind": "top rows", "keys": self.keys, "rank": self.rank is not None}

    def describe(self) -> str:
        assert isinstance(self.fn, TopRowsFn)
        by = ", ".join(map(str, self.fn.by))
        of = f"the first {self.fn.n} by {by}, of each {', '.join(self.keys) or 'window'}"
        return f"{of}, {self.windowing.window!r}, {self.windowing.accumulation}"

    def _read_panes(self, panes: pa.RecordBatch) -> Iterator[ColumnBundle]:
        assert isinstance(self.fn, TopRowsFn)
        ranked = [list(enumerate(rows, 1)) for rows in decode_cells(panes.column(VALUE))]
        if self.retracts:
            _cancel(panes, ranked, by_rank=self.rank is not None)
        index = np.repeat(np.arange(len(ranked)), [len(rows) for rows in ranked])
        if not len(index):
            return
        ranks, rows = zip(*chain.from_iterable(ranked), strict=True)
        columns = {
            name: pa.array(values, kind)
            for name, kind, values in zip(
                self.fn.columns.names, self.fn.columns.types, zip(*rows, strict=True), strict=True
            )
        }
        if self.rank is not None:
            columns[self.rank] = pa.array(ranks, _RANK_TYPE)
        hidden = (TIME,) if self.windowing.is_global else (TIME, START, END)
        at = pa.array(index)
        columns |= {name: panes.column(name).take(at) for name in hidden}
        yield ColumnBundle(pa.record_batch(columns), None, panes.select(PANE_COLUMNS).take(at))


def _cancel(panes: pa.RecordBatch, ranked: list[list[tuple[int, Any]]], *, by_rank: bool) -> None:
    """Takes out of panes that are retracted, and of those that replace them, the rows that both have."""
    back = panes.column(RETRACTION).to_pylist()
    places = list(zip(*[panes.column(name).to_pylist() for name in _PLACE], strict=True))
    for new in range(1, len(ranked)):
        old = new - 1
        if back[old] and not back[new] and places[old] == places[new]:
            names = [[repr(each if by_rank else each[1]) for each in ranked[at]] for at in (old, new)]
            ranked[old] = _without(ranked[old], names[0], Counter(names[1]))
            ranked[new] = _without(ranked[new], names[1], Counter(names[0]))


def _without(rows: list[tuple[int, Any]], names: list[str], others: Counter[str]) -> list[tuple[int, Any]]:
    """Returns the rows that the others do not have, one for one."""
    left = []
    for row, name in zip(rows, names, strict=True):
        if others[name]:
            others[name] -= 1
        else:
            left.append(row)
    return left
