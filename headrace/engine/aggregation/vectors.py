"""Accumulators as columns of numbers, without a Python object per window; one aggregation, or several at once.

What does not fit, being no number or no int of 64 bits, moves all of it to accumulators that are objects, which read
and write the same cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.engine.aggregation.columnsfn import ColumnsFn
from headrace.engine.aggregation.kernels import Fn, Fold, Kernel, kernels_of
from headrace.engine.columns.cells import encode_cells
from headrace.engine.columns.numbercells import Mask, Numbers, Record, read_records, write_records
from headrace.model.algebra import CountFn, SumFn
from headrace.model.times import Int64Array

if TYPE_CHECKING:
    from headrace.engine.aggregation.accumulators import Accumulators, Incoming


class Vectors:
    """Accumulators of an aggregation that has kernels. `Folds` is what they move to."""

    def __init__(self, fn: Fn, kernels: Sequence[Kernel], lifted: bool) -> None:
        self._fn, self._kernels, self._lifted = fn, kernels, lifted
        self._several = isinstance(fn, ColumnsFn)
        self._folds = [[Fold(ufunc) for ufunc in kernel.ufuncs] for kernel in kernels]
        self._slots = 0

    def reserve(self, slots: int) -> None:
        self._slots = max(slots, self._slots)
        for fold in self._all():
            fold.reserve(slots)

    def add(self, slots: Int64Array, starts: Int64Array, rows: Incoming) -> Accumulators:
        count = len(rows.cells)
        parts = self._dumped(rows.cells) if self._lifted else self._lift(rows.cells, rows.back)
        if parts is None or not self._takes(parts):
            return self._widened().add(slots, starts, rows)
        self._put(np.repeat(slots, np.diff(starts, append=count)), parts)
        return self

    def add_values(self, index: Int64Array, columns: Sequence[Numbers]) -> bool:
        """Adds a value for each aggregation to the slots of `index`, if they fit."""
        parts = [kernel.lift(values, None) for kernel, values in zip(self._kernels, columns, strict=True)]
        if not self._takes(parts):
            return False
        self._put(index, parts)
        return True

    def merge(self, slots: Int64Array, starts: Int64Array) -> None:
        sizes = np.diff(starts, append=len(slots))
        others = np.ones(len(slots), np.bool_)
        others[starts] = False
        self._put(np.repeat(slots[starts], sizes)[others], self._parts(slots[others]))

    def clear(self, slots: Int64Array) -> None:
        for fold in self._all():
            fold.clear(slots)

    def results(self, slots: Int64Array) -> pa.BinaryArray:
        parts = self._parts(slots)
        results = [kernel.finish(each) for kernel, each in zip(self._kernels, parts, strict=True)]
        return write_records(results) if self._several else write_records(results, tag=b"")

    def dump(self, slots: Int64Array) -> pa.BinaryArray:
        return write_records([part for parts in self._parts(slots) for part in parts])

    def load(self, slots: Int64Array, cells: pa.BinaryArray) -> Accumulators:
        parts = self._dumped(cells)
        if parts is None or not self._takes(parts):
            return self._widened().load(slots, cells)
        self.clear(slots)
        self._put(slots, parts)
        return self

    def _all(self) -> list[Fold]:
        return [fold for folds in self._folds for fold in folds]

    def _parts(self, slots: Int64Array) -> list[list[Numbers]]:
        return [[fold.of(slots) for fold in folds] for folds in self._folds]

    def _takes(self, parts: Sequence[Sequence[Numbers]]) -> bool:
        each = zip(self._kernels, self._folds, parts, strict=True)
        return all([kernel.takes(folds, of_kernel) for kernel, folds, of_kernel in each])

    def _put(self, index: Int64Array, parts: Sequence[Sequence[Numbers]]) -> None:
        for kernel, folds, of_kernel in zip(self._kernels, self._folds, parts, strict=True):
            kernel.add(folds, index, of_kernel)

    def _dumped(self, cells: pa.BinaryArray) -> list[list[Numbers]] | None:
        """The accumulators of cells; None if they are of another form."""
        read = read_records(cells, len(self._all()))
        if read is None and type(self._fn) in (SumFn, CountFn):
            read = read_records(cells, 1, tag=b"")  # such an accumulator is a number itself
        return None if read is None else [read[first:last] for first, last in _spans(self._kernels)]

    def _lift(self, cells: pa.BinaryArray, back: Mask | None) -> list[list[Numbers]] | None:
        """Values as accumulators; None if they are no numbers."""
        if type(self._fn) is CountFn:
            columns: list[Numbers] | None = [Numbers.all(np.ones(len(cells), np.int64))]
        elif self._several:
            columns = read_records(cells, len(self._kernels))
        else:
            columns = read_records(cells, 1, tag=b"")
        if columns is None or not (self._several or columns[0].there.all()):
            return None
        return [kernel.lift(values, back) for kernel, values in zip(self._kernels, columns, strict=True)]

    def _widened(self) -> Accumulators:
        from headrace.engine.aggregation.accumulators import Folds

        folds, every = Folds(self._fn, self._lifted), np.arange(self._slots)
        folds.reserve(self._slots)
        return folds.load(every, self.dump(every))


def load_accumulator(fn: Fn, data: Any) -> Any:
    """The accumulator of a decoded cell: what `dump` gave, or a record of its parts."""
    if type(data) is not Record:
        return fn.load(data)
    kernels = kernels_of(fn) or ()
    fns = fn.fns if isinstance(fn, ColumnsFn) else (fn,)
    each = zip(fns, kernels, _spans(kernels), strict=True)
    accs = [kernel.accumulator(one, data[first:last]) for one, kernel, (first, last) in each]
    return accs if isinstance(fn, ColumnsFn) else accs[0]


def encode_accumulators(fn: Fn, accs: Sequence[Any]) -> pa.BinaryArray:
    """Accumulators as cells: records of numbers where that is what they are.

    >>> from headrace.engine.columns.cells import decode_cells
    >>> from headrace.model.algebra import MeanFn
    >>> [load_accumulator(MeanFn(), data) for data in decode_cells(encode_accumulators(MeanFn(), [(3, 2), (5, 1)]))]
    [(3, 2), (5, 1)]
    """
    kernels = kernels_of(fn)
    if kernels is not None and accs:
        split = list(zip(*accs, strict=True)) if isinstance(fn, ColumnsFn) else [accs]
        parts = [
            Numbers.of(part)
            for kernel, of_kernel in zip(kernels, split, strict=True)
            for part in zip(*map(kernel.parts, of_kernel), strict=True)
        ]
        if None not in parts:
            return write_records(parts)  # type: ignore[arg-type]
    return encode_cells(list(map(fn.dump, accs)))


def _spans(kernels: Sequence[Kernel]) -> list[tuple[int, int]]:
    """Where the parts of each kernel are among those of all."""
    return list(pairwise(accumulate((len(kernel.ufuncs) for kernel in kernels), initial=0)))
