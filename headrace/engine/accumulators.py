"""What windows hold of their values: lists of them, accumulators of a CombineFn, or sums as plain int64 columns.

Each kind is a column by slot, a slot being a window's place in the table of windows. When to add, merge or clear, the shard
decides.
"""

from __future__ import annotations

from functools import reduce
from itertools import pairwise
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from headrace.engine.cells import decode_cells, encode_cells, numbers_of
from headrace.model.algebra import CombineFn, CountFn, SumFn
from headrace.model.keys import fixed_width
from headrace.model.times import Int64Array

_LARGEST: Final = 2**63 - 1


class Accumulators(Protocol):
    """A column of what windows hold. Runs: slot i takes the rows from starts[i] up to starts[i + 1]."""

    def reserve(self, slots: int) -> None:
        """Makes room for so many slots in all; new ones are empty."""

    def add(self, slots: Int64Array, starts: Int64Array, cells: pa.BinaryArray, times: Int64Array) -> Accumulators:
        """Adds runs of rows; returns the column, perhaps as another kind that has room for them."""

    def merge(self, slots: Int64Array, starts: Int64Array) -> None:
        """Merges runs of slots, each into its first."""

    def clear(self, slots: Int64Array) -> None:
        """Empties slots."""

    def results(self, slots: Int64Array) -> pa.BinaryArray:
        """What a pane says of each slot, as cells that later changes cannot reach."""

    def dump(self, slots: Int64Array) -> pa.BinaryArray:
        """What the slots hold, as cells."""

    def load(self, slots: Int64Array, cells: pa.BinaryArray) -> Accumulators:
        """Puts back what `dump` wrote; returns the column, perhaps as another kind."""


def accumulators(fn: CombineFn[Any, Any, Any] | None, *, lifted: bool) -> Accumulators:
    """The column for an aggregation, or for grouping without one. `lifted`: rows come as accumulators, not as values.

    >>> column = accumulators(SumFn(), lifted=False)
    >>> column.reserve(2)
    >>> column = column.add(np.array([0, 1]), np.array([0, 2]), encode_cells([1, 2, 3]), np.zeros(3, np.int64))
    >>> decode_cells(column.results(np.array([0, 1])))
    [3, 3]
    """
    if fn is None:
        return Lists()
    return Sums(fn, lifted) if type(fn) in (SumFn, CountFn) else Folds(fn, lifted)


class Lists:
    """The values themselves, in the order in which they came; those of merged windows one window after the other."""

    def __init__(self) -> None:
        self._lists: list[list[Any]] = []

    def reserve(self, slots: int) -> None:
        self._lists += [[] for _ in range(slots - len(self._lists))]

    def add(self, slots: Int64Array, starts: Int64Array, cells: pa.BinaryArray, times: Int64Array) -> Lists:
        values = decode_cells(cells)
        for slot, (first, last) in zip(slots.tolist(), _runs(starts, len(values)), strict=True):
            self._lists[slot] += values[first:last]
        return self

    def merge(self, slots: Int64Array, starts: Int64Array) -> None:
        for target, *others in _split(slots, starts):
            for other in others:
                self._lists[target] += self._lists[other]

    def clear(self, slots: Int64Array) -> None:
        for slot in slots.tolist():
            self._lists[slot] = []

    def results(self, slots: Int64Array) -> pa.BinaryArray:
        return encode_cells([self._lists[slot] for slot in slots.tolist()])

    def dump(self, slots: Int64Array) -> pa.BinaryArray:
        return self.results(slots)

    def load(self, slots: Int64Array, cells: pa.BinaryArray) -> Lists:
        for slot, values in zip(slots.tolist(), decode_cells(cells), strict=True):
            self._lists[slot] = values
        return self


class Folds:
    """Accumulators of any CombineFn, one Python object each."""

    def __init__(self, fn: CombineFn[Any, Any, Any], lifted: bool) -> None:
        self._fn, self._lifted = fn, lifted
        self._accs: list[Any] = []

    def reserve(self, slots: int) -> None:
        self._accs += [self._fn.zero() for _ in range(slots - len(self._accs))]

    def add(self, slots: Int64Array, starts: Int64Array, cells: pa.BinaryArray, times: Int64Array) -> Folds:
        fn, accs, values = self._fn, self._accs, decode_cells(cells)
        if fn.timed and not self._lifted:
            values = list(zip(times.tolist(), values, strict=True))
        for slot, (first, last) in zip(slots.tolist(), _runs(starts, len(values)), strict=True):
            if self._lifted:
                accs[slot] = reduce(fn.merge, map(fn.load, values[first:last]), accs[slot])
            else:
                accs[slot] = fn.add_all(accs[slot], values[first:last])
        return self

    def merge(self, slots: Int64Array, starts: Int64Array) -> None:
        for target, *others in _split(slots, starts):
            self._accs[target] = reduce(self._fn.merge, (self._accs[other] for other in others), self._accs[target])

    def clear(self, slots: Int64Array) -> None:
        for slot in slots.tolist():
            self._accs[slot] = self._fn.zero()

    def results(self, slots: Int64Array) -> pa.BinaryArray:
        return encode_cells([self._fn.finish(self._accs[slot]) for slot in slots.tolist()])

    def dump(self, slots: Int64Array) -> pa.BinaryArray:
        return encode_cells([self._fn.dump(self._accs[slot]) for slot in slots.tolist()])

    def load(self, slots: Int64Array, cells: pa.BinaryArray) -> Folds:
        for slot, value in zip(slots.tolist(), decode_cells(cells), strict=True):
            self._accs[slot] = self._fn.load(value)
        return self


class Sums:
    """Sums and counts as int64, without a Python object per window; what does not fit moves it all to `Folds`."""

    def __init__(self, fn: CombineFn[Any, Any, Any], lifted: bool) -> None:
        self._fn, self._lifted = fn, lifted
        self._counting = type(fn) is CountFn and not lifted
        self._totals = np.zeros(0, np.int64)
        self._peak = 0  # no total is larger than this, of either sign

    def reserve(self, slots: int) -> None:
        more = max(slots - len(self._totals), 0)
        self._totals = np.concatenate([self._totals, np.zeros(more, np.int64)])

    def add(self, slots: Int64Array, starts: Int64Array, cells: pa.BinaryArray, times: Int64Array) -> Accumulators:
        numbers = np.ones(len(cells), np.int64) if self._counting else _numbers(cells)
        if numbers is None or not self._fits(_magnitude(numbers) * len(numbers)):
            return self._widened().add(slots, starts, cells, times)
        if len(slots):
            self._totals[slots] += np.add.reduceat(numbers, starts)
        return self

    def merge(self, slots: Int64Array, starts: Int64Array) -> None:
        # The peak bounds the sum of all that was ever added, and so any sum of totals.
        self._totals[slots[starts]] = np.add.reduceat(self._totals[slots], starts)

    def clear(self, slots: Int64Array) -> None:
        self._totals[slots] = 0

    def results(self, slots: Int64Array) -> pa.BinaryArray:
        return fixed_width(b"i", self._totals[slots]) if len(slots) else pa.array([], pa.binary())

    def dump(self, slots: Int64Array) -> pa.BinaryArray:
        return self.results(slots)

    def load(self, slots: Int64Array, cells: pa.BinaryArray) -> Accumulators:
        numbers = _numbers(cells)
        if numbers is None or not self._fits(_magnitude(numbers) * len(numbers)):
            return self._widened().load(slots, cells)
        self._totals[slots] = numbers
        return self

    def _fits(self, more: int) -> bool:
        if self._peak + more > _LARGEST:
            self._peak = _magnitude(self._totals) * len(self._totals)
        self._peak += more
        return self._peak <= _LARGEST

    def _widened(self) -> Folds:
        folds = Folds(self._fn, self._lifted)
        folds.reserve(len(self._totals))
        every = np.arange(len(self._totals))
        return folds.load(every, self.dump(every))


def _numbers(cells: pa.BinaryArray) -> Int64Array | None:
    return numbers_of(cells, b"i") if len(cells) else np.zeros(0, np.int64)


def _magnitude(numbers: Int64Array) -> int:
    return max(-int(numbers.min(initial=0)), int(numbers.max(initial=0)))


def _runs(starts: Int64Array, end: int) -> list[tuple[int, int]]:
    return list(pairwise([*starts.tolist(), end]))


def _split(slots: Int64Array, starts: Int64Array) -> list[list[int]]:
    every = slots.tolist()
    return [every[first:last] for first, last in _runs(starts, len(every))]
