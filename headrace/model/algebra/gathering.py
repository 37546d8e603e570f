"""Aggregations that store values: all of them, the different ones, or a uniform sample."""

import hashlib
import json
import math
import operator
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from headrace.model.algebra.protocol import CombineFn, check_size, tie_break

Reservoir = tuple[int, int, list[Any]]  # (random bits, count, sampled values)


@dataclass(frozen=True, repr=False)
class CollectFn(CombineFn[Any, list[Any], list[Any]]):
    """Collects all values in a list, in no particular order.

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


@dataclass(frozen=True, repr=False)
class CountDistinctFn(CombineFn[Any, set[Any], int]):
    """Counts the different values exactly. The accumulator is the set of them, so it grows with the answer.

    Dumped, a set of integers takes 1 to 8 bytes per value, and a set of text about half the size of the text; an answer
    reads it all. With millions of values per key, use `ApproxDistinctFn`, which takes 4 KB.

    >>> distinct = CountDistinctFn()
    >>> distinct.finish(distinct.add_all(distinct.zero(), ["a", "b", 1, 1.0, True]))
    3
    """

    def zero(self) -> set[Any]:
        return set()

    def add(self, acc: set[Any], value: Any) -> set[Any]:
        return self.add_all(acc, (value,))

    def add_all(self, acc: set[Any], values: Sequence[Any]) -> set[Any]:
        try:
            # All NaNs are one value, as in SQL, although Python says that they differ.
            unified = [math.nan if value != value else value for value in values] if _any_nan(values) else values
            acc.update(unified)
        except TypeError:
            raise TypeError(
                f"CountDistinctFn: values must be hashable, got e.g. {values[0]!r}; map them to text or tuples first"
            ) from None
        return acc

    def merge(self, a: set[Any], b: set[Any]) -> set[Any]:
        a |= b
        return a

    def finish(self, acc: set[Any]) -> int:
        return len(acc)

    def dump(self, acc: set[Any]) -> object:
        kinds = set(map(type, acc))
        if kinds == {int} and min(acc) >= -(2**63) and max(acc) < 2**63:
            numbers = np.sort(np.fromiter(acc, np.int64, len(acc)))
            return b"i" + zlib.compress(np.diff(numbers, prepend=np.int64(0)).tobytes(), 1)
        if kinds == {str}:
            return b"s" + zlib.compress(json.dumps(sorted(acc)).encode(), 1)
        return sorted(acc, key=tie_break)

    def load(self, data: Any) -> set[Any]:
        if isinstance(data, bytes) and data[:1] == b"i":
            return set(np.cumsum(np.frombuffer(zlib.decompress(data[1:]), np.int64)).tolist())
        if isinstance(data, bytes):
            return set(json.loads(zlib.decompress(data[1:])))
        return self.add_all(set(), data)


def _any_nan(values: Sequence[Any]) -> bool:
    return any(map(operator.ne, values, values))


def _random_bits(*origin: int | bytes) -> int:
    """Returns 64 pseudo-random bits, the same for the same origin in every process."""
    return int.from_bytes(hashlib.blake2b(repr(origin).encode(), digest_size=8).digest())


@dataclass(frozen=True, repr=False)
class SampleFn(CombineFn[Any, Reservoir, list[Any]]):
    """Draws a uniform sample of at most n values, without replacement, in no particular order.

    The same adds and merges in the same order give the same sample; another split gives another uniform sample.

    >>> sample = SampleFn(3, seed=7)
    >>> values = sample.finish(sample.add_all(sample.zero(), range(100)))
    >>> len(set(values)), set(values) <= set(range(100))
    (3, True)
    """

    n: int
    seed: int = 0

    def __post_init__(self) -> None:
        check_size(self, self.n)

    def zero(self) -> Reservoir:
        return (_random_bits(self.seed), 0, [])

    def add(self, acc: Reservoir, value: Any) -> Reservoir:
        # Without the value in the bits, the sample of every part of the data would have the same positions.
        bits, count, sample = _random_bits(acc[0], repr(tie_break(value)).encode()), acc[1] + 1, acc[2]
        if count <= self.n:
            sample.append(value)
        elif (place := bits * count >> 64) < self.n:
            sample[place] = value
        return (bits, count, sample)

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
