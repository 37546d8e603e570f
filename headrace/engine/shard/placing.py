"""Assigns each row to the slot of its key and window: opens windows, numbers elements and merges sessions.

Rows of windows that are over are told apart here. What a row brings to its window, and when that fires, is the shard's.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from headrace.engine.columns.arrays import runs
from headrace.engine.shard.clocks import Clocks
from headrace.engine.shard.ordinals import Ordinals
from headrace.engine.shard.triggernodes import Mask
from headrace.engine.shard.windowbounds import bounds_of, window_names
from headrace.engine.shard.windowtable import NO_HOLD, WindowTable
from headrace.engine.worker.columnbundles import RETRACTION
from headrace.engine.worker.shuffle import KEY, SPELLING
from headrace.model.panes import Windowing
from headrace.model.times import MAX_TIME, MIN_TIME, Int64Array
from headrace.model.windows import CountWindows, Window, WindowFn, merge_overlapping

COUNT: Final = "count"
"""The column of how many elements a row stands for, if that is not one."""


def expired(deadline: Int64Array, lateness: int, watermark: int) -> Mask:
    """Judges which windows take no more elements, by their deadlines; at the end of time none does.

    >>> expired(np.array([10, 20]), 5, watermark=15).tolist()
    [True, False]
    """
    return np.minimum(deadline + lateness, MAX_TIME) <= watermark


class SlotAssigner:
    """Finds or opens the windows of rows in a table. `ordinals` is for CountWindows."""

    def __init__(self, windowing: Windowing, table: WindowTable) -> None:
        self.ordinals = Ordinals()
        self._windowing, self._table = windowing, table
        window = windowing.window
        self.size = window.n if isinstance(window, CountWindows) else None
        # A count window is over when it is full, whatever the watermark is.
        self.lateness = windowing.allowed_lateness if self.size is None else 0

    def late(self, rows: pa.RecordBatch, watermark: int) -> Mask:
        """Judges which rows are late: their windows take no more elements."""
        if self.size is not None:
            return np.full(rows.num_rows, watermark >= MAX_TIME)
        return expired(bounds_of(rows)[1], self.lateness, watermark)

    def place(self, rows: pa.RecordBatch, clocks: Clocks) -> Int64Array:
        """Returns the slot of each row, -1 for a retraction of what was in a session that has finished."""
        if self.size is not None:
            return self._numbered(rows, self.size)
        start, end = bounds_of(rows)
        if not self._windowing.window.merging:
            return self._found(rows, start, end, end)
        if RETRACTION not in rows.schema.names:
            return self._merged(rows, start, end, clocks)
        slots, back = np.full(rows.num_rows, -1, np.int64), np.asarray(rows.column(RETRACTION))
        # What is taken back came in an earlier step, so it is in a session that was open before this one, or in none.
        taken = np.flatnonzero(back)
        taken = taken[self._covering(rows, taken, start, end) >= 0]
        if not back.all():
            slots[~back] = self._merged(rows.filter(pa.array(~back)), start[~back], end[~back], clocks)
        slots[taken] = self._covering(rows, taken, start, end)
        return slots

    def _found(self, rows: pa.RecordBatch, start: Int64Array, end: Int64Array, deadline: Int64Array) -> Int64Array:
        slots = self._table.find(rows.column(KEY), start, end)
        missing = np.flatnonzero(slots < 0)
        if len(missing):
            at = pa.array(missing)
            code, count = _codes(rows.column(KEY).take(at), start[missing], end[missing])
            first = missing[_first(code, count)]
            opened = self._table.open(*_keys(rows, first), start[first], end[first], deadline[first])
            slots[missing] = opened[code]
        return slots

    def _numbered(self, rows: pa.RecordBatch, size: int) -> Int64Array:
        encoded = rows.column(KEY).dictionary_encode()
        code, keys = np.asarray(encoded.indices), encoded.dictionary
        more = np.bincount(code, minlength=len(keys))
        before = self.ordinals.count(keys, more)
        after = before + more
        order, starts = runs(code)
        rank = np.empty(len(code), np.int64)
        rank[order] = np.arange(len(code)) - np.repeat(starts, np.diff([*starts, len(code)]))
        start = (before[code] + rank) // size * size
        end = start + size
        deadline = np.where(end <= after[code], MIN_TIME, MAX_TIME)
        slots = self._found(rows, start, end, deadline)
        self._table.deadline[slots] = deadline
        return slots

    def _covering(self, rows: pa.RecordBatch, which: Int64Array, start: Int64Array, end: Int64Array) -> Int64Array:
        """Returns the slots of the sessions that these of the rows lie in, -1 where there is none."""
        table = self._table
        slots, at = table.of_keys(rows.column(KEY).take(pa.array(which)))
        inside = (table.start[slots] <= start[which[at]]) & (end[which[at]] <= table.end[slots])
        found = np.full(len(which), -1, np.int64)
        found[at[inside][::-1]] = slots[inside][::-1]  # of several, the one that began first
        return found

    def _merged(self, rows: pa.RecordBatch, start: Int64Array, end: Int64Array, clocks: Clocks) -> Int64Array:
        table = self._table
        encoded = rows.column(KEY).dictionary_encode()
        old, old_code = table.of_keys(encoded.dictionary)
        label, low, high = self._labels(
            np.concatenate([old_code, np.asarray(encoded.indices)]),
            np.concatenate([table.start[old], start]),
            np.concatenate([table.end[old], end]),
        )
        slot_of = np.full(len(low), -1, np.int64)
        old_label, new_label = label[: len(old)], label[len(old) :]
        if len(old):
            self._grow(old, old_label, low, high, clocks, slot_of)
        first = _first(new_label, len(low))
        missing = np.flatnonzero(slot_of < 0)
        missing = missing[np.argsort(first[missing])]  # windows are numbered in order of their first elements
        opened = first[missing]
        slot_of[missing] = table.open(*_keys(rows, opened), low[missing], high[missing], high[missing])
        return slot_of[new_label]

    def _grow(
        self, old: Int64Array, label: Int64Array, low: Int64Array, high: Int64Array, clocks: Clocks, slot_of: Int64Array
    ) -> None:
        """Extends open windows to the merged ones they are part of; those are new unless one had the same bounds."""
        table = self._table
        order = np.lexsort((table.seq[old], label))
        old, label = old[order], label[order]
        _, starts = runs(label)
        same = (table.start[old] == low[label]) & (table.end[old] == high[label])
        panes = [
            np.add.reduceat(np.where(same, column[old], 0), starts) for column in (table.index, table.on_time_index)
        ]
        sizes = np.diff([*starts, len(old)])
        several = np.repeat(sizes > 1, sizes)
        grown = np.flatnonzero(several | ~same)
        if len(grown):
            _, of_run = runs(label[grown])
            table.merge_triggers(old[grown], of_run, high[label[grown][of_run]], clocks)
        if several.any():
            parts = np.flatnonzero(several)
            table.merge(old[parts], runs(label[parts])[1], latest=self._windowing.timestamp_combiner == "latest")
        into, label = old[starts], label[starts]
        table.index[into], table.on_time_index[into] = panes
        table.start[into], table.end[into], table.deadline[into] = low[label], high[label], high[label]
        if self._windowing.timestamp_combiner == "end_of_window":
            table.hold[into] = np.where(table.hold[into] == NO_HOLD, NO_HOLD, high[label] - 1)
        table.touch(into)
        slot_of[label] = into

    def _labels(
        self, code: Int64Array, start: Int64Array, end: Int64Array
    ) -> tuple[Int64Array, Int64Array, Int64Array]:
        """Returns the number of each window's merged window, and the bounds of merged windows."""
        window = self._windowing.window
        if type(window).merge is WindowFn.merge:
            return merge_overlapping(code, start, end)
        label = np.empty(len(code), np.int64)
        bounds: list[tuple[int, int]] = []
        order, starts = runs(code)
        for of_key in np.split(order, starts[1:]):
            windows = [Window(a, b) for a, b in zip(start[of_key].tolist(), end[of_key].tolist(), strict=True)]
            distinct = list(dict.fromkeys(windows))
            number_of: dict[Window, int] = {}
            for group in window.merge(distinct):
                parts = [distinct[position] for position in group]
                number_of |= dict.fromkeys(parts, len(bounds))
                bounds.append((min(part.start for part in parts), max(part.end for part in parts)))
            label[of_key] = [number_of[one] for one in windows]
        low, high = np.array(bounds, np.int64).reshape(-1, 2).T
        return label, low, high


def _codes(keys: pa.BinaryArray, start: Int64Array, end: Int64Array) -> tuple[Int64Array, int]:
    """Numbers the windows of rows in order of their first rows; returns the numbers and how many windows there are."""
    names = window_names(keys, start, end).dictionary_encode()
    return np.asarray(names.indices), len(names.dictionary)


def _first(code: Int64Array, count: int) -> Int64Array:
    """Returns the position of each code's first row."""
    first = np.full(count, len(code), np.int64)
    first[code[::-1]] = np.arange(len(code))[::-1]
    return first


def _keys(rows: pa.RecordBatch, positions: Int64Array) -> tuple[pa.BinaryArray, pa.BinaryArray]:
    at = pa.array(positions)
    return rows.column(KEY).take(at), rows.column(SPELLING).take(at)
