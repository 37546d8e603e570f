"""64-bit numbers for tuples and for trees of tuples, as arrays: the same again when a batch is replayed.

A root (the number of a tree) is its spout task and the tuple's place in that task's sequence: no two trees share one.
The number of a tuple is mixed from task, batch and a counter. Within one task and batch no two are alike, since the
mixing is a bijection; otherwise they are as good as random. The acker can only be misled if numbers of one tree that
are not acked yet cancel out: for a tree of k tuples in at most about k² / 2^65 cases, 3 in 10^14 for 1,000 tuples.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.engine.columns.hashing import mixed
from headrace.model.times import Int64Array

Ids: TypeAlias = npt.NDArray[np.uint64]

NO_ROOT: Final = np.uint64(0)
"""The root of a tuple that belongs to no tree: one that is not anchored, or a tick."""

_STEP: Final = 0x9E3779B97F4A7C15  # odd, so that multiples of it take all 2^64 values before one comes again
_SEQUENCE_BITS: Final = 40
_MASK: Final = 2**64 - 1


def root_ids(task: int, sequence: Int64Array) -> Ids:
    """The roots of a spout task's tuples by their places in its sequence.

    >>> root_ids(2, np.array([0, 1])).tolist() == [(2 << 40) + 1, (2 << 40) + 2]
    True
    """
    return (sequence + ((task << _SEQUENCE_BITS) + 1)).astype(np.uint64)  # + 1: no root is NO_ROOT


def sequence_of(roots: Ids) -> tuple[Int64Array, Int64Array]:
    """Spout tasks and places in their sequences of roots.

    >>> [part.tolist() for part in sequence_of(root_ids(2, np.array([0, 7])))]
    [[2, 2], [0, 7]]
    """
    numbers = roots.astype(np.int64) - 1
    return numbers >> _SEQUENCE_BITS, numbers & ((1 << _SEQUENCE_BITS) - 1)


def seed_of(task: int, batch: int) -> int:
    """Where the numbers of a task's tuples begin in the batch of this time.

    >>> seed_of(1, 5) == seed_of(1, 5), seed_of(1, 5) == seed_of(2, 5), seed_of(1, 5) == seed_of(1, 6)
    (True, False, False)
    """
    return int(mixed(np.array([task], np.uint64), np.array([batch], np.int64))[0])


def tuple_ids(seed: int, first: int, count: int) -> Ids:
    """So many numbers of tuples, from the first-th of a seed on; none is zero, which would be as good as acked.

    >>> ids = tuple_ids(seed_of(1, 5), 0, 4)
    >>> tuple_ids(seed_of(1, 5), 2, 2).tolist() == ids[2:].tolist(), len(set(ids.tolist()))
    (True, 4)
    """
    start = np.uint64((seed + first * _STEP) & _MASK)
    ids = mixed(np.arange(count, dtype=np.uint64) * np.uint64(_STEP) + start)
    ids[ids == 0] = 1
    return ids
