"""Aggregations by arithmetic: count, sum, mean and variance."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.model.algebra.protocol import CombineFn


def _plus(a: Any, b: Any) -> Any:
    """Computes `a + b` where Python refuses it, because one side is the int 0 that every sum starts with."""
    for zero, value in ((a, b), (b, a)):
        if type(zero) is int and zero == 0 and hasattr(value, "__add__") and not isinstance(value, Sequence):
            return value
    raise TypeError(f"SumFn: values need a + that commutes, got {a!r} + {b!r}; map them to numbers")


@dataclass(frozen=True, repr=False)
class CountFn(CombineFn[object, int, int]):
    """Counts values.

    >>> CountFn().finish(CountFn().add_all(0, ["a", "b"]))
    2
    """

    def zero(self) -> int:
        return 0

    def add(self, acc: int, value: object) -> int:
        return acc + 1

    def subtract(self, acc: int, value: object) -> int:
        return acc - 1

    def merge(self, a: int, b: int) -> int:
        return a + b

    def add_all(self, acc: int, values: Sequence[object]) -> int:
        return acc + len(values)

    def add_by_key(self, accumulators: dict[Any, int], pairs: Iterable[tuple[Any, object]]) -> None:
        for key, count in Counter(key for key, _ in pairs).items():
            accumulators[key] = accumulators.get(key, 0) + count


@dataclass(frozen=True, repr=False)
class SumFn(CombineFn[Any, Any, Any]):
    """Adds values up with `+`: exact for ints of any size and Fraction; floats round, and infinities do not subtract.

    >>> SumFn().finish(SumFn().add_all(0, [1, 2**70]))
    1180591620717411303425
    """

    def zero(self) -> Any:
        return 0

    def add(self, acc: Any, value: Any) -> Any:
        try:
            return acc + value
        except TypeError:
            return _plus(acc, value)

    def subtract(self, acc: Any, value: Any) -> Any:
        return acc - value

    def merge(self, a: Any, b: Any) -> Any:
        return self.add(a, b)

    def add_all(self, acc: Any, values: Sequence[Any]) -> Any:
        try:
            return sum(values, acc)
        except TypeError:
            return super().add_all(acc, values)

    def add_by_key(self, accumulators: dict[Any, Any], pairs: Iterable[tuple[Any, Any]]) -> None:
        get = accumulators.get
        for key, value in pairs:
            try:
                accumulators[key] = get(key, 0) + value
            except TypeError:
                accumulators[key] = self.add(get(key, 0), value)


@dataclass(frozen=True, repr=False)
class MeanFn(CombineFn[Any, tuple[Any, int], Any]):
    """Computes the arithmetic mean; of no values, nan.

    >>> MeanFn().finish(MeanFn().add_all((0, 0), [1, 2, 6]))
    3.0
    """

    def zero(self) -> tuple[Any, int]:
        return (0, 0)

    def add(self, acc: tuple[Any, int], value: Any) -> tuple[Any, int]:
        return (_SUM.add(acc[0], value), acc[1] + 1)

    def subtract(self, acc: tuple[Any, int], value: Any) -> tuple[Any, int]:
        return (acc[0] - value, acc[1] - 1)

    def merge(self, a: tuple[Any, int], b: tuple[Any, int]) -> tuple[Any, int]:
        return (_SUM.merge(a[0], b[0]), a[1] + b[1])

    def finish(self, acc: tuple[Any, int]) -> Any:
        return acc[0] / acc[1] if acc[1] else math.nan

    def add_all(self, acc: tuple[Any, int], values: Sequence[Any]) -> tuple[Any, int]:
        return (_SUM.add_all(acc[0], values), acc[1] + len(values))


@dataclass(frozen=True, repr=False)
class VarianceFn(CombineFn[Any, tuple[int, Any, Any], Any]):
    """Computes the sample variance (divided by count - 1); of fewer than two values, nan.

    The accumulator is (count, mean, sum of squared deviations), merged by Chan's formula, which loses no digits as sums
    of squares do. There is no `subtract`: removing an outlier would leave its rounding error behind.

    >>> VarianceFn().finish(VarianceFn().add_all((0, 0, 0), [1, 2, 3, 4]))
    1.6666666666666667
    """

    def zero(self) -> tuple[int, Any, Any]:
        return (0, 0, 0)

    def add(self, acc: tuple[int, Any, Any], value: Any) -> tuple[int, Any, Any]:
        return self.merge(acc, (1, value, 0))

    def merge(self, a: tuple[int, Any, Any], b: tuple[int, Any, Any]) -> tuple[int, Any, Any]:
        if not (a[0] and b[0]):
            return a if a[0] else b
        count = a[0] + b[0]
        delta = b[1] - a[1]
        return (count, a[1] + delta * b[0] / count, a[2] + b[2] + delta * delta * a[0] * b[0] / count)

    def finish(self, acc: tuple[int, Any, Any]) -> Any:
        return acc[2] / (acc[0] - 1) if acc[0] > 1 else math.nan

    def add_all(self, acc: tuple[int, Any, Any], values: Sequence[Any]) -> tuple[int, Any, Any]:
        if not values:
            return acc
        mean = sum(values) / len(values)
        return self.merge(acc, (len(values), mean, sum((value - mean) ** 2 for value in values)))


_SUM = SumFn()
