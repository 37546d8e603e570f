"""Counts of elements by key, which number the elements of CountWindows. Keys are never removed."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.engine.columns.hashing import HASHES, Hashes, hash_bytes, mixed
from headrace.engine.shard.keyslots import KeySlots
from headrace.engine.shard.stateblocks import one_array
from headrace.model.times import Int64Array


class Ordinals:
    """Counts of elements by key.

    >>> ordinals = Ordinals()
    >>> [ordinals.count(pa.array([b"a", b"b"]), np.array([2, more])).tolist() for more in (1, 5)]
    [[0, 0], [2, 1]]
    >>> ordinals.of(b"b"), ordinals.of(b"c")
    (6, 0)
    """

    def __init__(self) -> None:
        self._by_key = KeySlots()
        self._number = np.zeros(0, np.int64)
        self._used = 0
        self._touched: list[Int64Array] = []  # since the state was last written

    def count(self, keys: pa.BinaryArray, more: Int64Array) -> Int64Array:
        """Adds to the counts of keys, of which no two are equal; returns the counts before."""
        slots = self._slots(keys)
        before = self._number[slots]
        self._number[slots] += more
        self._touched.append(slots)
        return before

    def of(self, key: bytes) -> int:
        """Returns how many elements a key has had."""
        (slot,) = self._find(keys := pa.array([key]), _hashes(keys)).tolist()
        return 0 if slot < 0 else int(self._number[slot])

    def counts(self, *, low: int = 0, high: int = HASHES) -> pa.Table:
        """Returns the counts of all keys whose hashes are in a range, sorted by key."""
        return self._table(np.flatnonzero(self._by_key.between(low, high, self._used)))

    def changed(self) -> pa.Table:
        """Returns the counts that changed since the state was last written."""
        return self._table(np.unique(np.concatenate([np.zeros(0, np.int64), *self._touched])))

    def written(self) -> None:
        """Notes that the state was written."""
        self._touched = []

    def load(self, counts: pa.Table) -> None:
        """Restores counts; if a key has several, the last is right."""
        if counts.num_rows:
            encoded = one_array(counts, "key").dictionary_encode()
            numbers = np.zeros(len(encoded.dictionary), np.int64)
            numbers[np.asarray(encoded.indices)] = counts.column("number").to_numpy()
            slots = self._slots(encoded.dictionary)  # which may make room
            self._number[slots] = numbers

    def _table(self, slots: Int64Array) -> pa.Table:
        table = pa.table({"key": self._by_key.keys.take(slots), "number": self._number[slots]})
        return table.sort_by("key")

    def _slots(self, keys: pa.BinaryArray) -> Int64Array:
        hashes = _hashes(keys)
        slots = self._find(keys, hashes)
        new = slots < 0
        slots[new] = opened = np.arange(self._used, self._used + np.count_nonzero(new))
        self._used += len(opened)
        if self._used > len(self._number):
            size = max(self._used, 2 * len(self._number))
            self._number = np.concatenate([self._number, np.zeros(size - len(self._number), np.int64)])
            self._by_key.reserve(size)
        self._by_key.put(opened, keys.filter(pa.array(new)), hashes[new])
        return slots

    def _find(self, keys: pa.BinaryArray, hashes: Hashes) -> Int64Array:
        at, slots = self._by_key.find(keys, hashes)
        slot_of = np.full(len(keys), -1, np.int64)
        slot_of[at] = slots
        return slot_of


def _hashes(keys: pa.BinaryArray) -> Hashes:
    # Not the hashes that decided the shard of a key: a shard has only some of those.
    return mixed(hash_bytes(keys))
