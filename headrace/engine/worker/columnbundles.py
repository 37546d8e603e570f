"""Bundles of columns: elements from a source or a grouping before a function asks for Python objects.

Outputs that know columns take them as they are. Functions and all other outputs get bundles of Python elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress, groupby
from typing import TYPE_CHECKING, Any, Final, Protocol, get_args, runtime_checkable

import numpy as np
import pyarrow as pa

from headrace.engine.columns.arrays import is_identity
from headrace.engine.worker.bundles import BUNDLE_SIZE, Bundle
from headrace.engine.worker.hidden import END, START, TIME
from headrace.engine.worker.reusedrows import can_share, results_of
from headrace.engine.worker.usedcolumns import has_plain_attributes
from headrace.model.panes import NO_PANE, PaneInfo, Timing
from headrace.model.schema import Schema, column_values, row_type, rows_schema
from headrace.model.times import MIN_TIME, Int64Array
from headrace.model.windows import GlobalWindows

if TYPE_CHECKING:
    from headrace.engine.worker.operators import WindowOperator

RETRACTION: Final = "retraction"
"""The column, of panes and of rows on their way to a shard, that tells whether a row takes an earlier one back."""
PANE_COLUMNS: Final = (RETRACTION, "timing", "index", "on_time_index", "is_first", "is_last")
"""The columns that tell panes of one window apart."""
TIMINGS: Final[tuple[Timing, ...]] = get_args(Timing)
"""What the codes in the column `timing` mean."""


@dataclass
class ColumnBundle(Sequence[Any]):
    """Rows of an element's own columns, TIME and, unless windows are global, START and END; `panes`: PANE_COLUMNS.

    Without `panes` all are of one pane. As a sequence it has the elements; what was decoded once, columns by name and
    elements, is kept.

    >>> from headrace.engine.worker.operators import WindowOperator
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
    pane: PaneInfo = NO_PANE
    decoded: dict[str, list[Any]] = field(default_factory=dict, init=False, compare=False, repr=False)
    _elements: list[Any] | None = field(default=None, init=False, compare=False, repr=False)

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.rows.num_rows  # type: ignore[no-any-return]

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, position: Any) -> Any:
        return self.elements[position]

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
            yield from (piece.whole() for piece in self.pieces())
            return
        for pane, back, rows in split_panes(self.rows, self.panes):
            for piece in ColumnBundle(rows, self.schema, pane=pane).pieces():
                yield replace(piece.whole(), retraction=back)

    def pieces(self) -> Iterator[ColumnBundle]:
        """Gives the rows, which are of one pane, in pieces of the size of bundles, with their windows assigned."""
        rows = self.placed().rows
        for at in range(0, rows.num_rows, BUNDLE_SIZE):
            yield ColumnBundle(rows.slice(at, BUNDLE_SIZE), self.schema, pane=self.pane)

    def values(self, name: str) -> list[Any]:
        """Returns a column as Python objects."""
        if name not in self.decoded:
            self.decoded[name] = column_values(self.rows.column(name))
        return self.decoded[name]

    @property
    def elements(self) -> list[Any]:
        """The elements as Python objects."""
        if self._elements is None:
            names = [name for name in self.rows.schema.names if name not in (TIME, START, END)]
            # Of elements whose other columns nobody reads, there are Rows of those that somebody does.
            known = self.schema is not None and len(names) == len(self.schema.names)
            schema = self.schema if known else rows_schema(pa.schema([self.rows.schema.field(name) for name in names]))
            assert schema is not None
            no_columns = [()] * self.size
            self._elements = schema.of_parts([self.values(name) for name in names]) if names else no_columns
        return self._elements

    def whole(self) -> Bundle:
        """Returns the elements, which are of one pane, as a bundle of Python objects."""
        return self.with_elements(self.elements)

    def with_elements(self, elements: list[Any]) -> Bundle:
        """Returns a bundle of other elements, one for one, with the same times and windows."""
        time = self.rows.column(TIME)
        times = (
            None if time.null_count == len(time) else np.asarray(time.fill_null(MIN_TIME) if time.null_count else time)
        )
        bundle = Bundle(elements, times, pane=self.pane, origins=(self,))
        if START in self.rows.schema.names:
            bundle.starts, bundle.ends = np.asarray(self.rows.column(START)), np.asarray(self.rows.column(END))
        return bundle

    def seen(self, used: frozenset[str] | None) -> tuple[Iterator[Any], Iterator[Any]]:
        """Gives the elements to a function that uses only these attributes of them, and the iterator that counts them.

        Such a function gets Rows that have no other columns. If None are known, it gets the elements themselves.
        """
        if used is None or not self._has(used):
            cursor = iter(self.elements)
            return cursor, cursor
        names, parts, cursor = self._parts(used)
        return map(row_type(names), parts) if names else cursor, cursor

    def results(
        self, fn: Callable[..., Any], used: frozenset[str] | None, *, in_turn: bool
    ) -> tuple[Iterator[Any], Iterator[Any]]:
        """Gives what a function returns for each element, of which it uses only these attributes, and what counts them.

        Where they can, all calls share a row; `in_turn`: each result is used up before the next call.
        """
        if not used or not self._has(used) or not can_share(fn, used, in_turn=in_turn):
            elements, cursor = self.seen(used)
            return map(fn, elements), cursor
        names, parts, cursor = self._parts(used)
        return results_of(fn, names, cursor if len(names) == 1 else parts), cursor

    def _has(self, used: frozenset[str]) -> bool:
        """Returns whether these attributes of elements are columns."""
        return used.issubset(self.rows.schema.names) and has_plain_attributes(self.schema)

    def _parts(self, used: frozenset[str]) -> tuple[tuple[str, ...], Iterator[tuple[Any, ...]], Iterator[Any]]:
        """Returns names, tuples of the values of these columns, and the iterator that counts the tuples."""
        names = tuple(name for name in self.rows.schema.names if name in used)
        columns = [self.values(name) for name in names]
        cursor = iter(columns[0] if columns else [()] * self.size)
        return names, zip(cursor, *columns[1:], strict=True), cursor

    def filter(self, mask: list[bool]) -> ColumnBundle:
        """Returns a bundle of the rows for which the mask is true."""
        passed = ColumnBundle(self.rows.filter(pa.array(mask, pa.bool_())), self.schema, pane=self.pane)
        passed.decoded.update((name, list(compress(values, mask))) for name, values in self.decoded.items())
        passed._elements = None if self._elements is None else list(compress(self._elements, mask))
        return passed

    @staticmethod
    def joined(bundles: list[ColumnBundle]) -> Iterator[ColumnBundle]:
        """Joins bundles without `panes` of one collection: neighbours whose columns and pane are alike become one."""
        for (_, schema, pane), alike in groupby(
            bundles, lambda bundle: (bundle.rows.schema, bundle.schema, bundle.pane)
        ):
            yield ColumnBundle(pa.concat_batches([bundle.rows for bundle in alike]), schema, pane=pane)


@dataclass
class ColumnReader:
    """Reads columns as columns. `windows` are to be applied to them; the last of these is left to who reads on.

    >>> from headrace.engine.worker.operators import WindowOperator
    >>> from headrace.model.windows import FixedWindows
    >>> rows = pa.record_batch({"x": [1], TIME: [25]})
    >>> [bundle] = ColumnReader(None, (WindowOperator("tens", FixedWindows("10 us")),)).bundles(iter([rows]))
    >>> bundle.placed().rows.to_pylist()
    [{'x': 1, '__time': 25, '__start': 20, '__end': 30}]
    """

    schema: Schema | None
    windows: tuple[WindowOperator, ...] = ()
    pane: PaneInfo = NO_PANE

    def bundles(self, batches: Iterator[pa.RecordBatch]) -> Iterator[ColumnBundle]:
        for batch in batches:
            bundle = ColumnBundle(batch, self.schema, pane=self.pane)
            for window in self.windows:
                bundle = replace(bundle, rows=without_bounds(bundle.placed().rows), window=window)
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
