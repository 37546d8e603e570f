"""Accumulators as columns of numbers and times, without a Python object per window; of one aggregation or several.

If a value is no number, or no int of 64 bits, all accumulators become objects, which read and write the same cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.engine.aggregation.columnsfn import ColumnsFn
from headrace.engine.aggregation.kernels import Fn, FoldedColumn, Kernel, kernels_of
from headrace.engine.columns.cells import encode_cells
from headrace.engine.columns.numbercells import Numbers, Record, read_records, write_records
from headrace.model.algebra import CountFn, SumFn
from headrace.model.times import Int64Array

if TYPE_CHECKING:
    from headrace.engine.aggregation.accumulators import Accumulators, IncomingRows


class ArrayAccumulators:
    """Accumulators of an aggregation that has kernels; they become `ObjectAccumulators` where numbers do not fit."""

    def __init__(self, fn: Fn, kernels: Sequence[Kernel], lifted: bool) -> None:
        self._fn, self._kernels, self._lifted = fn, kernels, lifted
        self._several = isinstance(fn, ColumnsFn)
        self._folds = [[FoldedColumn(ufunc) for ufunc in kernel.ufuncs] for kernel in kernels]
        self._slots = 0

    def reserve(self, slots: int) -> None:
        self._slots = max(slots, self._slots)
        for fold in self._all():
            fold.reserve(slots)

    def add(self, slots: Int64Array, starts: Int64Array, rows: IncomingRows) -> Accumulators:
        count = len(rows.cells)
        parts = self._decode(rows.cells) if self._lifted else self._lift(rows)
        if parts is None or not self._takes(parts):
            return self._as_objects().add(slots, starts, rows)
        self._put(np.repeat(slots, np.diff(starts, append=count)), parts)
        return self

    def add_values(self, index: Int64Array, columns: Sequence[Sequence[Numbers]]) -> bool:
        """Adds a value, or a pair (by another, or with its time), for each aggregation to the slots, if they fit."""
        parts = self._lifted_values(columns)
        if not self._takes(parts):
            return False
        self._put(index, parts)
        return True

    def lifted(self, columns: Sequence[Sequence[Numbers]]) -> pa.BinaryArray:
        """Encodes, for rows with a value or a pair for each aggregation, the accumulators of each of them alone."""
        return write_records([part for of_kernel in self._lifted_values(columns) for part in of_kernel])

    def _lifted_values(self, columns: Sequence[Sequence[Numbers]]) -> list[list[Numbers]]:
        kernels = zip(self._kernels, columns, strict=True)
        return [kernel.lift_pairs(*of) if len(of) > 1 else kernel.lift(of[0], None) for kernel, of in kernels]

    def regrouped(self, slots: Int64Array, into: Int64Array, count: int) -> ArrayAccumulators | None:
        """Makes so many accumulators, each of these merged into it, in order; None if a number does not fit.

        >>> counts = ArrayAccumulators(CountFn(), kernels_of(CountFn()), lifted=True)
        >>> counts.reserve(2)
        >>> counts.add_values(np.array([0, 1, 1]), [[Numbers.all(np.ones(3, np.int64))]])
        True
        >>> counts.regrouped(np.array([0, 1, 1]), np.array([0, 0, 1]), 2)._parts(np.array([0, 1]))[0][0].tolist()
        [3, 2]
        """
        others, parts = ArrayAccumulators(self._fn, self._kernels, self._lifted), self._parts(slots)
        others.reserve(count)
        if not others._takes(parts):
            return None
        others._put(into, parts)
        return others

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
        results = [kernel.finish(of_kernel) for kernel, of_kernel in zip(self._kernels, parts, strict=True)]
        return write_records(results) if self._several else write_records(results, tag=b"")

    def dump(self, slots: Int64Array) -> pa.BinaryArray:
        return write_records([part for parts in self._parts(slots) for part in parts])

    def load(self, slots: Int64Array, cells: pa.BinaryArray) -> Accumulators:
        parts = self._decode(cells)
        if parts is None or not self._takes(parts):
            return self._as_objects().load(slots, cells)
        self.clear(slots)
        self._put(slots, parts)
        return self

    def _all(self) -> list[FoldedColumn]:
        return [fold for folds in self._folds for fold in folds]

    def _parts(self, slots: Int64Array) -> list[list[Numbers]]:
        return [[fold.of(slots) for fold in folds] for folds in self._folds]

    def _takes(self, parts: Sequence[Sequence[Numbers]]) -> bool:
        kernels = zip(self._kernels, self._folds, parts, strict=True)
        return all([kernel.takes(folds, of_kernel) for kernel, folds, of_kernel in kernels])

    def _put(self, index: Int64Array, parts: Sequence[Sequence[Numbers]]) -> None:
        for kernel, folds, of_kernel in zip(self._kernels, self._folds, parts, strict=True):
            kernel.add(folds, index, of_kernel)

    def _decode(self, cells: pa.BinaryArray) -> list[list[Numbers]] | None:
        """Decodes accumulators; returns None if the cells are of another form."""
        columns = read_records(cells, len(self._all()))
        if columns is None and type(self._fn) in (SumFn, CountFn):
            columns = read_records(cells, 1, tag=b"")  # such an accumulator is a number itself
        return None if columns is None else [columns[first:last] for first, last in _spans(self._kernels)]

    def _lift(self, rows: IncomingRows) -> list[list[Numbers]] | None:
        """Makes accumulators of values; returns None if they are no numbers."""
        cells = rows.cells
        if any(kernel.pairs for kernel in self._kernels):
            return None
        if type(self._fn) is CountFn:
            columns: list[Numbers] | None = [Numbers.all(np.ones(len(cells), np.int64))]
        elif self._several:
            columns = read_records(cells, len(self._kernels))
        else:
            columns = read_records(cells, 1, tag=b"")
        if columns is None or not (self._several or columns[0].there.all()):
            return None
        times = Numbers.all(np.asarray(rows.times, np.int64))
        return [
            kernel.lift_pairs(values, times) if kernel.timed else kernel.lift(values, rows.retracted)
            for kernel, values in zip(self._kernels, columns, strict=True)
        ]

    def _as_objects(self) -> Accumulators:
        from headrace.engine.aggregation.accumulators import ObjectAccumulators

        objects, slots = ObjectAccumulators(self._fn, self._lifted), np.arange(self._slots)
        objects.reserve(self._slots)
        return objects.load(slots, self.dump(slots))


def load_accumulator(fn: Fn, data: Any) -> Any:
    """Makes the accumulator of a decoded cell: of what `dump` gave, or of a record of its parts."""
    if type(data) is not Record:
        return fn.load(data)
    kernels = kernels_of(fn) or ()
    fns = fn.fns if isinstance(fn, ColumnsFn) else (fn,)
    parts = zip(fns, kernels, _spans(kernels), strict=True)
    accs = [kernel.accumulator(one, data[first:last]) for one, kernel, (first, last) in parts]
    return accs if isinstance(fn, ColumnsFn) else accs[0]


def encode_accumulators(fn: Fn, accs: Sequence[Any]) -> pa.BinaryArray:
    """Encodes accumulators as cells: as records where they are numbers.

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
    """Returns where the parts of each kernel are among those of all."""
    return list(pairwise(accumulate((len(kernel.ufuncs) for kernel in kernels), initial=0)))
