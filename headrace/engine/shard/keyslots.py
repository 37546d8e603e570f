"""Slots by key: encoded keys in one column, found by hash."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.engine.columns.bytecolumn import ByteColumn
from headrace.engine.columns.hashing import HASHES, Hashes
from headrace.engine.columns.slotindex import SlotIndex
from headrace.model.times import Int64Array


class KeySlots:
    """The keys of slots, and an index by a hash of theirs that the owner computes; several slots may have one key.

    >>> slots = KeySlots()
    >>> slots.reserve(2)
    >>> slots.put(np.array([0, 1]), pa.array([b"a", b"b"]), np.array([7, 7], np.uint64))
    >>> [found.tolist() for found in slots.find(pa.array([b"b", b"c"]), np.array([7, 7], np.uint64))]
    [[0], [1]]
    """

    def __init__(self) -> None:
        self.keys, self.index = ByteColumn(), SlotIndex()

    def reserve(self, slots: int) -> None:
        """Makes room for so many slots in all."""
        self.keys.reserve(slots)
        self.index.reserve(slots)

    def put(self, slots: Int64Array, keys: pa.BinaryArray, hashes: Hashes) -> None:
        """Puts in slots that are not there."""
        self.keys.put(slots, keys)
        self.index.add(slots, hashes)

    def remove(self, slots: Int64Array) -> None:
        """Takes out slots that are there."""
        self.index.remove(slots)
        self.keys.clear(slots)

    def find(self, keys: pa.BinaryArray, hashes: Hashes) -> tuple[Int64Array, Int64Array]:
        """Returns all slots of these keys and hashes: for each the position of its key, and the slot."""
        return self.with_key(keys, *self.index.pairs(hashes))

    def with_key(self, keys: pa.BinaryArray, at: Int64Array, slots: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Returns those of the slots that have the key at their position."""
        same = np.asarray(pc.equal(keys.take(pa.array(at)), self.keys.take(slots)))
        return (at, slots) if same.all() else (at[same], slots[same])

    def between(self, low: int, high: int, used: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Returns whether the hash of each of the first so many slots is in a range."""
        if high - low >= HASHES:
            return np.ones(used, np.bool_)
        hashes = self.index.hashes[:used]
        return (hashes >= np.uint64(low)) & (hashes <= np.uint64(high - 1))
