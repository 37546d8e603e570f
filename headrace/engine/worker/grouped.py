"""Reads groups out of a shuffle: sorted rows become one group per key and window, merged where windows merge.

Rows arrive sorted by key and window, so a group is a run of rows and only one group is open at a time. A group too
large for memory is handed on while it is still being read.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import pairwise
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.engine.columns.cells import decode_cells, encode_cells, numbers_of
from headrace.engine.worker.blame import blame
from headrace.engine.worker.bundles import Bundle, Int64Array
from headrace.engine.worker.hidden import END, START, TIME
from headrace.engine.worker.shuffle import KEY, ORDER, SPELLING, VALUE
from headrace.engine.worker.spilled import SpilledValues
from headrace.model.algebra import CombineFn, CountFn, SumFn
from headrace.model.keys import decode_keys
from headrace.model.panes import ONLY_PANE, PaneInfo, Windowing
from headrace.model.windows import GLOBAL_WINDOW, CountWindows, Window, WindowFn, merge_overlapping

LARGE_GROUP: Final = 100_000
"""Rows from which on a group is streamed instead of gathered."""

_ONE_GROUP: Final[Int64Array] = np.zeros(1, np.int64)
GroupingKind = Literal["same", "overlapping", "custom", "counted"]
LargeBundles = Generator[Bundle, None, pa.RecordBatch | None]


def grouping_kind(window: WindowFn) -> GroupingKind:
    """Returns how rows of one key are grouped: by the same window, overlapping ones, a user's merge, or by number."""
    if isinstance(window, CountWindows):
        return "counted"
    if not window.merging:
        return "same"
    return "overlapping" if type(window).merge is WindowFn.merge else "custom"


def sort_columns(windowing: Windowing) -> list[str]:
    """Returns the columns by which a shuffle must sort rows for them to be grouped."""
    if grouping_kind(windowing.window) == "counted":
        return [KEY, TIME, ORDER]
    return [KEY] if windowing.is_global else [KEY, START, END]


def needs_times(windowing: Windowing) -> bool:
    """Returns whether grouping needs the time of each element."""
    return windowing.timestamp_combiner != "end_of_window" or grouping_kind(windowing.window) == "counted"


@dataclass
class SortedGroups:
    """Splits sorted rows into groups; its subclasses make elements of them."""

    label: str
    windowing: Windowing
    pane: PaneInfo = field(default=ONLY_PANE, kw_only=True)

    @property
    def kind(self) -> GroupingKind:
        return grouping_kind(self.windowing.window)

    def bundles(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Bundle]:
        open_rows: pa.RecordBatch | None = None
        for batch in batches:
            if not batch.num_rows:
                continue
            batch = self._without_ordinals(batch)
            rows = batch if open_rows is None else pa.concat_batches([open_rows, batch])
            starts = self._starts_of_groups(rows)
            last = int(starts[-1])
            if last:
                yield self.to_bundle(*self._merged_by_user(rows.slice(0, last), starts[:-1]))
            open_rows = self.compact(self._with_ordinals(rows).slice(last))
            if open_rows.num_rows >= LARGE_GROUP:
                open_rows = yield from self.stream_large(open_rows, batches)
        if open_rows is not None:  # one group, or those that came after a large one
            yield self.to_bundle(*self._merged_by_user(open_rows, self._starts_of_groups(open_rows)))

    def stream_large(self, rows: pa.RecordBatch, batches: Iterator[pa.RecordBatch]) -> LargeBundles:
        """Hands on an open group that has become large, and returns the rows after it; or returns the group's rows."""
        return rows
        yield

    def compact(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the rows of the open group, perhaps combined to fewer."""
        return rows

    def to_bundle(self, rows: pa.RecordBatch, starts: Int64Array) -> Bundle:
        """Makes elements of the groups that begin at these rows, each up to the next."""
        raise NotImplementedError

    def _starts_of_groups(self, rows: pa.RecordBatch) -> Int64Array:
        new = _changes(rows.column(KEY))
        if self.kind == "same" and START in rows.schema.names:
            new |= _changes(rows.column(START)) | _changes(rows.column(END))
        elif self.kind == "overlapping":
            label, _, _ = merge_overlapping(np.cumsum(new), *_bounds(rows))
            new |= np.diff(label, prepend=label[:1]) != 0
        elif self.kind == "counted":
            new |= _ordinals(rows) % self._size == 0
        new[0] = True
        return np.flatnonzero(new)

    @property
    def _size(self) -> int:
        assert isinstance(self.windowing.window, CountWindows)
        return self.windowing.window.n

    def _with_ordinals(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Returns rows that know their number within the key, for when those before them are gone."""
        return _with_start(rows, _ordinals(rows)) if self.kind == "counted" else rows

    def _without_ordinals(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Returns rows without the numbers that a grouping before this one gave them."""
        return _with_start(rows, np.zeros(rows.num_rows, np.int64)) if self.kind == "counted" else rows

    def placed(self, rows: pa.RecordBatch, starts: Int64Array) -> tuple[list[Any], Bundle]:
        """Returns the keys of the groups, and a bundle with each group's window and time."""
        firsts = rows.take(pa.array(starts))
        keys = decode_keys(firsts.column(KEY), firsts.column(SPELLING))
        placed = Bundle([], pane=self.pane, time=GLOBAL_WINDOW.max_timestamp())
        if START in rows.schema.names:
            start, end = _bounds(rows)
            placed.starts, placed.ends = np.minimum.reduceat(start, starts), np.maximum.reduceat(end, starts)
            if self.kind == "counted":
                placed.starts = _ordinals(rows)[starts]
                placed.ends = placed.starts + self._size
            placed.times = placed.ends - 1
        if needs_times(self.windowing):
            placed.times = self.extreme.reduceat(np.asarray(rows.column(TIME)), starts)
        return keys, placed

    @property
    def extreme(self) -> np.ufunc:
        """The function that picks a group's time among those of its elements."""
        return np.minimum if self.windowing.timestamp_combiner == "earliest" else np.maximum

    def summary(self, rows: pa.RecordBatch, value: pa.Array) -> pa.RecordBatch:
        """Makes one row for the rows of a group: its key, the window that spans theirs, and this value."""
        columns = dict(zip(rows.schema.names, rows.slice(0, 1).columns, strict=True))
        if START in columns:
            start, end = _bounds(rows)
            columns[START], columns[END] = pa.array([start.min()]), pa.array([end.max()])
        if TIME in columns:
            columns[TIME] = pa.array([self.extreme.reduce(np.asarray(rows.column(TIME)))])
        columns[VALUE] = value
        return pa.record_batch(list(columns.values()), schema=rows.schema)

    def _merged_by_user(self, rows: pa.RecordBatch, starts: Int64Array) -> tuple[pa.RecordBatch, Int64Array]:
        """Arranges rows of whole keys by the groups that a user's merge of windows makes of them."""
        if self.kind != "custom":
            return rows, starts
        start, end = (bound.tolist() for bound in _bounds(rows))
        order: list[int] = []
        edges = []
        for low, high in _slices(rows, starts):
            # It is asked about windows, not elements: how many share a window must not matter, as they may be combined.
            places: dict[Window, list[int]] = {}
            for i in range(low, high):
                places.setdefault(Window(start[i], end[i]), []).append(i)
            windows = list(places)
            for group in self.windowing.window.merge(windows):
                edges.append(len(order))
                order += [i for position in group for i in places[windows[position]]]
        return rows.take(pa.array(order, pa.int64())), np.array(edges, np.int64)


@dataclass
class GroupedValues(SortedGroups):
    """Makes (key, values) of each group, or (key, (time, value) pairs) where `timed`."""

    timed: bool = False

    def to_bundle(self, rows: pa.RecordBatch, starts: Int64Array) -> Bundle:
        keys, placed = self.placed(rows, starts)
        values = self.values(rows)
        lists = [values[low:high] for low, high in _slices(rows, starts)]
        return replace(placed, elements=list(zip(keys, lists, strict=True)))

    def values(self, rows: pa.RecordBatch) -> list[Any]:
        values = decode_cells(rows.column(VALUE))
        return list(zip(np.asarray(rows.column(TIME)).tolist(), values, strict=True)) if self.timed else values

    def stream_large(self, rows: pa.RecordBatch, batches: Iterator[pa.RecordBatch]) -> LargeBundles:
        if self.kind not in ("same", "overlapping"):
            return rows
        group = LargeGroup(self, rows, batches)
        if self.windowing.window.merging or needs_times(self.windowing):
            group.values.read_all()  # window and time are known only at the end
        (key,), placed = self.placed(group.summary(), _ONE_GROUP)
        yield replace(placed, elements=[(key, group.values)])
        group.values.read_all()
        group.values.discard()
        return group.rest()


@dataclass
class CombinedValues(SortedGroups):
    """Makes (key, aggregate) of each group. Rows are accumulators where `lifted`, else plain values."""

    fn: CombineFn[Any, Any, Any]
    lifted: bool

    def to_bundle(self, rows: pa.RecordBatch, starts: Int64Array) -> Bundle:
        with blame(self.label):
            keys, placed = self.placed(rows, starts)
            totals = self._sums(rows, starts)
            if totals is None:
                totals = list(map(self.fn.finish, self._accumulators(rows, starts)))
        return replace(placed, elements=list(zip(keys, totals, strict=True)))

    def compact(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        if not self.lifted or rows.num_rows == 1 or self.kind == "custom":
            return rows
        with blame(self.label):
            (acc,) = self._accumulators(rows, _ONE_GROUP)
            return self.summary(rows, encode_cells([self.fn.dump(acc)]))

    def _accumulators(self, rows: pa.RecordBatch, starts: Int64Array) -> Iterator[Any]:
        fn, cells = self.fn, decode_cells(rows.column(VALUE))
        if not self.lifted and fn.timed:
            cells = list(zip(np.asarray(rows.column(TIME)).tolist(), cells, strict=True))
        for low, high in _slices(rows, starts):
            if not self.lifted:
                yield fn.add_all(fn.zero(), cells[low:high])
            elif high - low == 1:
                yield fn.load(cells[low])
            else:
                yield reduce(fn.merge, map(fn.load, cells[low:high]))

    def _sums(self, rows: pa.RecordBatch, starts: Int64Array) -> list[Any] | None:
        """Sums small ints as arrays; returns None where that could overflow or does not apply."""
        if not self.lifted or type(self.fn) not in (SumFn, CountFn):
            return None
        numbers = numbers_of(rows.column(VALUE), b"i")
        if numbers is None or max(-int(numbers.min()), int(numbers.max())) * len(numbers) >= 2**63:
            return None
        return np.add.reduceat(numbers, starts).tolist()  # type: ignore[no-any-return]


class LargeGroup:
    """A group that is still being read: its first rows, and the batches in which it goes on."""

    def __init__(self, grouping: GroupedValues, rows: pa.RecordBatch, batches: Iterator[pa.RecordBatch]) -> None:
        self._grouping, self._batches = grouping, batches
        self._summary = grouping.summary(rows, rows.column(VALUE).slice(0, 1))
        self._rest: pa.RecordBatch | None = None
        self._ended = False
        self.values = SpilledValues(self._lists(rows))

    def summary(self) -> pa.RecordBatch:
        """Returns one row with the group's key, window and times as far as it was read."""
        return self._summary

    def rest(self) -> pa.RecordBatch | None:
        """Returns the rows after the group, once it was read to its end."""
        return self._rest

    def _lists(self, rows: pa.RecordBatch) -> Iterator[list[Any]]:
        yield self._grouping.values(rows)
        while not self._ended:
            batch = next(self._batches, None)
            if batch is None:
                self._ended = True
                return
            if not batch.num_rows:
                continue
            starts = self._grouping._starts_of_groups(pa.concat_batches([self._summary, batch]))
            count = batch.num_rows
            if len(starts) > 1:
                self._ended = True
                count = int(starts[1]) - 1
                self._rest = batch.slice(count)
            if count:
                part = batch.slice(0, count)
                self._summary = self._grouping.summary(
                    pa.concat_batches([self._summary, part]), self._summary.column(VALUE)
                )
                yield self._grouping.values(part)


def _slices(rows: pa.RecordBatch, starts: Int64Array) -> Iterator[tuple[int, int]]:
    """Gives where each group begins and ends."""
    edges = [*starts.tolist(), rows.num_rows]
    return pairwise(edges)


def _changes(column: pa.Array) -> npt.NDArray[np.bool_]:
    """Marks the values that differ from the one before."""
    new = np.zeros(len(column), np.bool_)
    if len(column) > 1:
        new[1:] = np.asarray(pc.not_equal(column.slice(1), column.slice(0, len(column) - 1)))
    return new


def _ordinals(rows: pa.RecordBatch) -> Int64Array:
    """Numbers the rows within each key, from the number in the START of its first row on."""
    at = np.arange(rows.num_rows)
    first = np.maximum.accumulate(np.where(_changes(rows.column(KEY)), at, 0))
    ordinals: Int64Array = at - first + np.asarray(rows.column(START))[first]
    return ordinals


def _with_start(rows: pa.RecordBatch, start: Int64Array) -> pa.RecordBatch:
    return rows.set_column(rows.schema.get_field_index(START), START, pa.array(start))


def _bounds(rows: pa.RecordBatch) -> tuple[Int64Array, Int64Array]:
    return np.asarray(rows.column(START)), np.asarray(rows.column(END))
