"""An index of slots by hash, as arrays: a chain of slots for each bucket of hashes.

It knows nothing of what was hashed: several slots may have one hash, and whoever asks compares what it really looks
for. Finding, adding and removing cost as much as what is asked for, not as what is in the index.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from headrace.engine.columns.arrays import distinct
from headrace.engine.columns.hashing import Hashes
from headrace.model.times import Int64Array

_NONE: Final = -1
_SPREAD: Final = np.uint64(0x9E3779B97F4A7C15)


class SlotIndex:
    """An index of slots by hash.

    >>> index = SlotIndex()
    >>> index.reserve(3)
    >>> index.add(np.array([0, 2]), np.array([7, 7], np.uint64))
    >>> [matches.tolist() for matches in index.pairs(np.array([5, 7], np.uint64))]
    [[1, 1], [0, 2]]
    """

    def __init__(self) -> None:
        self.hashes: Hashes = np.zeros(0, np.uint64)  # by slot
        self._bits = 4
        self._first: npt.NDArray[np.int32] = np.full(1 << self._bits, _NONE, np.int32)  # slot of each bucket's chain
        self._next: npt.NDArray[np.int32] = np.zeros(0, np.int32)  # by slot
        self._count = 0

    def reserve(self, slots: int) -> None:
        """Makes room for so many slots in all."""
        more = max(slots - len(self._next), 0)
        self._next = np.concatenate([self._next, np.zeros(more, np.int32)])
        self.hashes = np.concatenate([self.hashes, np.zeros(more, np.uint64)])

    def add(self, slots: Int64Array, hashes: Hashes) -> None:
        """Adds slots that are not there."""
        self._count += len(slots)
        if self._count > len(self._first):
            every = self._chained(np.arange(len(self._first)))
            self._bits = self._count.bit_length()
            self._first = np.full(1 << self._bits, _NONE, np.int32)
            self._link(every)
        self.hashes[slots] = hashes
        self._link(slots)

    def remove(self, slots: Int64Array) -> None:
        """Removes slots that are there."""
        self._count -= len(slots)
        buckets = distinct(self._buckets(self.hashes[slots]))
        chained = self._chained(buckets)
        self._first[buckets] = _NONE
        self._link(np.setdiff1d(chained, slots, assume_unique=True))

    def pairs(self, hashes: Hashes) -> tuple[Int64Array, Int64Array]:
        """Finds all slots that have one of these hashes; returns for each the position of its hash, and the slot."""
        at, slots = np.arange(len(hashes)), self._first[self._buckets(hashes)]
        positions, matches = [at[:0]], [slots[:0]]
        while True:
            on = slots >= 0
            if not on.all():
                at, slots = at[on], slots[on]
            if not len(at):
                break
            same = self.hashes[slots] == hashes[at]
            positions.append(at[same])
            matches.append(slots[same])
            slots = self._next[slots]
        return np.concatenate(positions), np.concatenate(matches).astype(np.int64)

    def _buckets(self, hashes: Hashes) -> Int64Array:
        # By bits that depend on all of the hash: those who cut ranges of hashes, or deal them out, use its ends.
        return ((hashes * _SPREAD) >> np.uint64(64 - self._bits)).astype(np.int64)

    def _chained(self, buckets: Int64Array) -> Int64Array:
        """Returns the slots in these buckets."""
        slots = self._first[buckets]
        parts = [slots[:0]]
        while len(slots := slots[slots >= 0]):
            parts.append(slots)
            slots = self._next[slots]
        return np.concatenate(parts).astype(np.int64)

    def _link(self, slots: Int64Array) -> None:
        """Puts slots at the head of the chains of their buckets."""
        if not len(slots):
            return
        buckets = self._buckets(self.hashes[slots])
        order = np.argsort(buckets, kind="stable")
        slots, buckets = slots[order], buckets[order]
        head = np.ones(len(slots), np.bool_)
        head[1:] = buckets[1:] != buckets[:-1]
        tail = np.append(head[1:], True)
        self._next[slots[:-1]] = slots[1:]
        self._next[slots[tail]] = self._first[buckets[tail]]
        self._first[buckets[head]] = slots[head]
