"""Times of timely dataflow, their order, and antichains.

A time is a tuple: the epoch, then a counter for each loop it is in, the outermost first. Times of one depth are
ordered coordinate by coordinate: (0, 5) and (1, 0) are not comparable, since neither can wait for the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeAlias, TypeVar

Time: TypeAlias = tuple[int, ...]

T = TypeVar("T")


def is_before(one: Time, other: Time) -> bool:
    """Says whether a time is at or before another of the same depth.

    >>> is_before((0, 1), (0, 5)), is_before((0, 5), (1, 0)), is_before((1, 0), (0, 5))
    (True, False, False)
    """
    return all(a <= b for a, b in zip(one, other, strict=True))


def least_upper_bound(one: Time, other: Time) -> Time:
    """Returns the first time at which both have been reached.

    >>> least_upper_bound((0, 5), (1, 0))
    (1, 5)
    """
    return tuple(max(a, b) for a, b in zip(one, other, strict=True))


class Antichain(Generic[T]):
    """A set of which no element is at or before another: the minimal ones of all that were added.

    >>> sorted(Antichain(is_before, [(0, 5), (1, 0), (1, 5)]))
    [(0, 5), (1, 0)]
    """

    def __init__(self, before: Callable[[T, T], bool], elements: Iterable[T] = ()) -> None:
        self._before = before
        self._elements: list[T] = []
        for element in elements:
            self.add(element)

    def add(self, element: T) -> bool:
        """Adds an element unless one is before it, removes those behind it, and says whether it was added."""
        if self.covers(element):
            return False
        self._elements = [each for each in self._elements if not self._before(element, each)]
        self._elements.append(element)
        return True

    def covers(self, element: T) -> bool:
        """Says whether some element is at or before this one."""
        return any(self._before(each, element) for each in self._elements)

    def __iter__(self) -> Iterator[T]:
        return iter(self._elements)

    def __len__(self) -> int:
        return len(self._elements)

    def __repr__(self) -> str:
        return f"Antichain({self._elements})"
