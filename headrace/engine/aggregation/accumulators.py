"""What windows hold of their values: lists of them, or accumulators of a CombineFn, as objects or as columns.

Each kind is a column by slot, a slot being a window's place in the table of windows. When to add, merge or clear is for
the shard to decide.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.engine.aggregation.kernels import kernels_of
from headrace.engine.aggregation.vectors import Vectors, load_accumulator
from headrace.engine.columns.cells import decode_cells, encode_cells
from headrace.model.algebra import CombineFn
from headrace.model.times import Int64Array


@dataclass(frozen=True)
class Incoming:
    """Rows to be added: their cells and times, and which of them take back a value that was added before."""

    cells: pa.BinaryArray
    times: Int64Array
    back: npt.NDArray[np.bool_] | None = None

    def signed(self) -> list[bool]:
        return [False] * len(self.cells) if self.back is None else self.back.tolist()


class Accumulators(Protocol):
    """A column of what windows hold. Runs: slot i takes the rows from starts[i] up to starts[i + 1]."""

    def reserve(self, slots: int) -> None:
        """Makes room for so many slots in all; new ones are empty."""

    def add(self, slots: Int64Array, starts: Int64Array, rows: Incoming) -> Accumulators:
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


def accumulators(fn: CombineFn[Any, Any, Any] | None, *, lifted: bool, retractable: bool) -> Accumulators:
    """The column for an aggregation, or for grouping without one.

    `lifted`: rows come as accumulators, not as values. `retractable`: some rows take back earlier ones.

    >>> from headrace.model.algebra import SumFn
    >>> column = accumulators(SumFn(), lifted=False, retractable=True)
    >>> column.reserve(2)
    >>> rows = Incoming(encode_cells([1, 2, 3, 1]), np.zeros(4, np.int64), np.array([False, False, False, True]))
    >>> column = column.add(np.array([0, 1]), np.array([0, 2]), rows)
    >>> decode_cells(column.results(np.array([0, 1])))
    [3, 2]
    """
    if lifted and retractable:
        raise ValueError(
            "accumulators cannot be taken back, only values: an input with retractions must not be combined before it "
            "is grouped; leave lifted=False"
        )
    if fn is None:
        return Lists()
    if retractable and not fn.invertible:
        return Replays(fn)
    kernels = kernels_of(fn)
    return Folds(fn, lifted) if kernels is None else Vectors(fn, kernels, lifted)


class Lists:
    """The values themselves, in the order in which they came; those of merged windows one window after the other."""

    def __init__(self) -> None:
        self._lists: list[list[Any]] = []

    def reserve(self, slots: int) -> None:
        self._lists += [[] for _ in range(slots - len(self._lists))]

    def add(self, slots: Int64Array, starts: Int64Array, rows: Incoming) -> Lists:
        values, back = self._values(rows), rows.signed()
        for slot, (first, last) in zip(slots.tolist(), _runs(starts, len(values)), strict=True):
            if rows.back is None:
                self._lists[slot] += values[first:last]
                continue
            for value, taken_back in zip(values[first:last], back[first:last], strict=True):
                if taken_back:
                    self._take_back(self._lists[slot], value)
                else:
                    self._lists[slot].append(value)
        return self

    def merge(self, slots: Int64Array, starts: Int64Array) -> None:
        for target, *others in _split(slots, starts):
            for other in others:
                self._lists[target] += self._lists[other]

    def clear(self, slots: Int64Array) -> None:
        for slot in slots.tolist():
            self._lists[slot] = []

    def results(self, slots: Int64Array) -> pa.BinaryArray:
        return self.dump(slots)

    def dump(self, slots: Int64Array) -> pa.BinaryArray:
        return encode_cells([self._lists[slot] for slot in slots.tolist()])

    def load(self, slots: Int64Array, cells: pa.BinaryArray) -> Lists:
        for slot, values in zip(slots.tolist(), decode_cells(cells), strict=True):
            self._lists[slot] = values
        return self

    def _values(self, rows: Incoming) -> list[Any]:
        return decode_cells(rows.cells)

    def _take_back(self, values: list[Any], value: Any) -> None:
        if value not in values:
            raise ValueError(
                f"a retraction takes back {value!r}, which is not among the values of its window; after a stage that "
                'retracts, group with accumulation="accumulating" or "retracting", which keep their values'
            )
        values.remove(value)


class Replays(Lists):
    """The values, combined anew for every pane: for a CombineFn that cannot subtract, but has to."""

    def __init__(self, fn: CombineFn[Any, Any, Any]) -> None:
        super().__init__()
        self._fn = fn

    def results(self, slots: Int64Array) -> pa.BinaryArray:
        fn = self._fn
        return encode_cells([fn.finish(fn.add_all(fn.zero(), self._lists[slot])) for slot in slots.tolist()])

    def _values(self, rows: Incoming) -> list[Any]:
        return _timed(self._fn, rows)


class Folds:
    """Accumulators of any CombineFn, one Python object each."""

    def __init__(self, fn: CombineFn[Any, Any, Any], lifted: bool) -> None:
        self._fn, self._lifted = fn, lifted
        self._accs: list[Any] = []

    def reserve(self, slots: int) -> None:
        self._accs += [self._fn.zero() for _ in range(slots - len(self._accs))]

    def add(self, slots: Int64Array, starts: Int64Array, rows: Incoming) -> Folds:
        fn, accs, back = self._fn, self._accs, rows.signed()
        values = decode_cells(rows.cells) if self._lifted else _timed(fn, rows)
        for slot, (first, last) in zip(slots.tolist(), _runs(starts, len(values)), strict=True):
            if self._lifted:
                accs[slot] = reduce(fn.merge, [load_accumulator(fn, value) for value in values[first:last]], accs[slot])
            elif rows.back is None:
                accs[slot] = fn.add_all(accs[slot], values[first:last])
            else:
                for value, taken_back in zip(values[first:last], back[first:last], strict=True):
                    accs[slot] = (fn.subtract if taken_back else fn.add)(accs[slot], value)
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
            self._accs[slot] = load_accumulator(self._fn, value)
        return self


def _timed(fn: CombineFn[Any, Any, Any], rows: Incoming) -> list[Any]:
    values = decode_cells(rows.cells)
    return list(zip(rows.times.tolist(), values, strict=True)) if fn.timed else values


def _runs(starts: Int64Array, end: int) -> list[tuple[int, int]]:
    return list(pairwise([*starts.tolist(), end]))


def _split(slots: Int64Array, starts: Int64Array) -> list[list[int]]:
    every = slots.tolist()
    return [every[first:last] for first, last in _runs(starts, len(every))]
