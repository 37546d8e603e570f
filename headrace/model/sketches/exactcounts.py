"""Counts of values that are exact while there are few different ones, and then a sketch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

from headrace.model.algebra import CombineFn
from headrace.model.sketches.hashedvalues import hashed_as

S = TypeVar("S")
R = TypeVar("R")
Counts = dict[int | str, int]

MOST: Final = 1000
"""Different values up to which counts are exact."""


class CountedFn(CombineFn[Any, Any, R], ABC, Generic[S, R]):
    """Base of sketches of counts. The accumulator is a dict of counts, and beyond 1,000 values the sketch of them.

    A sketch must be linear: its bits then depend on the values alone, however they are split.
    """

    @abstractmethod
    def new_sketch(self) -> S:
        """Returns a sketch of no values."""

    @abstractmethod
    def update(self, sketch: S, counts: Mapping[int | str, int]) -> None:
        """Adds counts to a sketch."""

    @abstractmethod
    def merge_sketches(self, a: S, b: S) -> None:
        """Merges the second sketch into the first."""

    @abstractmethod
    def dump_sketch(self, sketch: S) -> bytes:
        """Converts a sketch to bytes."""

    @abstractmethod
    def load_sketch(self, data: bytes) -> S:
        """Converts what `dump_sketch` returned back to the sketch."""

    def zero(self) -> Any:
        return {}

    def add(self, acc: Any, value: Any) -> Any:
        return self.add_all(acc, (value,))

    def add_all(self, acc: Any, values: Sequence[Any]) -> Any:
        return self._add(acc, Counter(map(hashed_as, values)))

    def merge(self, a: Any, b: Any) -> Any:
        if isinstance(b, dict):
            return self._add(a, b)
        if isinstance(a, dict):
            counts, a = a, self.new_sketch()
            self.update(a, counts)
        self.merge_sketches(a, b)
        return a

    def is_exact(self, acc: Any) -> bool:
        return isinstance(acc, dict)

    def dump(self, acc: Any) -> object:
        if isinstance(acc, dict):  # in order, so that equal counts have equal bytes
            return dict(sorted(acc.items(), key=lambda count: (isinstance(count[0], str), count[0])))
        return self.dump_sketch(acc)

    def load(self, data: Any) -> Any:
        return dict(data) if isinstance(data, dict) else self.load_sketch(data)

    def _add(self, acc: Any, counts: Mapping[int | str, int]) -> Any:
        if not isinstance(acc, dict):
            self.update(acc, counts)
            return acc
        for value, count in counts.items():
            acc[value] = acc.get(value, 0) + count
        if len(acc) <= MOST:
            return acc
        sketch = self.new_sketch()
        self.update(sketch, acc)
        return sketch
