"""Aggregations that keep values: all of them, or a uniform sample."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from headrace.model.algebra.protocol import CombineFn, check_size, tie_break

Reservoir = tuple[int, int, list[Any]]  # (random bits, count, values kept)


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
        check_size(self, self.n)

    def zero(self) -> Reservoir:
        return (_random_bits(self.seed), 0, [])

    def add(self, acc: Reservoir, value: Any) -> Reservoir:
        # Without the value stirred in, every part of the data would keep the same places.
        bits, count, kept = _random_bits(acc[0], repr(tie_break(value)).encode()), acc[1] + 1, acc[2]
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
