"""KLL sketches of numbers: quantiles, ranks and histograms."""

import array
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, TypeVar

import datasketches as ds
import numpy as np

from headrace.model.algebra import CombineFn

R = TypeVar("R")
_MOST_BINS: Final = 10_000


class _KllFn(CombineFn[Any, Any, R]):
    """Base of the quantile aggregations: a KLL sketch of doubles."""

    def zero(self) -> Any:
        return ds.kll_doubles_sketch()

    def add(self, acc: Any, value: Any) -> Any:
        try:
            acc.update(value)
        except TypeError:
            name = type(self).__name__
            raise TypeError(f"{name}: values must be numbers, got {value!r}; map them to float first") from None
        return acc

    def merge(self, a: Any, b: Any) -> Any:
        a.merge(b)
        return a

    def add_all(self, acc: Any, values: Sequence[Any]) -> Any:
        try:
            numbers = np.frombuffer(array.array("d", values))
        except (TypeError, OverflowError):
            return super().add_all(acc, values)
        acc.update(numbers)
        return acc

    def is_exact(self, acc: Any) -> bool:
        return False

    def dump(self, acc: Any) -> bytes:
        return acc.serialize()  # type: ignore[no-any-return]

    def load(self, data: Any) -> Any:
        return ds.kll_doubles_sketch.deserialize(bytes(data))


def _quantile(sketch: Any, q: float) -> float:
    if sketch.is_empty():
        return math.nan
    # The sketch stores the extremes separately: its quantiles 0 and 1 come from what the compactions left.
    if q == 0:
        return sketch.get_min_value()  # type: ignore[no-any-return]
    if q == 1:
        return sketch.get_max_value()  # type: ignore[no-any-return]
    return sketch.get_quantile(q, True)  # type: ignore[no-any-return]


@dataclass(frozen=True, repr=False)
class QuantilesFn(_KllFn[list[float]]):
    """Estimates the minimum, n - 2 equally spaced quantiles, and the maximum, as floats; of no values, an empty list.

    Minimum and maximum are exact. The others are exact up to 200 values; beyond, a quantile's rank is off by at
    most 1.33 % of the count, with 99 % confidence. The sketch draws random bits when it compacts: answers are
    within that bound, but not identical from run to run. NaN is ignored.

    >>> quartiles = QuantilesFn(5)
    >>> quartiles.finish(quartiles.add_all(quartiles.zero(), range(1, 101)))
    [1.0, 25.0, 50.0, 75.0, 100.0]
    """

    n: int

    def __post_init__(self) -> None:
        if not isinstance(self.n, int) or self.n < 2:
            raise ValueError(f"QuantilesFn: n must be at least 2, got {self.n!r}; 5 gives the quartiles")

    def finish(self, acc: Any) -> list[float]:
        if acc.is_empty():
            return []
        return [_quantile(acc, i / (self.n - 1)) for i in range(self.n)]


@dataclass(frozen=True, repr=False)
class QuantileFn(_KllFn[float]):
    """Estimates a quantile: the smallest value that is not exceeded by a fraction q of the values; of none, nan.

    The error is that of `QuantilesFn`.

    >>> median = QuantileFn(0.5)
    >>> median.finish(median.add_all(median.zero(), [30, 10, 20]))
    20.0
    """

    q: float

    def __post_init__(self) -> None:
        if not 0 <= self.q <= 1:
            raise ValueError(f"QuantileFn: q must be from 0 to 1, got {self.q!r}; 0.5 gives the median")

    def finish(self, acc: Any) -> float:
        return _quantile(acc, self.q)


@dataclass(frozen=True, repr=False)
class RankFn(_KllFn[Any]):
    """Estimates the rank of a number, or of each of a tuple of them: the fraction of values that do not exceed it.

    Ranks are exact up to 200 values; beyond, one is off by at most 1.33 % of the count, with 99 % confidence. Of no
    values it is nan. Bits are random as with `QuantilesFn`.

    >>> fast = RankFn((10, 25))
    >>> fast.finish(fast.add_all(fast.zero(), [10, 20, 30, 40]))
    [0.25, 0.5]
    """

    of: float | tuple[float, ...]

    def __post_init__(self) -> None:
        values = self.of if isinstance(self.of, tuple) else (self.of,)
        if not values or not all(_is_number(value) for value in values):
            raise ValueError(f"RankFn: of must be a number or several, got {self.of!r}; e.g. rank('latency', of=0.2)")

    def finish(self, acc: Any) -> Any:
        if isinstance(self.of, tuple):
            return [_rank(acc, value) for value in self.of]
        return _rank(acc, self.of)


def _rank(sketch: Any, value: float, inclusive: bool = True) -> float:
    return math.nan if sketch.is_empty() else sketch.get_rank(float(value), inclusive)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


@dataclass(frozen=True, repr=False)
class HistogramFn(_KllFn[list[list[float]]]):
    """Estimates a histogram: [low, high, count] of each bin, in order; of no values, no bins.

    `bins` is the number of bins of equal width between minimum and maximum, or a tuple of their bounds, in order. A bin
    has the values from `low` up to, but without, `high`; the last one has `high`, too. Values outside of given bounds
    are not counted. Without bounds, values that are all equal, or of which one is infinite, are in one bin. Counts are
    exact up to 200 values; beyond, one is off by at most 1.65 % of the number of values, with 99 % confidence. Bits are
    random as with `QuantilesFn`.

    >>> ages = HistogramFn(2)
    >>> ages.finish(ages.add_all(ages.zero(), [0, 1, 2, 3, 10]))
    [[0.0, 5.0, 4.0], [5.0, 10.0, 1.0]]
    """

    bins: int | tuple[float, ...] = 10

    def __post_init__(self) -> None:
        if isinstance(self.bins, tuple):
            rising = all(map(_is_number, self.bins)) and all(low < high for low, high in pairwise(self.bins))
            if len(self.bins) < 2 or not rising:
                raise ValueError(f"HistogramFn: bounds must be at least two rising numbers, got {self.bins!r}")
        elif not isinstance(self.bins, int) or not 1 <= self.bins <= _MOST_BINS:
            raise ValueError(f"HistogramFn: bins must be from 1 to {_MOST_BINS}, or bounds, got {self.bins!r}")

    def finish(self, acc: Any) -> list[list[float]]:
        if acc.is_empty():
            return []
        bounds = self._bounds(acc)
        below = [_rank(acc, bound, inclusive=False) for bound in bounds[:-1]] + [_rank(acc, bounds[-1])]
        return [
            [low, high, float(round((until - since) * acc.n))]
            for (low, high), (since, until) in zip(pairwise(bounds), pairwise(below), strict=True)
        ]

    def _bounds(self, acc: Any) -> list[float]:
        if isinstance(self.bins, tuple):
            return list(map(float, self.bins))
        least, most = acc.get_min_value(), acc.get_max_value()
        if math.isinf(least) or math.isinf(most):
            return [least, most] if least < most else [-math.inf, math.inf]
        if least == most:
            return [least - 0.5, most + 0.5]
        width = most / self.bins - least / self.bins  # their difference may overflow
        return [least, *(min(least + width * number, most) for number in range(1, self.bins)), most]
