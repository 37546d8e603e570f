"""Elements as numbers: a pair is the codes of its two parts, anything else one code, and counts are an array.

Equal parts have one code, in Python's sense of equality, so elements are compared, joined and added up by arrays.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any, Final, NamedTuple

import numpy as np

from headrace.model.times import Int64Array

NO_PART: Final = -1
"""In place of the second code of what is no pair."""

_LARGEST: Final = 1 << 62
_ORDERED: Final = (int, str, bytes)


class NotByArrays(Exception):
    """Raised where numbers would be too large for an array, or elements are of kinds that arrays do not compare."""


class Coded(NamedTuple):
    """Changes as arrays: the codes of the first and second part of each element, and its count."""

    first: Int64Array
    second: Int64Array
    counts: Int64Array

    @property
    def pairs(self) -> bool:
        """Whether all elements are pairs."""
        return bool((self.second != NO_PART).all())

    def take(self, places: Any) -> Coded:
        """Returns the changes at places, or those that a mask has."""
        return Coded(self.first[places], self.second[places], self.counts[places])

    def same(self, other: Coded) -> bool:
        """Whether two that were added up are equal."""
        return all(np.array_equal(one, another) for one, another in zip(self, other, strict=True))


def together(parts: list[Coded]) -> Coded:
    """Puts changes behind each other."""
    return Coded(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def added_up(changes: Coded) -> Coded:
    """Adds up the counts of equal elements; they are in the order of their codes then."""
    check_sum(changes.counts)
    if not len(changes.first):
        return changes
    elements = (changes.first << 32) + (changes.second + 1)  # of so many parts no list could be made
    order = np.argsort(elements)
    elements = elements[order]
    first, second, counts = changes.take(order)
    new = np.ones(len(first), bool)
    new[1:] = elements[1:] != elements[:-1]
    starts = np.flatnonzero(new)
    total = Coded(first[starts], second[starts], np.add.reduceat(counts, starts))
    return total.take(total.counts != 0)


def check_sum(counts: Int64Array) -> None:
    """Refuses counts whose sum may be too large for an array."""
    if len(counts) and int(np.abs(counts).max()) * len(counts) >= _LARGEST:
        raise NotByArrays


def multiplied(one: Int64Array, other: Int64Array) -> Int64Array:
    """Multiplies counts, if all products fit."""
    if len(one) and int(np.abs(one).max()) * int(np.abs(other).max()) >= _LARGEST:
        raise NotByArrays
    return one * other


class Codes:
    """The codes of parts of elements: numbers from 0 on, in the order in which they came.

    >>> codes = Codes()
    >>> coded = codes.encode([(("a", 1), 1), ("b", 2)])
    >>> coded.first.tolist(), coded.second.tolist(), coded.counts.tolist()
    ([0, 1], [2, -1], [1, 2])
    >>> codes.decode(coded)
    [(('a', 1), 1), ('b', 2)]
    """

    def __init__(self) -> None:
        self._codes: dict[Any, int] = {}
        self._parts: list[Any] = []

    @property
    def parts(self) -> list[Any]:
        """All parts, by their codes."""
        self._parts.extend(islice(self._codes, len(self._parts), None))
        return self._parts

    def code(self, part: Any) -> int:
        """Returns the code of a part."""
        return self._codes.setdefault(part, len(self._codes))

    def encode(self, changes: Iterable[tuple[Any, int]]) -> Coded:
        """Encodes changes."""
        listed, codes, code = list(changes), self._codes, self._codes.setdefault
        pairs = [isinstance(element, tuple) and len(element) == 2 for element, _ in listed]
        if any(pair and type(element) is not tuple for pair, (element, _) in zip(pairs, listed, strict=True)):
            raise NotByArrays  # it is equal to a plain pair
        if all(pairs):
            first = [code(element[0], len(codes)) for element, _ in listed]
            second = [code(element[1], len(codes)) for element, _ in listed]
        else:
            found = zip(pairs, listed, strict=True)
            first = [code(element[0] if pair else element, len(codes)) for pair, (element, _) in found]
            found = zip(pairs, listed, strict=True)
            second = [code(element[1], len(codes)) if pair else NO_PART for pair, (element, _) in found]
        try:
            return Coded(*(np.array(column, np.int64) for column in (first, second, [count for _, count in listed])))
        except OverflowError:
            raise NotByArrays from None

    def decode(self, changes: Coded) -> list[tuple[Any, int]]:
        """Decodes changes."""
        parts = self.parts
        return [
            (parts[first] if second == NO_PART else (parts[first], parts[second]), count)
            for first, second, count in zip(*(column.tolist() for column in changes), strict=True)
        ]

    def ordered(self, codes: Int64Array) -> Int64Array:
        """Returns codes in the order of their parts, if these are of one kind that has an order."""
        kinds = {type(self.parts[code]) for code in codes.tolist()}
        if len(kinds) > 1 or not kinds.issubset(_ORDERED):
            raise NotByArrays
        return np.array(sorted(codes.tolist(), key=self.parts.__getitem__), np.int64)
