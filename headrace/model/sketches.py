"""Approximate aggregations in bounded memory: distinct values, quantiles, heavy hitters.

Each obeys the laws of `algebra` up to the error that its docstring states. Distinct values and quantiles use Apache
DataSketches, which Spark's own sketch functions read and write, too. The exact aggregations are in `algebra`.
"""

import array
import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from numbers import Number
from typing import Any, TypeVar

import datasketches as ds
import numpy as np

from headrace.model.algebra import CombineFn, tie_break

R = TypeVar("R")


@dataclass(frozen=True, repr=False)
class ApproxDistinctFn(CombineFn[Any, Any, int]):
    """Estimates the number of distinct values, by HyperLogLog.

    The relative standard error is 0.83 / sqrt(2**lg_k), once merged 1.04 / sqrt(2**lg_k): 1.3 % and 1.6 % for
    the default 12. The accumulator is the sketch that Spark's `hll_sketch_agg(column, lg_k)` makes of integers and
    strings, so the two can be merged; the empty string and null, which Spark ignores, count here.

    >>> distinct = ApproxDistinctFn()
    >>> distinct.finish(distinct.add_all(distinct.zero(), ["a", "b", 1, 1.0, True]))
    3
    """

    lg_k: int = 12

    def __post_init__(self) -> None:
        if not 4 <= self.lg_k <= 21:
            raise ValueError(f"ApproxDistinctFn: lg_k must be from 4 to 21, got {self.lg_k}; 12 errs by 1.6 %")

    def zero(self) -> Any:
        return ds.hll_sketch(self.lg_k, ds.HLL_8)

    def add(self, acc: Any, value: Any) -> Any:
        acc.update(_hashed_as(value))
        return acc

    def merge(self, a: Any, b: Any) -> Any:
        if b.is_empty():
            return a
        union = ds.hll_union(self.lg_k)
        union.update(a)
        union.update(b)
        return union.get_result(ds.HLL_8)

    def is_exact(self, acc: Any) -> bool:
        return False

    def finish(self, acc: Any) -> int:
        return int(acc.get_estimate() + 0.5)

    def dump(self, acc: Any) -> bytes:
        return acc.serialize_compact()  # type: ignore[no-any-return]

    def load(self, data: Any) -> Any:
        return ds.hll_sketch.deserialize(bytes(data))


def _hashed_as(value: Any) -> int | str:
    """Returns what to hash: integers as int64 and strings as they are, like Spark; other values as encoded keys."""
    if type(value) is int and -(2**63) <= value < 2**63:
        return value
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str) and value and (value.isascii() or _is_unicode(value)):
        return value
    if isinstance(value, Number) and (integer := _int64(value)) is not None:
        return integer
    from headrace.model.keys import encode_key

    # The sketch accepts no bytes and ignores the empty string; after a NUL, no usual string collides.
    return "\0" + encode_key(value).decode("latin-1")


def _is_unicode(text: str) -> bool:
    """Returns whether the text has no lone surrogate, which UTF-8 cannot encode."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _int64(number: Any) -> int | None:
    """Returns the int64 that equals a bool, float, Decimal, Fraction or complex; None if there is none."""
    try:
        integer = int(number.real)
    except (ValueError, OverflowError):  # NaN, infinity
        return None
    return integer if integer == number and -(2**63) <= integer < 2**63 else None


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
class HeavyHittersFn(CombineFn[Hashable, dict[Any, int], list[tuple[Any, int]]]):
    """Estimates the k most frequent values with their counts, as (value, count), the most frequent first.

    No count is too high, and none too low by more than N / c, where N is the number of values and c the larger of
    1000 and 20 * k. Counts are exact up to 2 * c distinct values. The accumulator is a Misra-Gries summary in a dict:
    the frequent-items sketch of DataSketches orders objects by Python's hash, which differs between processes, and a
    replay must give the same answer.

    >>> hitters = HeavyHittersFn(2)
    >>> hitters.finish(hitters.add_all(hitters.zero(), "abracadabra"))
    [('a', 5), ('b', 2)]
    """

    k: int

    def __post_init__(self) -> None:
        if not isinstance(self.k, int) or self.k < 1:
            raise ValueError(f"HeavyHittersFn: k must be positive, got {self.k!r}; 10 gives the top ten")

    @property
    def counters(self) -> int:
        """The number of counters that a purge leaves; there may be twice as many."""
        return max(1000, 20 * self.k)

    def zero(self) -> dict[Any, int]:
        return {}

    def add(self, acc: dict[Any, int], value: Hashable) -> dict[Any, int]:
        acc[value] = acc.get(value, 0) + 1
        return self._purged(acc)

    def merge(self, a: dict[Any, int], b: dict[Any, int]) -> dict[Any, int]:
        for value, count in b.items():
            a[value] = a.get(value, 0) + count
        return self._purged(a)

    def add_all(self, acc: dict[Any, int], values: Sequence[Hashable]) -> dict[Any, int]:
        return self.merge(acc, Counter(values))

    def is_exact(self, acc: dict[Any, int]) -> bool:
        return False

    def finish(self, acc: dict[Any, int]) -> list[tuple[Any, int]]:
        if len(acc) > self.k:
            least = sorted(acc.values(), reverse=True)[self.k - 1]
            acc = {value: count for value, count in acc.items() if count >= least}
        return sorted(acc.items(), key=lambda hit: (-hit[1], tie_break(hit[0])))[: self.k]

    def _purged(self, acc: dict[Any, int]) -> dict[Any, int]:
        """Subtracts the largest count that does not fit from all counts; c + 1 of them lose it, hence N / c."""
        if len(acc) <= 2 * self.counters:
            return acc
        cut = sorted(acc.values(), reverse=True)[self.counters]
        return {value: count - cut for value, count in acc.items() if count > cut}
