"""Slots: a fixed number of ranges of hashes to which keys belong, and the shards to which slots belong.

A key never changes its slot. A stream that goes on with another number of shards moves whole slots. Each shard has
neighbouring slots, so that from n shards to m there are fewer than n + m moves.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from headrace.engine.columns.hashing import hash_bytes
from headrace.model.times import Int64Array

SLOTS: Final = 1 << 16
"""The number of slots, and so the most shards that a stream can have."""


def slots_of(keys: pa.BinaryArray) -> Int64Array:
    """Returns the slot of each encoded key, the same in every process and every release.

    >>> slots_of(pa.array([b"a", b"b", b"a"])).tolist()
    [65067, 27666, 65067]
    """
    # Neither the lower half of the hash, by which a shard finds its windows, nor the highest bits, by which it writes
    # its state in parts: they must not be the same for all of its keys.
    slots: Int64Array = ((hash_bytes(keys) >> np.uint64(32)) & np.uint64(SLOTS - 1)).astype(np.int64)
    return slots


def shards_of(keys: pa.BinaryArray, shards: int, *, by_slot: bool = True) -> Int64Array:
    """Returns the shard of each encoded key, the same in every process.

    Streams that began with an earlier version have no slots: there a key belongs to the remainder of its hash.

    >>> keys = pa.array([b"a", b"b", b"a"])
    >>> shards_of(keys, 4).tolist(), shards_of(keys, 4, by_slot=False).tolist()
    ([3, 1, 3], [3, 2, 3])
    """
    if by_slot:
        return slots_of(keys) * shards // SLOTS
    numbers: Int64Array = (hash_bytes(keys) >> np.uint64(32)).astype(np.int64) % shards
    return numbers


def shards_in(shard: int, shards: int, others: int) -> range:
    """Returns which of so many other shards have slots of this one.

    >>> shards_in(1, 4, 64), shards_in(40, 64, 3), shards_in(0, 3, 2)
    (range(16, 32), range(1, 2), range(0, 1))
    """
    first, last = -(-shard * SLOTS // shards), -(-(shard + 1) * SLOTS // shards) - 1
    return range(first * others // SLOTS, last * others // SLOTS + 1)
