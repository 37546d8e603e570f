"""Values of a state table: those that cannot change are stored as they are, others as their pickles.

A function gets a new object for each call, as it would from Spark, so whatever it does to it stays its own affair until
it returns it. What is stored changes in no other way.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any, Final

from headrace.model.pickling import dumps

_ATOMIC: Final = frozenset({int, float, str, bytes, bool, type(None), complex})


class Packed:
    """The pickle of a value."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Packed) and self.data == other.data

    def __hash__(self) -> int:
        return hash(self.data)

    def __reduce__(self) -> tuple[type[Packed], tuple[bytes]]:
        return Packed, (self.data,)


def pack(value: Any) -> Any:
    """Returns a value as it is stored.

    >>> pack(3), pack((1, "a")), type(pack([3])).__name__
    (3, (1, 'a'), 'Packed')
    """
    kind = type(value)
    if kind in _ATOMIC or (kind is tuple and _ATOMIC.issuperset(map(type, value))):
        return value
    return Packed(dumps(value))


def unpack(stored: Any) -> Any:
    """Returns the value of what is stored; one that may change is a new object each time.

    >>> unpack(pack([3]))
    [3]
    """
    return pickle.loads(stored.data) if type(stored) is Packed else stored


def is_plain(table: Mapping[Any, Any]) -> bool:
    """Returns whether all values of a table are numbers, texts and the like, which need no packing.

    >>> is_plain({"a": 1}), is_plain({"a": pack([])})
    (True, False)
    """
    return _ATOMIC.issuperset(map(type, table.values()))


def same(stored: Any, other: Any) -> bool:
    """Returns whether two stored values are the same, so that nothing has to be written.

    >>> same(1, 1), same(1, True), same(0.0, -0.0)
    (True, False, False)
    """
    if stored is other:
        return True
    kind = type(stored)
    if kind is not type(other):
        return False
    if kind is int or kind is str or kind is bytes or kind is Packed:
        return bool(stored == other)
    return dumps(stored) == dumps(other)  # floats and tuples: 0.0 equals -0.0, and 1 equals True
