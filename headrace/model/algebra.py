"""Aggregations as algebra: `zero, add, merge, finish`, and `subtract` where it exists; the exact ones.

Any split of the values, added apart and merged in any order, finishes to the same answer; whatever runs in
parts rests on that. The approximate ones are in `sketches`; columns and Arrow kernels live elsewhere.
"""

import datetime as dt
import functools
import hashlib
import heapq
import inspect
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from operator import itemgetter, ne
from random import Random
from typing import Any, Generic, TypeVar

V = TypeVar("V")
A = TypeVar("A")
R = TypeVar("R")

Key = Callable[[Any], Any]
Reservoir = tuple[int, int, list[Any]]  # (random bits, count, values kept)


class CombineFn(Generic[V, A, R]):
    """An aggregation: zero, add, merge, finish; and subtract where it exists.

    `add` and `merge` may change and return their first argument; `merge` leaves its second fit for other use,
    and `finish` leaves the accumulator as it was. With `timed`, values arrive as `(time_us, value)` pairs.

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


def tie_break(value: object) -> bytes:
    """What tells values apart, the same in every process: their key encoding, or else their `repr`.

    >>> tie_break("a") < tie_break("b")
    True
    """
    from headrace.model.keys import encode_key

    try:
        return encode_key(value)
    except TypeError:
        return repr(value).encode(errors="backslashreplace")


def _plus(a: Any, b: Any) -> Any:
    """`a + b` after Python refused it: one side may be the int 0 that every sum begins with."""
    for zero, other in ((a, b), (b, a)):
        if type(zero) is int and zero == 0 and hasattr(other, "__add__") and not isinstance(other, Sequence):
            return other
    raise TypeError(f"SumFn: values need a + that commutes, got {a!r} + {b!r}; map them to numbers")


@dataclass(frozen=True, repr=False)
class CountFn(CombineFn[object, int, int]):
    """How many values.

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

    def add_by_key(self, held: dict[Any, int], pairs: Iterable[tuple[Any, object]]) -> None:
        for key, count in Counter(map(itemgetter(0), pairs)).items():
            held[key] = held.get(key, 0) + count


@dataclass(frozen=True, repr=False)
class SumFn(CombineFn[Any, Any, Any]):
    """The sum by `+`: exact for ints of any size and Fraction; floats round, and infinities do not subtract.

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

    def add_by_key(self, held: dict[Any, Any], pairs: Iterable[tuple[Any, Any]]) -> None:
        get = held.get
        for key, value in pairs:
            try:
                held[key] = get(key, 0) + value
            except TypeError:
                held[key] = self.add(get(key, 0), value)


@dataclass(frozen=True, repr=False)
class MeanFn(CombineFn[Any, tuple[Any, int], Any]):
    """The arithmetic mean; of no values, nan.

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
    """The sample variance (divided by count - 1); of fewer than two values, nan.

    The accumulator is (count, mean, sum of squared deviations), merged by Chan's formula, which does not
    cancel as sums of squares do. No `subtract`: taking out an outlier would leave its rounding error behind.

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


# Types whose equal values are interchangeable, so that plain comparison picks a right one.
_INTERCHANGEABLE = frozenset({bool, int, float, str, bytes, dt.date, dt.datetime, dt.timedelta})


def _before(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    """The total order of entries (rank, value): by rank, NaN above all as in Spark, then by `tie_break`."""
    if a[0] < b[0]:
        return True
    if b[0] < a[0]:
        return False
    if a[0] == b[0]:
        if a[0] is a[1] and b[0] is b[1]:
            return False
    elif (a[0] != a[0]) != (b[0] != b[0]):
        return bool(b[0] != b[0])
    return tie_break(a[1]) < tie_break(b[1])


# Entries for a heap that gives up its smallest, and for one that gives up its largest.
class _Rising(tuple[Any, ...]):
    __slots__ = ()

    def __lt__(self, other: tuple[Any, ...]) -> bool:
        return _before(self, other)


class _Falling(tuple[Any, ...]):
    __slots__ = ()

    def __lt__(self, other: tuple[Any, ...]) -> bool:
        return _before(other, self)


class _BestFn(CombineFn[Any, list[Any], Any]):
    """A heap of the `n` largest values, in `reverse` the smallest, by `key` or by time."""

    n: int
    key: Key | None = None
    reverse: bool = False

    def _entry(self, value: Any) -> tuple[Any, ...]:
        pair = value if self.timed else (value if self.key is None else self.key(value), value)
        return _Falling(pair) if self.reverse else _Rising(pair)

    def zero(self) -> list[Any]:
        return []

    def add(self, acc: list[Any], value: Any) -> list[Any]:
        return self.merge(acc, [self._entry(value)])

    def merge(self, a: list[Any], b: list[Any]) -> list[Any]:
        for entry in b:
            if len(a) < self.n:
                heapq.heappush(a, entry)
            else:
                heapq.heappushpop(a, entry)
        return a

    def finish(self, acc: list[Any]) -> Any:
        return acc[0][1] if acc else None

    def add_all(self, acc: list[Any], values: Sequence[Any]) -> list[Any]:
        kinds = set(map(type, values))
        if self.key is None and kinds <= _INTERCHANGEABLE and not any(map(ne, values, values)):
            values = (heapq.nsmallest if self.reverse else heapq.nlargest)(self.n, values)
        return self.merge(acc, list(map(self._entry, values)))

    def dump(self, acc: list[Any]) -> object:
        return list(map(tuple, acc))

    def load(self, data: Any) -> list[Any]:
        return list(map(_Falling if self.reverse else _Rising, data))


@dataclass(frozen=True, repr=False)
class MinFn(_BestFn):
    """The smallest value, or the value with the smallest `key`; NaN counts as larger than any number.

    >>> MinFn(key=len).finish(MinFn(key=len).add_all([], ["mill", "headrace"]))
    'mill'
    """

    n = 1
    key: Key | None = None
    reverse = True


@dataclass(frozen=True, repr=False)
class MaxFn(_BestFn):
    """The largest value, or the value with the largest `key`; NaN counts as larger than any number.

    >>> MaxFn(key=len).finish(MaxFn(key=len).add_all([], ["mill", "headrace"]))
    'headrace'
    """

    n = 1
    key: Key | None = None


@dataclass(frozen=True, repr=False)
class FirstFn(_BestFn):
    """The value with the earliest time.

    >>> FirstFn().finish(FirstFn().add_all([], [(20, "b"), (10, "a")]))
    'a'
    """

    n = 1
    timed = True
    reverse = True


@dataclass(frozen=True, repr=False)
class LastFn(_BestFn):
    """The value with the latest time.

    >>> LastFn().finish(LastFn().add_all([], [(20, "b"), (10, "a")]))
    'b'
    """

    n = 1
    timed = True


@dataclass(frozen=True, repr=False)
class TopFn(_BestFn):
    """The n largest values (by `key`), largest first; with `reverse`, the n smallest, smallest first.

    Holds n values at most. NaN counts as larger than any number.

    >>> top = TopFn(2)
    >>> top.finish(top.add_all(top.zero(), [3, 1, 4, 1, 5]))
    [5, 4]
    """

    n: int
    key: Key | None = None
    reverse: bool = False

    def __post_init__(self) -> None:
        _check_size(self, self.n)

    def finish(self, acc: list[Any]) -> list[Any]:
        return [value for _, value in sorted(acc, reverse=True)]


def _check_size(fn: object, n: object) -> None:
    if not isinstance(n, int) or n < 1:
        name = type(fn).__name__
        raise ValueError(f"{name}: n must be a positive integer, got {n!r}; give a size, e.g. {name}(3)")


@dataclass(frozen=True, repr=False)
class CollectFn(CombineFn[Any, list[Any], list[Any]]):
    """All values as a list, in no promised order.

    >>> CollectFn().finish(CollectFn().add_all([], "ab"))
    ['a', 'b']
    """

    def zero(self) -> list[Any]:
        return []

    def add(self, acc: list[Any], value: Any) -> list[Any]:
        acc.append(value)
        return acc

    def merge(self, a: list[Any], b: list[Any]) -> list[Any]:
        a.extend(b)
        return a

    def finish(self, acc: list[Any]) -> list[Any]:
        return acc.copy()

    def add_all(self, acc: list[Any], values: Sequence[Any]) -> list[Any]:
        acc.extend(values)
        return acc


def _random_bits(*origin: int | bytes) -> int:
    """64 bits that pass for random, the same for the same origin in every process."""
    return int.from_bytes(hashlib.blake2b(repr(origin).encode(), digest_size=8).digest())


@dataclass(frozen=True, repr=False)
class SampleFn(CombineFn[Any, Reservoir, list[Any]]):
    """A uniform sample of at most n values, without replacement, in no promised order.

    The same adds and merges in the same order give the same sample; another split, another one as uniform.

    >>> sample = SampleFn(3, seed=7)
    >>> kept = sample.finish(sample.add_all(sample.zero(), range(100)))
    >>> len(set(kept)), set(kept) <= set(range(100))
    (3, True)
    """

    n: int
    seed: int = 0

    def __post_init__(self) -> None:
        _check_size(self, self.n)

    def zero(self) -> Reservoir:
        return (_random_bits(self.seed), 0, [])

    def add(self, acc: Reservoir, value: Any) -> Reservoir:
        # Without the value stirred in, every part of the data would keep the same places.
        bits, count, kept = _random_bits(acc[0], tie_break(value)), acc[1] + 1, acc[2]
        if count <= self.n:
            kept.append(value)
        elif (place := bits * count >> 64) < self.n:
            kept[place] = value
        return (bits, count, kept)

    def merge(self, a: Reservoir, b: Reservoir) -> Reservoir:
        if not a[1]:
            return (b[0], b[1], b[2].copy())
        if not b[1]:
            return a
        bits, count = _random_bits(a[0], b[0]), a[1] + b[1]
        draw = Random(bits)
        places = draw.sample(range(count), min(self.n, count))
        from_a = sum(place < a[1] for place in places)
        return (bits, count, draw.sample(a[2], from_a) + draw.sample(b[2], len(places) - from_a))

    def finish(self, acc: Reservoir) -> list[Any]:
        return acc[2].copy()


@dataclass(frozen=True, init=False, repr=False)
class TupleFn(CombineFn[Any, list[Any], tuple[Any, ...]]):
    """Several aggregations of the same values, as a tuple; those not `timed` see the values alone.

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


_COMPACT_AT = 64  # enough values to be worth a call of the function, few enough to hold for every key


@dataclass(frozen=True, repr=False)
class CallableFn(CombineFn[Any, list[Any], Any]):
    """A plain function as an aggregation: of two values, or of an iterable of values.

    It must be associative and commutative, as it is applied to parts of the values and to its own results:
    `fn([fn(a), fn(b)]) == fn(a + b)`; and it must not change its arguments. Of no values, a function of two
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
            raise ValueError(f"{self!r}: no answer for no values, it raised {error!r}; {remedy}") from error

    def add_all(self, acc: list[Any], values: Sequence[Any]) -> list[Any]:
        acc.extend(values)
        return acc if len(acc) < _COMPACT_AT else [self._reduced(acc)]


def _takes_two(fn: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):  # a builtin such as max, which tells nothing of itself
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(each.kind in positional and each.default is each.empty for each in parameters) == 2


_SUM = SumFn()
_NATIVE: tuple[tuple[Callable[..., Any], CombineFn[Any, Any, Any]], ...] = (
    (sum, _SUM),
    (min, MinFn()),
    (max, MaxFn()),
    (len, CountFn()),
    (list, CollectFn()),
    (statistics.mean, MeanFn()),
    (statistics.fmean, MeanFn()),
    (statistics.variance, VarianceFn()),
)


def combine_fn(x: object) -> CombineFn[Any, Any, Any]:
    """The aggregation that `x` means: a CombineFn, its class, a function such as `sum`, any other callable.

    >>> combine_fn(sum), combine_fn(MeanFn), combine_fn(TopFn(3))
    (SumFn(), MeanFn(), TopFn(3))
    >>> combine_fn(3)
    Traceback (most recent call last):
        ...
    TypeError: combine_fn: takes a CombineFn or a callable, got 3; give e.g. sum or SumFn()
    """
    if isinstance(x, CombineFn):
        return x
    for known, native in _NATIVE:
        if x is known:
            return native
    if isinstance(x, type) and issubclass(x, CombineFn):
        return x()
    if not callable(x):
        raise TypeError(f"combine_fn: takes a CombineFn or a callable, got {x!r}; give e.g. sum or SumFn()")
    # A container of containers is not the container of all; nor is a median of medians the median.
    if isinstance(x, type) or x is sorted or getattr(x, "__module__", "") == "statistics":
        name = getattr(x, "__name__", repr(x))
        raise TypeError(f"combine_fn: {name} is not associative; use CollectFn() and map {name} over the lists")
    return CallableFn(x)
