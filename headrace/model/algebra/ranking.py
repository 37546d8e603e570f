"""Aggregations by rank: minimum, maximum, either by another value, first and last by time, the n best."""

import datetime as dt
import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import ne
from typing import Any

from headrace.model.algebra.protocol import CombineFn, check_size, tie_break

Key = Callable[[Any], Any]

# Types whose equal values are interchangeable, so that plain comparison is enough.
_INTERCHANGEABLE = frozenset({bool, int, float, str, bytes, dt.date, dt.datetime, dt.timedelta})


def _before(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    """Returns whether an entry (rank, value) is before another: by rank, NaN last as in Spark, then by `tie_break`."""
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


# Entries for a heap that pops its smallest, and for one that pops its largest.
class _Rising(tuple[Any, ...]):
    __slots__ = ()

    def __lt__(self, other: tuple[Any, ...]) -> bool:
        return _before(self, other)


class _Falling(tuple[Any, ...]):
    __slots__ = ()

    def __lt__(self, other: tuple[Any, ...]) -> bool:
        return _before(other, self)


class _BestFn(CombineFn[Any, list[Any], Any]):
    """Base of these aggregations: a heap of the `n` largest values, in `reverse` the smallest, by `key` or by time."""

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
    """Finds the smallest value, or the value with the smallest `key`; NaN counts as larger than any number.

    >>> MinFn(key=len).finish(MinFn(key=len).add_all([], ["mill", "headrace"]))
    'mill'
    """

    n = 1
    key: Key | None = None
    reverse = True


@dataclass(frozen=True, repr=False)
class MaxFn(_BestFn):
    """Finds the largest value, or the value with the largest `key`; NaN counts as larger than any number.

    >>> MaxFn(key=len).finish(MaxFn(key=len).add_all([], ["mill", "headrace"]))
    'headrace'
    """

    n = 1
    key: Key | None = None


@dataclass(frozen=True, repr=False)
class FirstFn(_BestFn):
    """Finds the value with the earliest time.

    >>> FirstFn().finish(FirstFn().add_all([], [(20, "b"), (10, "a")]))
    'a'
    """

    n = 1
    timed = True
    reverse = True


@dataclass(frozen=True, repr=False)
class LastFn(_BestFn):
    """Finds the value with the latest time.

    >>> LastFn().finish(LastFn().add_all([], [(20, "b"), (10, "a")]))
    'b'
    """

    n = 1
    timed = True


class _ByFn(_BestFn):
    """Base of these aggregations of pairs (value, by): the value of the best pair."""

    n = 1

    def _entry(self, value: Any) -> tuple[Any, ...]:
        of, by = value
        return _Falling((by, of)) if self.reverse else _Rising((by, of))

    def add(self, acc: list[Any], value: Any) -> list[Any]:
        return self.add_all(acc, (value,))

    def add_all(self, acc: list[Any], values: Sequence[Any]) -> list[Any]:
        return self.merge(acc, [self._entry(value) for value in values if value[1] is not None])


@dataclass(frozen=True, repr=False)
class MinByFn(_ByFn):
    """Finds, among pairs (value, by), the value with the smallest `by`, and of several such the smallest value.

    Pairs whose `by` is None do not count; a value that is None is smaller than any other.

    >>> MinByFn().finish(MinByFn().add_all([], [("mill", 4), ("sluice", 6), ("gate", 4)]))
    'gate'
    """

    reverse = True


@dataclass(frozen=True, repr=False)
class MaxByFn(_ByFn):
    """Finds, among pairs (value, by), the value with the largest `by`, and of several such the largest value.

    Pairs whose `by` is None do not count; NaN counts as larger than any number.

    >>> MaxByFn().finish(MaxByFn().add_all([], [("mill", 4), ("sluice", 6), ("gate", 4)]))
    'sluice'
    """


@dataclass(frozen=True, repr=False)
class TopFn(_BestFn):
    """Finds the n largest values (by `key`), the largest first; with `reverse`, the n smallest, the smallest first.

    It stores at most n values. NaN counts as larger than any number.

    >>> top = TopFn(2)
    >>> top.finish(top.add_all(top.zero(), [3, 1, 4, 1, 5]))
    [5, 4]
    """

    n: int
    key: Key | None = None
    reverse: bool = False

    def __post_init__(self) -> None:
        check_size(self, self.n)

    def finish(self, acc: list[Any]) -> list[Any]:
        return [value for _, value in sorted(acc, reverse=True)]
