"""Per-window values by slot: raw lists, or accumulators of a CombineFn, as objects or as arrays.

A slot is a window's place in the table of windows. When to add, merge or clear is for the shard to decide.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import reduce
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.engine.aggregation.arrayaccumulators import ArrayAccumulators, load_accumulator
from headrace.engine.aggregation.kernels import kernels_of
from headrace.engine.columns.cells import decode_cells, encode_cells
from headrace.model.algebra import CombineFn
from headrace.model.times import Int64Array


@dataclass(frozen=True)
class IncomingRows:
    """Rows to be added: their cells and times, and which of them are retractions of a value that was added before."""

    cells: pa.BinaryArray
    times: Int64Array
    retracted: npt.NDArray[np.bool_] | None = None

    def retractions(self) -> list[bool]:
        """Returns for each row whether it is a retraction."""
        return [False] * len(self.cells) if self.retracted is None else self.retracted.tolist()


class Accumulators(Protocol):
    """A column of per-window values. Runs: slot i takes the rows from starts[i] up to starts[i + 1]."""

    def reserve(self, slots: int) -> None:
        """Makes room for so many slots in all; new ones are empty."""

    def add(self, slots: Int64Array, starts: Int64Array, rows: IncomingRows) -> Accumulators:
        """Adds runs of rows; returns the column, perhaps as another kind that can represent them."""

    def merge(self, slots: Int64Array, starts: Int64Array) -> None:
        """Merges runs of slots, each into its first."""

    def clear(self, slots: Int64Array) -> None:
        """Empties slots."""

    def results(self, slots: Int64Array) -> pa.BinaryArray:
        """Returns the result of each slot for a pane, as cells that later changes do not affect."""

    def dump(self, slots: Int64Array) -> pa.BinaryArray:
        """Returns the contents of slots as cells."""

    def load(self, slots: Int64Array, cells: pa.BinaryArray) -> Accumulators:
        """Restores what `dump` wrote; returns the column, perhaps as another kind."""


class RowKind(Enum):
    """Kinds of rows that arrive at a grouping. Accumulators cannot be taken back, so there are three kinds."""

    VALUES = "values"
    ACCUMULATORS = "accumulators"
    """Values that were combined before they were sent."""
    SIGNED_VALUES = "signed values"
    """Values of which some take back earlier ones."""


def accumulators(fn: CombineFn[Any, Any, Any] | None, rows: RowKind = RowKind.VALUES) -> Accumulators:
    """Makes the column for an aggregation of such rows, or for grouping without an aggregation.

    >>> from headrace.model.algebra import SumFn
    >>> column = accumulators(SumFn(), RowKind.SIGNED_VALUES)
    >>> column.reserve(2)
    >>> rows = IncomingRows(encode_cells([1, 2, 3, 1]), np.zeros(4, np.int64), np.array([False, False, False, True]))
    >>> column = column.add(np.array([0, 1]), np.array([0, 2]), rows)
    >>> decode_cells(column.results(np.array([0, 1])))
    [3, 2]
    """
    if fn is None:
        return ValueLists()
    if rows is RowKind.SIGNED_VALUES and not fn.invertible:
        return ReplayedValues(fn)
    kernels, lifted = kernels_of(fn), rows is RowKind.ACCUMULATORS
    return ObjectAccumulators(fn, lifted) if kernels is None else ArrayAccumulators(fn, kernels, lifted)


class ValueLists:
    """The values themselves, in the order of arrival; those of merged windows one window after the other."""

    def __init__(self) -> None:
        self._lists: list[list[Any]] = []

    def reserve(self, slots: int) -> None:
        self._lists += [[] for _ in range(slots - len(self._lists))]

    def add(self, slots: Int64Array, starts: Int64Array, rows: IncomingRows) -> ValueLists:
        values, retractions = self._values(rows), rows.retractions()
        for slot, (first, last) in zip(slots.tolist(), _runs(starts, len(values)), strict=True):
            if rows.retracted is None:
                self._lists[slot] += values[first:last]
                continue
            for value, retracted in zip(values[first:last], retractions[first:last], strict=True):
                if retracted:
                    self._retract(self._lists[slot], value)
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

    def load(self, slots: Int64Array, cells: pa.BinaryArray) -> ValueLists:
        for slot, values in zip(slots.tolist(), decode_cells(cells), strict=True):
            self._lists[slot] = values
        return self

    def _values(self, rows: IncomingRows) -> list[Any]:
        return decode_cells(rows.cells)

    def _retract(self, values: list[Any], value: Any) -> None:
        if value not in values:
            raise ValueError(
                f"a retraction takes back {value!r}, which is not among the values of its window; after a stage that "
                'retracts, group with accumulation="accumulating" or "retracting", which keep their values'
            )
        values.remove(value)


class ReplayedValues(ValueLists):
    """The values, combined again for every pane: for a CombineFn that cannot subtract, of an input with retractions."""

    def __init__(self, fn: CombineFn[Any, Any, Any]) -> None:
        super().__init__()
        self._fn = fn

    def results(self, slots: Int64Array) -> pa.BinaryArray:
        fn = self._fn
        return encode_cells([fn.finish(fn.add_all(fn.zero(), self._lists[slot])) for slot in slots.tolist()])

    def _values(self, rows: IncomingRows) -> list[Any]:
        return _timed(self._fn, rows)


class ObjectAccumulators:
    """Accumulators of any CombineFn, one Python object each."""

    def __init__(self, fn: CombineFn[Any, Any, Any], lifted: bool) -> None:
        self._fn, self._lifted = fn, lifted
        self._accs: list[Any] = []

    def reserve(self, slots: int) -> None:
        self._accs += [self._fn.zero() for _ in range(slots - len(self._accs))]

    def add(self, slots: Int64Array, starts: Int64Array, rows: IncomingRows) -> ObjectAccumulators:
        fn, accs, retractions = self._fn, self._accs, rows.retractions()
        values = decode_cells(rows.cells) if self._lifted else _timed(fn, rows)
        for slot, (first, last) in zip(slots.tolist(), _runs(starts, len(values)), strict=True):
            if self._lifted:
                accs[slot] = reduce(fn.merge, [load_accumulator(fn, value) for value in values[first:last]], accs[slot])
            elif rows.retracted is None:
                accs[slot] = fn.add_all(accs[slot], values[first:last])
            else:
                for value, retracted in zip(values[first:last], retractions[first:last], strict=True):
                    accs[slot] = (fn.subtract if retracted else fn.add)(accs[slot], value)
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

    def load(self, slots: Int64Array, cells: pa.BinaryArray) -> ObjectAccumulators:
        for slot, value in zip(slots.tolist(), decode_cells(cells), strict=True):
            self._accs[slot] = load_accumulator(self._fn, value)
        return self


def _timed(fn: CombineFn[Any, Any, Any], rows: IncomingRows) -> list[Any]:
    values = decode_cells(rows.cells)
    return list(zip(rows.times.tolist(), values, strict=True)) if fn.timed else values


def _runs(starts: Int64Array, end: int) -> list[tuple[int, int]]:
    return list(pairwise([*starts.tolist(), end]))


def _split(slots: Int64Array, starts: Int64Array) -> list[list[int]]:
    every = slots.tolist()
    return [every[first:last] for first, last in _runs(starts, len(every))]
