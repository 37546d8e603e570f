"""CombineFn, the protocol of aggregations, and the order that breaks ties the same way on every machine."""

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from decimal import Decimal
from typing import Any, Generic, TypeVar

V = TypeVar("V")
A = TypeVar("A")
R = TypeVar("R")


class CombineFn(Generic[V, A, R]):
    """An aggregation: `zero`, `add`, `merge` and `finish`, and `subtract` where it exists. Subclass it for your own.

    `add` and `merge` may change and return their first argument; `merge` must not change its second one, and `finish`
    must not change the accumulator. With `timed`, values arrive as `(time_us, value)` pairs.

    >>> from headrace.model.algebra import MeanFn
    >>> mean = MeanFn()
    >>> here, there = mean.add_all(mean.zero(), [1, 2]), mean.add(mean.zero(), 6)
    >>> mean.finish(mean.merge(here, there))
    3.0
    """

    timed: bool = False

    def zero(self) -> A:
        """Returns a new accumulator of no values."""
        raise NotImplementedError(f"{self!r} must define zero")

    def add(self, acc: A, value: V) -> A:
        """Adds one value to an accumulator and returns the result."""
        raise NotImplementedError(f"{self!r} must define add")

    def merge(self, a: A, b: A) -> A:
        """Merges two accumulators: returns that of the values of both."""
        raise NotImplementedError(f"{self!r} must define merge")

    def finish(self, acc: A) -> R:
        """Returns the result for the values added so far; by default the accumulator itself."""
        return acc  # type: ignore[return-value]

    def is_exact(self, acc: A) -> bool:
        """Returns whether the result is exact, up to the rounding of floats; that of a sketch is not."""
        return True

    def subtract(self, acc: A, value: V) -> A:
        """Removes one value that was added before from an accumulator, and returns the result."""
        raise NotImplementedError(f"{self!r} has no subtract; merge the parts that remain instead")

    @property
    def invertible(self) -> bool:
        """Whether `subtract` exists."""
        return type(self).subtract is not CombineFn.subtract

    def add_all(self, acc: A, values: Sequence[V]) -> A:
        """Adds many values to an accumulator and returns the result."""
        add = self.add
        for value in values:
            acc = add(acc, value)
        return acc

    def add_by_key(self, accumulators: dict[Any, A], pairs: Iterable[tuple[Any, V]]) -> None:
        """Adds each value to the accumulator of its key: the inner loop of every keyed aggregation."""
        zero, add = self.zero, self.add
        for key, value in pairs:
            accumulators[key] = add(accumulators[key] if key in accumulators else zero(), value)

    def dump(self, acc: A) -> object:
        """Converts an accumulator to a picklable value, to store or to send."""
        return acc

    def load(self, data: Any) -> A:
        """Converts what `dump` returned back to the accumulator."""
        return data  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        arguments: list[str] = []
        declared: tuple[Field[Any], ...] = fields(self) if is_dataclass(self) else ()
        for item in declared:
            value = getattr(self, item.name)
            if item.init and value != item.default:
                text = getattr(value, "__name__", None) or repr(value)
                arguments.append(text if item.default is MISSING else f"{item.name}={text}")
        return f"{type(self).__name__}({', '.join(arguments)})"


def tie_break(value: object) -> tuple[int, bool, Any]:
    """Returns a sort key for values of equal rank, the same on every machine, so that no split changes the answer.

    None comes first, as in Spark; numbers, text, bytes, dates and times are in their usual order, NaN above all other
    numbers; other values in the order of their key encoding or, without one, of their `repr`.

    >>> tie_break(2) < tie_break(2.5) < tie_break(10) < tie_break(float("nan")) < tie_break("a") < tie_break([1])
    True
    """
    from headrace.model.keys import encode_key

    if value is None:
        return (-1, False, 0)
    if isinstance(value, int | float):
        return (0, value != value, 0 if value != value else value)
    if isinstance(value, str | bytes):
        return (1 if isinstance(value, str) else 2, False, value)
    if isinstance(value, Decimal):
        return (0, value.is_nan(), 0 if value.is_nan() else value)
    if isinstance(value, dt.date | dt.timedelta):
        return (4 if isinstance(value, dt.datetime) else 5, False, _microseconds(value))
    try:
        return (3, False, encode_key(value))
    except TypeError:
        return (3, False, repr(value).encode(errors="backslashreplace"))


def _microseconds(value: dt.date | dt.timedelta) -> int:
    """Returns a number by which dates, times or durations are in order; a time without a zone is UTC."""
    if isinstance(value, dt.datetime):
        value = (value if value.tzinfo else value.replace(tzinfo=dt.UTC)) - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    elif isinstance(value, dt.date):
        return value.toordinal()
    return value // dt.timedelta(microseconds=1)


def check_size(fn: object, n: object) -> None:
    """Refuses a size that is not a positive integer."""
    if not isinstance(n, int) or n < 1:
        name = type(fn).__name__
        raise ValueError(f"{name}: n must be a positive integer, got {n!r}; give a size, e.g. {name}(3)")
