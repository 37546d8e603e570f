"""Bundles of columns: elements from a source or a grouping before a function asks for Python objects.

Outputs that know columns take them as they are. Functions and all other outputs get bundles of Python elements.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Protocol, get_args, runtime_checkable

import numpy as np
import pyarrow as pa

from headrace.engine.columns.cells import decode_cells
from headrace.engine.worker.bundles import Bundle, FromColumns
from headrace.engine.worker.hidden import END, START, TIME
from headrace.engine.worker.operators import WindowOperator, is_identity
from headrace.engine.worker.shuffle import KEY, SPELLING, VALUE
from headrace.model.keys import decode_keys
from headrace.model.panes import NO_PANE, PaneInfo, Timing
from headrace.model.schema import Schema
from headrace.model.times import MIN_TIME, Int64Array
from headrace.model.windows import GlobalWindows

RETRACTION: Final = "retraction"
"""The column, of panes and of rows on their way to a shard, that tells whether a row takes an earlier one back."""
PANE_COLUMNS: Final = (RETRACTION, "timing", "index", "on_time_index", "is_first", "is_last")
"""The columns that tell panes of one window apart."""
TIMINGS: Final[tuple[Timing, ...]] = get_args(Timing)
"""What the codes in the column `timing` mean."""


@dataclass(frozen=True)
class ColumnBundle:
    """Rows of an element's own columns, TIME and, unless windows are global, START and END; `panes`: PANE_COLUMNS.

    >>> from headrace.model.windows import SlidingWindows
    >>> window = WindowOperator("tens", SlidingWindows("10 us", "5 us"))
    >>> bundle = ColumnBundle(pa.record_batch({"x": [1], TIME: [25]}), None, window=window)
    >>> bundle.placed().rows.to_pylist()
    [{'x': 1, '__time': 25, '__start': 20, '__end': 30}, {'x': 1, '__time': 25, '__start': 25, '__end': 35}]
    """

    rows: pa.RecordBatch
    schema: Schema | None  # None if elements are Rows
    panes: pa.RecordBatch | None = None
    window: WindowOperator | None = None  # which is still to be applied: rows have no START and END

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.rows.num_rows  # type: ignore[no-any-return]

    def all_times(self) -> Int64Array:
        return np.asarray(self.rows.column(TIME).fill_null(MIN_TIME))

    def placed(self) -> ColumnBundle:
        """Returns the bundle with its windows assigned; a row of several windows is repeated."""
        if self.window is None:
            return self
        return replace(self, rows=_in_windows(self.rows, self.window), window=None)

    def parts(self) -> Iterator[Bundle]:
        """Gives the elements as bundles of Python objects; retractions come before what replaces them."""
        if self.window is not None:
            yield from self.placed().parts()
            return
        if self.panes is None:
            yield from FromColumns(self.schema, NO_PANE).bundles(iter([self.rows]))
            return
        for pane, back, rows in split_panes(self.rows, self.panes):
            for bundle in FromColumns(self.schema, pane).bundles(iter([rows])):
                yield replace(bundle, retraction=back)


@dataclass
class ColumnReader:
    """Reads columns as columns. `windows` are to be applied to them; the last of these is left to who reads on.

    >>> from headrace.model.windows import FixedWindows
    >>> rows = pa.record_batch({"x": [1], TIME: [25]})
    >>> [bundle] = ColumnReader(None, (WindowOperator("tens", FixedWindows("10 us")),)).bundles(iter([rows]))
    >>> bundle.placed().rows.to_pylist()
    [{'x': 1, '__time': 25, '__start': 20, '__end': 30}]
    """

    schema: Schema | None
    windows: tuple[WindowOperator, ...] = ()

    def bundles(self, batches: Iterator[pa.RecordBatch]) -> Iterator[ColumnBundle]:
        for batch in batches:
            bundle = ColumnBundle(batch, self.schema)
            for window in self.windows:
                bundle = ColumnBundle(without_bounds(bundle.placed().rows), self.schema, window=window)
            yield bundle


@runtime_checkable
class Columnar(Protocol):
    """An output that takes columns without making objects of them."""

    def add_columns(self, bundle: ColumnBundle) -> Iterator[pa.RecordBatch]: ...


def _in_windows(rows: pa.RecordBatch, window: WindowOperator) -> pa.RecordBatch:
    if isinstance(window.window, GlobalWindows):
        return rows
    index, start, end = window.assign(np.asarray(rows.column(TIME).fill_null(MIN_TIME)))
    if not is_identity(index, rows.num_rows):
        rows = rows.take(pa.array(index))
    return with_bounds(rows, start, end)


def with_bounds(rows: pa.RecordBatch, start: Int64Array, end: Int64Array) -> pa.RecordBatch:
    """Returns rows with these bounds of their windows, in place of those they have."""
    return without_bounds(rows).append_column(START, pa.array(start)).append_column(END, pa.array(end))


def without_bounds(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Returns rows without the bounds of their windows."""
    return rows.drop_columns([name for name in (START, END) if name in rows.schema.names])


def split_panes(rows: pa.RecordBatch, panes: pa.RecordBatch) -> Iterator[tuple[PaneInfo, bool, pa.RecordBatch]]:
    """Groups rows by their pane, in order within each; retractions come before what replaces them."""
    if not rows.num_rows:
        return
    kinds = np.stack([np.asarray(panes.column(name)).astype(np.int64) for name in PANE_COLUMNS])
    if (kinds == kinds[:, :1]).all():
        order, starts = np.arange(rows.num_rows), np.zeros(1, np.int64)
    else:
        order = np.lexsort(kinds[::-1])
        changes = (kinds[:, order][:, 1:] != kinds[:, order][:, :-1]).any(axis=0)
        starts = np.concatenate([[0], np.flatnonzero(changes) + 1])
        rows = rows.take(pa.array(order))
    edges = [*starts.tolist(), len(order)]
    for number in reversed(range(len(starts))):
        first, last = edges[number], edges[number + 1]
        back, timing, index, on_time_index, is_first, is_last = kinds[:, order[first]].tolist()
        pane = PaneInfo(TIMINGS[timing], index, on_time_index, bool(is_first), bool(is_last))
        yield pane, bool(back), rows.slice(first, last - first)


def pair_bundle(rows: pa.RecordBatch, pane: PaneInfo, *, global_windows: bool, retraction: bool) -> Bundle:
    """Makes a bundle of pairs from rows of keys and values that came out of a grouping."""
    keys = decode_keys(rows.column(KEY), rows.column(SPELLING))
    return Bundle(
        list(zip(keys, decode_cells(rows.column(VALUE)), strict=True)),
        np.asarray(rows.column(TIME)),
        None if global_windows else np.asarray(rows.column(START)),
        None if global_windows else np.asarray(rows.column(END)),
        pane,
        retraction=retraction,
    )
