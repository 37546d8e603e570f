"""Slots of a join's shard: a number for each key and window that rows wait in."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.engine.columns.arrays import distinct
from headrace.engine.columns.hashing import hash_bytes
from headrace.engine.shard.keyslots import KeySlots
from headrace.model.times import Int64Array


class JoinSlots:
    """The numbers of keys and windows that rows wait in, and how many rows of each side there are.

    >>> slots = JoinSlots()
    >>> slots.of(pa.array([b"a", b"b"])).tolist(), slots.of(pa.array([b"c", None, b"a"])).tolist()
    ([0, 1], [2, -1, 0])
    """

    def __init__(self) -> None:
        self.names, self.used = KeySlots(), 0
        self.count = np.zeros((2, 0), np.int64)
        self._free = np.zeros(0, np.int64)

    @property
    def held(self) -> int:
        """The number of slots that are in use."""
        return self.used - len(self._free)

    def of(self, names: pa.BinaryArray) -> Int64Array:
        """Returns the slots of different encoded keys and windows; those that are new get one, and null has -1."""
        slots = np.full(len(names), -1, np.int64)
        if names.null_count:
            valid = np.asarray(names.is_valid())
            slots[valid] = self.of(names.filter(pa.array(valid)))
            return slots
        hashes = hash_bytes(names)
        at, found = self.names.find(names, hashes)
        slots[at] = found
        if len(new := np.flatnonzero(slots < 0)):
            slots[new] = self._take(len(new))
            self.names.put(slots[new], names.take(pa.array(new)), hashes[new])
        return slots

    def _take(self, count: int) -> Int64Array:
        again, self._free = self._free[:count], self._free[count:]
        more = np.arange(self.used, self.used + count - len(again))
        self.used += len(more)
        if self.used > self.count.shape[1]:
            room = max(self.used, 2 * self.count.shape[1])
            self.count = np.hstack([self.count, np.zeros((2, room - self.count.shape[1]), np.int64)])
            self.names.reserve(room)
        return np.concatenate([again, more])

    def add(self, side: int, slots: Int64Array, sign: int) -> None:
        """Counts rows that came, or that went with the sign -1."""
        self.count[side, : self.used] += sign * np.bincount(slots[slots >= 0], minlength=self.used)

    def release(self, slots: Int64Array) -> None:
        """Frees those of the slots that have no rows any more."""
        slots = distinct(slots[slots >= 0])
        empty = slots[(self.count[:, slots] == 0).all(axis=0)]
        if len(empty):
            self.names.remove(empty)
            self._free = np.concatenate([self._free, empty])
