"""64-bit ids of tuples and of trees of tuples, as arrays. A batch that is replayed has the same ids again.

A root (the id of a tree) is its spout task and the tuple's place in that task's sequence: no two trees share one.
The id of a tuple is mixed from task, batch and a counter. Within one task and batch no two are equal, because the
mixing is a bijection; otherwise they are as good as random. The acker is misled only if ids of one tree that are not
acked yet cancel out: for a tree of k tuples in at most about k² / 2^65 cases, 3 in 10^14 for 1,000 tuples.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from headrace.dialects.storm.api.tuples import Ids
from headrace.engine.columns.hashing import mixed
from headrace.model.times import Int64Array

NO_ROOT: Final = np.uint64(0)
"""The root of a tuple that belongs to no tree: an unanchored tuple, or a tick tuple."""

_STEP: Final = 0x9E3779B97F4A7C15  # odd, so that its multiples take all 2^64 values before one repeats
_SEQUENCE_BITS: Final = 40
_MASK: Final = 2**64 - 1


def root_ids(task: int, sequence: Int64Array) -> Ids:
    """Returns the roots of a spout task's tuples by their places in its sequence.

    >>> root_ids(2, np.array([0, 1])).tolist() == [(2 << 40) + 1, (2 << 40) + 2]
    True
    """
    return (sequence + ((task << _SEQUENCE_BITS) + 1)).astype(np.uint64)  # + 1: no root is NO_ROOT


def sequence_of(roots: Ids) -> tuple[Int64Array, Int64Array]:
    """Returns the spout tasks of roots, and the places of the tuples in the sequences of these tasks.

    >>> [part.tolist() for part in sequence_of(root_ids(2, np.array([0, 7])))]
    [[2, 2], [0, 7]]
    """
    numbers = roots.astype(np.int64) - 1
    return numbers >> _SEQUENCE_BITS, numbers & ((1 << _SEQUENCE_BITS) - 1)


def seed_of(task: int, batch: int) -> int:
    """Returns the seed of the tuple ids of a task in the micro-batch of this time.

    >>> seed_of(1, 5) == seed_of(1, 5), seed_of(1, 5) == seed_of(2, 5), seed_of(1, 5) == seed_of(1, 6)
    (True, False, False)
    """
    return int(mixed(np.array([task], np.uint64), np.array([batch], np.int64))[0])


def tuple_ids(seed: int, first: int, count: int) -> Ids:
    """Returns `count` tuple ids of a seed, from the one numbered `first` on. None is 0, which would count as acked.

    >>> ids = tuple_ids(seed_of(1, 5), 0, 4)
    >>> tuple_ids(seed_of(1, 5), 2, 2).tolist() == ids[2:].tolist(), len(set(ids.tolist()))
    (True, 4)
    """
    start = np.uint64((seed + first * _STEP) & _MASK)
    ids = mixed(np.arange(count, dtype=np.uint64) * np.uint64(_STEP) + start)
    ids[ids == 0] = 1
    return ids
