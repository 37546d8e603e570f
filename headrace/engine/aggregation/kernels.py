"""Array kernels for aggregations of numbers and times: counts, sums, means, variances, minima, maxima, first and last.

A kernel says which columns of numbers the accumulators of a CombineFn are, and how values and accumulators are added to
them; the columns are `FoldedColumn`s. A kernel has no state. It gives what its CombineFn gives, whatever the numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from headrace.engine.aggregation.columnsfn import ColumnsFn
from headrace.engine.columns.arrays import distinct
from headrace.engine.columns.numbercells import Mask, Numbers
from headrace.model.algebra import (
    CombineFn,
    CountFn,
    FirstFn,
    LastFn,
    MaxByFn,
    MaxFn,
    MeanFn,
    MeanOrNoneFn,
    MinByFn,
    MinFn,
    SumFn,
    SumOrNoneFn,
    VarianceFn,
    VarianceOrNoneFn,
)
from headrace.model.times import Int64Array

_LIMIT: Final = 2.0**62  # of sums of ints: so far from the end of int64 that a float can tell
_EXACT: Final = 2**53  # up to here floats hold every int
_LARGE: Final = 1e100  # squares of larger numbers overflow
_INTS: Final = np.iinfo(np.int64)
_LAST_TIME: Final = _INTS.max  # microseconds; less than the least int, which numpy takes for no time

Fn = CombineFn[Any, Any, Any]


class FoldedColumn:
    """A column of numbers by slot, into which others are folded: all ints, floats or times, as the first ones are.

    >>> fold = FoldedColumn(np.add)
    >>> fold.reserve(2)
    >>> fold.add(np.array([0, 0]), Numbers.of([1, 2]))
    >>> fold.of(np.array([0, 1])).tolist()
    [3, None]
    """

    def __init__(self, ufunc: np.ufunc) -> None:
        self._ufunc = ufunc
        self._values: npt.NDArray[Any] = np.zeros(0, np.int64)
        self._there: Mask = np.zeros(0, np.bool_)
        self._decided = False  # between ints, floats and times
        self._peak = 0.0  # of sums of ints: at least the sum of all of them, each without its sign

    def reserve(self, slots: int) -> None:
        more = max(slots - len(self._values), 0)
        self._values = np.concatenate([self._values, self._fresh(more, self._values.dtype)])
        self._there = np.concatenate([self._there, np.zeros(more, np.bool_)])

    def takes(self, numbers: Numbers) -> bool:
        """Returns whether these numbers can be added. If so, they must be: sums are checked against overflow here."""
        if not numbers.there.any():
            return True
        kind = numbers.values.dtype.kind
        if (self._decided and kind != self._values.dtype.kind) or (kind == "M" and self._ufunc is np.add):
            return False
        if self._ufunc is not np.add or not numbers.integral:
            return True
        more = _magnitude(numbers.values)
        if self._peak + more > _LIMIT:
            self._peak = _magnitude(self._values)
        self._peak += more
        return self._peak <= _LIMIT

    def add(self, index: Int64Array, numbers: Numbers) -> None:
        """Folds numbers into the slots of `index`, in order."""
        if not numbers.there.all():
            index, numbers = index[numbers.there], numbers.take(np.flatnonzero(numbers.there))
        if not len(numbers):
            return
        if not self._decided:
            self._decided = True
            self._values = self._fresh(len(self._values), numbers.values.dtype)
        with np.errstate(invalid="ignore", over="ignore"):  # NaN and infinities are numbers, too
            self._ufunc.at(self._values, index, numbers.values)
        self._there[index] = True

    def clear(self, slots: Int64Array) -> None:
        self._values[slots] = self._fresh(len(slots), self._values.dtype)
        self._there[slots] = False

    def of(self, slots: Int64Array) -> Numbers:
        return Numbers(self._values[slots], self._there[slots])

    def _fresh(self, count: int, kind: np.dtype[Any]) -> npt.NDArray[Any]:
        """Returns the neutral elements that slots begin with."""
        if self._ufunc is np.add:
            return np.zeros(count, kind)
        if self._ufunc is np.maximum:
            return np.full(count, {"i": _INTS.min, "f": -np.inf, "M": -_LAST_TIME}[kind.kind]).astype(kind)
        return np.full(count, {"i": _INTS.max, "f": np.nan, "M": _LAST_TIME}[kind.kind]).astype(
            kind
        )  # fmin ignores NaN


def _magnitude(numbers: npt.NDArray[Any]) -> float:
    return float(np.abs(numbers.astype(np.float64)).sum())


class Kernel:
    """An aggregation of numbers; the base class is a sum."""

    ufuncs: tuple[np.ufunc, ...] = (np.add,)
    """How each column of the accumulators is folded."""
    pairs = False
    """Whether it takes pairs, each a value and what it is ranked by."""
    timed = False
    """Whether it takes values with the times of their elements, as pairs."""
    of_times = False
    """Whether its values may be times."""

    def lift(self, values: Numbers, retracted: Mask | None) -> list[Numbers]:
        """Makes an accumulator of each value; one that subtracts it where `retracted` is set."""
        return [_signed(values, retracted)]

    def lift_pairs(self, values: Numbers, by: Numbers) -> list[Numbers]:
        """Makes an accumulator of each pair, if it takes pairs or is timed."""
        raise NotImplementedError

    def takes(self, folds: Sequence[FoldedColumn], parts: Sequence[Numbers]) -> bool:
        """Returns whether these accumulators can be merged. If so, they must be."""
        return all([fold.takes(part) for fold, part in zip(folds, parts, strict=True)])

    def add(self, folds: Sequence[FoldedColumn], index: Int64Array, parts: Sequence[Numbers]) -> None:
        """Merges accumulators into the slots of `index`, in order."""
        for fold, part in zip(folds, parts, strict=True):
            fold.add(index, part)

    def finish(self, parts: Sequence[Numbers]) -> Numbers:
        """Returns the results."""
        return Numbers.all(parts[0].values)

    def accumulator(self, fn: Fn, parts: Sequence[Any]) -> Any:
        """Makes the accumulator of `fn` that consists of these parts."""
        return fn.zero() if parts[0] is None else parts[0]

    def parts(self, acc: Any) -> tuple[Any, ...]:
        """Returns the parts of an accumulator."""
        return (_none_if_zero(acc),)


class CountKernel(Kernel):
    """The number of values."""

    of_times = True

    def lift(self, values: Numbers, retracted: Mask | None) -> list[Numbers]:
        return [_ones(values, retracted)]


class MeanKernel(Kernel):
    """The mean, of a sum and a number of values."""

    ufuncs = (np.add, np.add)

    def lift(self, values: Numbers, retracted: Mask | None) -> list[Numbers]:
        return [_signed(values, retracted), _ones(values, retracted)]

    def finish(self, parts: Sequence[Numbers]) -> Numbers:
        total, count = parts[0].values, parts[1].values
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = np.where(count == 0, np.nan, total / count)
        if parts[0].integral:
            for at in np.flatnonzero((np.abs(total) > _EXACT) & (count != 0)).tolist():
                mean[at] = int(total[at]) / int(count[at])
        return Numbers.all(mean)

    def accumulator(self, fn: Fn, parts: Sequence[Any]) -> Any:
        return tuple(0 if part is None else part for part in parts)

    def parts(self, acc: Any) -> tuple[Any, ...]:
        return _none_if_zero(acc[0]), acc[1]


class MeanOrNoneKernel(MeanKernel):
    """The mean, of no values none."""

    def finish(self, parts: Sequence[Numbers]) -> Numbers:
        return Numbers(super().finish(parts).values, parts[1].values != 0)


class SumOrNoneKernel(MeanKernel):
    """The sum, of no values none."""

    def finish(self, parts: Sequence[Numbers]) -> Numbers:
        return Numbers(parts[0].values, parts[1].values != 0)


class MinKernel(Kernel):
    """The minimum; NaN is above all numbers."""

    ufuncs: tuple[np.ufunc, ...] = (np.fmin,)
    of_times = True

    def finish(self, parts: Sequence[Numbers]) -> Numbers:
        return parts[0]

    def accumulator(self, fn: Fn, parts: Sequence[Any]) -> Any:
        return fn.zero() if parts[0] is None else fn.add(fn.zero(), parts[0])

    def parts(self, acc: Any) -> tuple[Any, ...]:
        return (acc[0][1] if acc[0][1] is not None else acc,) if acc else (None,)  # a minimum of None is no number


class MaxKernel(MinKernel):
    """The maximum; NaN is above all numbers."""

    ufuncs = (np.maximum,)


class MaxByKernel(Kernel):
    """The value with the largest number beside it, and of several such the largest; a missing value is the least."""

    ufuncs = (np.maximum, np.maximum)  # of what values are ranked by, and of values
    pairs = True
    of_times = True
    best = -1
    """Where the best one is, in ascending order."""

    def lift_pairs(self, values: Numbers, by: Numbers) -> list[Numbers]:
        return [by, Numbers(values.values, values.there & by.there)]

    def add(self, folds: Sequence[FoldedColumn], index: Int64Array, parts: Sequence[Numbers]) -> None:
        some = np.flatnonzero(parts[0].there)
        if not len(some):
            return
        some = some[self._may_be_best(index[some], parts[0].values[some])]
        slots = distinct(index[some])
        old = [fold.of(slots) for fold in folds]
        held = np.flatnonzero(old[0].there)
        slot = np.concatenate([slots[held], index[some]])
        by, value = (_joined(before.take(held), part.take(some)) for before, part in zip(old, parts, strict=True))
        order = np.lexsort((_ranks(value), value.there, by.values, slot))  # NaN comes last
        edges = np.searchsorted(slot[order], slots, side="left" if self.best == 0 else "right")
        chosen = order[edges if self.best == 0 else edges - 1]
        for fold, numbers in zip(folds, (by, value), strict=True):
            fold.clear(slots)
            fold.add(slots, numbers.take(chosen))

    def _may_be_best(self, index: Int64Array, by: npt.NDArray[Any]) -> Mask:
        """Returns which of these are the best of their slot by rank alone: few are left to be sorted."""
        if by.dtype.kind == "f":  # NaN has a rank, but equals nothing
            return np.ones(len(by), np.bool_)
        ranks = by.view(np.int64)
        least, most = _INTS.min, _INTS.max
        best = np.full(int(index.max()) + 1, most if self.best == 0 else least)
        (np.minimum if self.best == 0 else np.maximum).at(best, index, ranks)
        return np.asarray(ranks == best[index])

    def finish(self, parts: Sequence[Numbers]) -> Numbers:
        return parts[1]

    def accumulator(self, fn: Fn, parts: Sequence[Any]) -> Any:
        return fn.add(fn.zero(), (parts[1], parts[0]))

    def parts(self, acc: Any) -> tuple[Any, ...]:
        return acc[0] if acc else (None, None)


class MinByKernel(MaxByKernel):
    """The value with the smallest number beside it, and of several such the smallest."""

    best = 0


class LastKernel(MaxByKernel):
    """The value with the latest time, and of several such the largest; a missing value counts, as the least."""

    pairs = False
    timed = True

    def accumulator(self, fn: Fn, parts: Sequence[Any]) -> Any:
        return fn.zero() if parts[0] is None else fn.add(fn.zero(), tuple(parts))


class FirstKernel(LastKernel):
    """The value with the earliest time, and of several such the smallest."""

    best = 0


class VarianceKernel(Kernel):
    """The variance, of the number of values, their mean, and the sum of squared deviations from it."""

    ufuncs = (np.add, np.add, np.add)

    def lift(self, values: Numbers, retracted: Mask | None) -> list[Numbers]:
        floats = Numbers(values.values.astype(np.float64), values.there)
        return [_ones(values, retracted), floats, Numbers(np.zeros(len(values)), values.there)]

    def takes(self, folds: Sequence[FoldedColumn], parts: Sequence[Numbers]) -> bool:
        _, mean, squares = (part.values[part.there] for part in parts)
        return bool((np.abs(mean) < _LARGE).all() and np.isfinite(squares).all()) and super().takes(folds, parts)

    def add(self, folds: Sequence[FoldedColumn], index: Int64Array, parts: Sequence[Numbers]) -> None:
        some = np.flatnonzero(parts[0].there & (parts[0].values > 0))
        slots, at = np.unique(index[some], return_inverse=True)
        more, mean, squares = (part.values[some].astype(np.float64) for part in parts)
        old_count, old_mean, old_squares = (fold.of(slots).values.astype(np.float64) for fold in folds)
        # Deviations are from a mean near all of them, or they would cancel: the slot's own or, without one, the first.
        near = np.empty(len(slots))
        near[at[::-1]] = mean[::-1]
        near = np.where(old_count > 0, old_mean, near)
        count, shift = old_count.copy(), np.zeros(len(slots))
        np.add.at(count, at, more)
        np.add.at(shift, at, more * (mean - near[at]))
        new_mean = near + shift / count
        new_squares = old_squares + old_count * (near - new_mean) ** 2
        np.add.at(new_squares, at, squares + more * (mean - new_mean[at]) ** 2)
        for fold, values in zip(folds, (count.astype(np.int64), new_mean, new_squares), strict=True):
            fold.clear(slots)
            fold.add(slots, Numbers.all(values))

    def finish(self, parts: Sequence[Numbers]) -> Numbers:
        count, _, squares = (part.values for part in parts)
        with np.errstate(divide="ignore", invalid="ignore"):
            return Numbers.all(np.where(count > 1, squares / (count - 1), np.nan))

    def accumulator(self, fn: Fn, parts: Sequence[Any]) -> Any:
        return tuple(parts) if parts[0] else fn.zero()

    def parts(self, acc: Any) -> tuple[Any, ...]:
        return acc[0], float(acc[1]), float(acc[2])


def _ranks(numbers: Numbers) -> npt.NDArray[Any]:
    """Returns numbers in the order of these, 0 where one is missing."""
    values = numbers.values.view(np.int64) if numbers.values.dtype.kind == "M" else numbers.values
    return np.where(numbers.there, values, 0)


def _joined(a: Numbers, b: Numbers) -> Numbers:
    """Joins columns of one type; one without any number has no type of its own."""
    if not a.there.any():
        a = Numbers(np.zeros(len(a), b.values.dtype), a.there)
    elif not b.there.any():
        b = Numbers(np.zeros(len(b), a.values.dtype), b.there)
    return Numbers(np.concatenate([a.values, b.values]), np.concatenate([a.there, b.there]))


def _signed(values: Numbers, retracted: Mask | None) -> Numbers:
    return values if retracted is None else Numbers(np.where(retracted, -values.values, values.values), values.there)


def _ones(values: Numbers, retracted: Mask | None) -> Numbers:
    return Numbers(np.ones(len(values), np.int64) if retracted is None else np.where(retracted, -1, 1), values.there)


def _none_if_zero(total: Any) -> Any:
    """Returns None for the int 0, which is the sum of no values, also where all others are floats."""
    return None if type(total) is int and total == 0 else total


class VarianceOrNoneKernel(VarianceKernel):
    """The sample variance, of fewer than two values none."""

    def finish(self, parts: Sequence[Numbers]) -> Numbers:
        return Numbers(super().finish(parts).values, parts[0].values > 1)


_KERNELS: Final[dict[type[Fn], Kernel]] = {
    SumFn: Kernel(),
    CountFn: CountKernel(),
    MeanFn: MeanKernel(),
    MinFn: MinKernel(),
    MaxFn: MaxKernel(),
    VarianceFn: VarianceKernel(),
    SumOrNoneFn: SumOrNoneKernel(),
    MeanOrNoneFn: MeanOrNoneKernel(),
    VarianceOrNoneFn: VarianceOrNoneKernel(),
    MinByFn: MinByKernel(),
    MaxByFn: MaxByKernel(),
    FirstFn: FirstKernel(),
    LastFn: LastKernel(),
}


def kernel_of(fn: Fn) -> Kernel | None:
    """Returns the kernel of an aggregation, if it has one.

    >>> kernel_of(SumFn()) is not None, kernel_of(MinFn(key=len))
    (True, None)
    """
    return None if getattr(fn, "key", None) is not None else _KERNELS.get(type(fn))


def kernels_of(fn: Fn) -> tuple[Kernel, ...] | None:
    """Returns the kernels of an aggregation, or of those it consists of; None if one of them has none.

    >>> len(kernels_of(ColumnsFn((SumFn(), CountFn()))))
    2
    """
    fns = fn.fns if isinstance(fn, ColumnsFn) else (fn,)
    kernels = list(map(kernel_of, fns))
    return None if None in kernels else tuple(kernels)  # type: ignore[arg-type]
