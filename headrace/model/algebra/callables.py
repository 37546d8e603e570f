"""Aggregations made from what users pass: a plain function, several aggregations at once, or a CombineFn."""

import functools
import inspect
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.model.algebra.arithmetic import CountFn, MeanFn, SumFn, VarianceFn
from headrace.model.algebra.gathering import CollectFn
from headrace.model.algebra.protocol import CombineFn
from headrace.model.algebra.ranking import MaxFn, MinFn


@dataclass(frozen=True, init=False, repr=False)
class TupleFn(CombineFn[Any, list[Any], tuple[Any, ...]]):
    """Computes several aggregations of the same values, as a tuple; those that are not `timed` get no times.

    >>> TupleFn(len, max).finish(TupleFn(len, max).add_all([0, []], [3, 5, 4]))
    (3, 5)
    """

    fns: tuple[CombineFn[Any, Any, Any], ...]
    timed: bool = field(compare=False)

    def __init__(self, *fns: object) -> None:
        if not fns:
            raise ValueError("TupleFn: needs at least one aggregation, got none; give e.g. TupleFn(min, max)")
        object.__setattr__(self, "fns", tuple(map(combine_fn, fns)))
        object.__setattr__(self, "timed", any(fn.timed for fn in self.fns))

    def __repr__(self) -> str:
        return f"TupleFn({', '.join(map(repr, self.fns))})"

    def zero(self) -> list[Any]:
        return [fn.zero() for fn in self.fns]

    def add(self, acc: list[Any], value: Any) -> list[Any]:
        return self.add_all(acc, (value,))

    def merge(self, a: list[Any], b: list[Any]) -> list[Any]:
        return [fn.merge(left, right) for fn, left, right in zip(self.fns, a, b, strict=True)]

    def finish(self, acc: list[Any]) -> tuple[Any, ...]:
        return tuple(fn.finish(part) for fn, part in zip(self.fns, acc, strict=True))

    def add_all(self, acc: list[Any], values: Sequence[Any]) -> list[Any]:
        bare = [value for _, value in values] if self.timed else values
        return [f.add_all(part, values if f.timed else bare) for f, part in zip(self.fns, acc, strict=True)]

    def dump(self, acc: list[Any]) -> object:
        return [fn.dump(part) for fn, part in zip(self.fns, acc, strict=True)]

    def load(self, data: Any) -> list[Any]:
        return [fn.load(part) for fn, part in zip(self.fns, data, strict=True)]


_COMPACT_AT = 64  # enough values to be worth a call of the function, few enough to store for every key


@dataclass(frozen=True, repr=False)
class CallableFn(CombineFn[Any, list[Any], Any]):
    """Aggregates with a plain function: of two values, or of an iterable of values.

    The function must be associative and commutative, as it is applied to parts of the values and to its own results:
    `fn([fn(a), fn(b)]) == fn(a + b)`; and it must not change its arguments. Of no values, a function of two values
    gives None, a function of an iterable gives `fn([])`.

    >>> product = CallableFn(lambda a, b: a * b)
    >>> product.finish(product.add_all(product.zero(), [2, 3, 4]))
    24
    """

    fn: Callable[..., Any]
    binary: bool = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "binary", _takes_two(self.fn))

    def _reduced(self, values: list[Any]) -> Any:
        return functools.reduce(self.fn, values) if self.binary else self.fn(values)

    def zero(self) -> list[Any]:
        return []

    def add(self, acc: list[Any], value: Any) -> list[Any]:
        return self.add_all(acc, (value,))

    def merge(self, a: list[Any], b: list[Any]) -> list[Any]:
        return self.add_all(a, b)

    def finish(self, acc: list[Any]) -> Any:
        if acc:
            return self._reduced(acc.copy())
        if self.binary:
            return None
        try:
            return self.fn([])
        except Exception as error:
            remedy = "let it accept an empty list, or use a CombineFn"
            raise ValueError(f"{self!r}: the function failed for no values with {error!r}; {remedy}") from error

    def add_all(self, acc: list[Any], values: Sequence[Any]) -> list[Any]:
        acc.extend(values)
        return acc if len(acc) < _COMPACT_AT else [self._reduced(acc)]

    def add_by_key(self, accumulators: dict[Any, list[Any]], pairs: Iterable[tuple[Any, Any]]) -> None:
        get = accumulators.get
        for key, value in pairs:
            acc = get(key)
            if acc is None:
                accumulators[key] = [value]
            else:
                acc.append(value)
                if len(acc) >= _COMPACT_AT:
                    accumulators[key] = [self._reduced(acc)]


def _takes_two(fn: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):  # a builtin such as max, which has no signature
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(parameter.kind in positional and parameter.default is parameter.empty for parameter in parameters) == 2


_NATIVE: tuple[tuple[Callable[..., Any], CombineFn[Any, Any, Any]], ...] = (
    (sum, SumFn()),
    (min, MinFn()),
    (max, MaxFn()),
    (len, CountFn()),
    (list, CollectFn()),
    (statistics.mean, MeanFn()),
    (statistics.fmean, MeanFn()),
    (statistics.variance, VarianceFn()),
)


def combine_fn(x: object) -> CombineFn[Any, Any, Any]:
    """Converts `x` to a CombineFn: a CombineFn, its class, a function such as `sum`, or another callable.

    >>> combine_fn(sum), combine_fn(MeanFn), combine_fn(max)
    (SumFn(), MeanFn(), MaxFn())
    >>> combine_fn(3)
    Traceback (most recent call last):
        ...
    TypeError: combine_fn: takes a CombineFn or a callable, got 3; give e.g. sum or SumFn()
    """
    if isinstance(x, CombineFn):
        return x
    for function, native in _NATIVE:
        if x is function:
            return native
    if isinstance(x, type) and issubclass(x, CombineFn):
        return x()
    if not callable(x):
        raise TypeError(f"combine_fn: takes a CombineFn or a callable, got {x!r}; give e.g. sum or SumFn()")
    # A list of lists is not the list of all values, and a median of medians is not the median.
    if isinstance(x, type) or x is sorted or getattr(x, "__module__", "") == "statistics":
        name = getattr(x, "__name__", repr(x))
        raise TypeError(f"combine_fn: {name} is not associative; use CollectFn() and map {name} over the lists")
    return CallableFn(x)
