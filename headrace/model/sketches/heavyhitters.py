"""Heavy hitters: the most frequent values, by a Misra-Gries summary."""

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.model.algebra import CombineFn, tie_break


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
