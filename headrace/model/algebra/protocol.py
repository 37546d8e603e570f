"""The protocol of aggregations, CombineFn, and what breaks ties so that no split of the values changes the answer."""

from collections.abc import Iterable, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, Generic, TypeVar

V = TypeVar("V")
A = TypeVar("A")
R = TypeVar("R")


class CombineFn(Generic[V, A, R]):
    """An aggregation: zero, add, merge, finish; and subtract where it exists.

    `add` and `merge` may change and return their first argument; `merge` leaves its second fit for other use,
    and `finish` leaves the accumulator as it was. With `timed`, values arrive as `(time_us, value)` pairs.

    >>> from headrace.model.algebra import MeanFn
    >>> mean = MeanFn()
    >>> here, there = mean.add_all(mean.zero(), [1, 2]), mean.add(mean.zero(), 6)
    >>> mean.finish(mean.merge(here, there))
    3.0
    """

    timed: bool = False

    def zero(self) -> A:
        """The accumulator of no values, new at every call."""
        raise NotImplementedError(f"{self!r} must define zero")

    def add(self, acc: A, value: V) -> A:
        """The accumulator with one value more."""
        raise NotImplementedError(f"{self!r} must define add")

    def merge(self, a: A, b: A) -> A:
        """The accumulator of the values of both."""
        raise NotImplementedError(f"{self!r} must define merge")

    def finish(self, acc: A) -> R:
        """The answer for the values added so far; unless told otherwise, the accumulator itself."""
        return acc  # type: ignore[return-value]

    def is_exact(self, acc: A) -> bool:
        """Whether the answer is exact, up to the rounding of floats; one of a sketch is not."""
        return True

    def subtract(self, acc: A, value: V) -> A:
        """The accumulator with one value, added before, taken out again."""
        raise NotImplementedError(f"{self!r} has no subtract; merge the parts that remain instead")

    @property
    def invertible(self) -> bool:
        """Whether `subtract` exists."""
        return type(self).subtract is not CombineFn.subtract

    def add_all(self, acc: A, values: Sequence[V]) -> A:
        """The accumulator with many values more."""
        add = self.add
        for value in values:
            acc = add(acc, value)
        return acc

    def add_by_key(self, held: dict[Any, A], pairs: Iterable[tuple[Any, V]]) -> None:
        """Adds each value to its key's accumulator in `held`: the inner loop of every keyed aggregation."""
        zero, add = self.zero, self.add
        for key, value in pairs:
            held[key] = add(held[key] if key in held else zero(), value)

    def dump(self, acc: A) -> object:
        """A picklable form of the accumulator, to store or to send."""
        return acc

    def load(self, data: Any) -> A:
        """The accumulator that `dump` wrote."""
        return data  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        shown: list[str] = []
        declared: tuple[Field[Any], ...] = fields(self) if is_dataclass(self) else ()
        for each in declared:
            value = getattr(self, each.name)
            if each.init and value != each.default:
                text = getattr(value, "__name__", None) or repr(value)
                shown.append(text if each.default is MISSING else f"{each.name}={text}")
        return f"{type(self).__name__}({', '.join(shown)})"


def tie_break(value: object) -> tuple[int, bool, Any]:
    """What decides between values of equal rank: the same on every machine, so that no split changes the answer.

    None comes first, as in Spark; numbers, text and bytes are in their own order, NaN above all numbers; other values
    in that of their key encoding or, without one, of their `repr`.

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
    try:
        return (3, False, encode_key(value))
    except TypeError:
        return (3, False, repr(value).encode(errors="backslashreplace"))


def check_size(fn: object, n: object) -> None:
    """Refuses a size that is not a positive integer."""
    if not isinstance(n, int) or n < 1:
        name = type(fn).__name__
        raise ValueError(f"{name}: n must be a positive integer, got {n!r}; give a size, e.g. {name}(3)")
