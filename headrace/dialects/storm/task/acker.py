"""The acker: finds out when trees of tuples are complete, in 32 bytes a tree, however many tuples a tree has.

It stores for each tree the XOR of the ids of the tuples that were emitted and of those that were acked. When every
tuple was both, each id is in it twice, and it is 0. The order in which the ids arrive does not matter.

Its input is record batches of ACKS, from spout tasks (one row begins a tree) and bolt tasks; its output is one batch of
VERDICTS. Acks of a tree that has ended (a late ack after a timeout) are stored for one timeout, as if the beginning of
the tree was still to come, then dropped and counted. So a tree that is tried again needs another root.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.dialects.storm.api.tuples import Ids
from headrace.engine.columns.hashing import HASHES, mixed
from headrace.model.times import Int64Array

ACKS: Final = pa.schema([("root", pa.uint64()), ("xor", pa.uint64()), ("mark", pa.int32())])
"""The input of the acker. `mark`: ACK; FAIL; or, where a tree begins, the number of its spout task."""
VERDICTS: Final = pa.schema(
    [("root", pa.uint64()), ("spout", pa.int32()), ("verdict", pa.int8()), ("since", pa.int64())]
)
"""The output of the acker: the tree, its spout task, COMPLETE, FAILED or TIMED_OUT, and when the tree began."""

ACK: Final = -1
FAIL: Final = -2
COMPLETE, FAILED, TIMED_OUT = range(3)

_TREE: Final = np.dtype([("root", "<u8"), ("xor", "<u8"), ("deadline", "<i8"), ("spout", "<i4"), ("failed", "<i4")])
_HEAD: Final = np.dtype([("kind", "S8"), ("trees", "<u4"), ("removed", "<u4")])
_KIND: Final = b"hr.acks1"

Trees = npt.NDArray[np.void]


def acks(roots: Ids, xors: Ids, marks: Int64Array | int = ACK) -> pa.RecordBatch:
    """Makes rows for the acker.

    >>> acks(np.array([5], np.uint64), np.array([9], np.uint64)).to_pylist()
    [{'root': 5, 'xor': 9, 'mark': -1}]
    """
    column = np.broadcast_to(np.asarray(marks, np.int32), len(roots))
    return pa.record_batch([pa.array(roots), pa.array(xors), pa.array(column)], schema=ACKS)


NO_ACKS: Final = acks(np.zeros(0, np.uint64), np.zeros(0, np.uint64))
"""No rows for the acker."""


def acker_of(roots: Ids, ackers: int) -> Int64Array:
    """Returns the acker of each tree, of several.

    >>> acker_of(np.array([1, 2, 3, 4], np.uint64), 1).tolist()
    [0, 0, 0, 0]
    """
    return (mixed(roots) >> np.uint64(32)).astype(np.int64) % ackers


@dataclass(frozen=True)
class TreeUpdates:
    """The updates of trees in a batch: one row for each tree, by ascending root."""

    root: Ids
    xor: Ids
    spout: npt.NDArray[np.int32]  # below zero: the tree does not begin here
    failed: npt.NDArray[np.bool_]

    @staticmethod
    def of(batches: Iterable[pa.RecordBatch]) -> TreeUpdates:
        """Combines rows of ACKS by tree."""
        table = pa.Table.from_batches(list(batches), ACKS)
        root, xor, mark = (table.column(name).to_numpy() for name in ACKS.names)
        # Stable is a merge sort, which is fast where the rows of each batch are sorted already.
        order = np.argsort(root, kind="stable")
        root = root[order]
        starts = np.flatnonzero(np.append(True, root[1:] != root[:-1])) if len(root) else np.zeros(0, np.int64)
        if not len(starts):
            return TreeUpdates(root, xor, mark, np.zeros(0, bool))
        mark = mark[order]
        return TreeUpdates(
            root[starts],
            np.bitwise_xor.reduceat(xor[order], starts),
            np.maximum.reduceat(mark, starts),
            np.minimum.reduceat(mark, starts) == FAIL,
        )


class Acker:
    """The trees that are pending. `timeout` is in microseconds.

    >>> a, b, c = 0x1234, 0x9876, 0x4321
    >>> row = lambda xor, mark=ACK: acks(np.array([7], np.uint64), np.array([xor], np.uint64), mark)
    >>> acker = Acker(timeout=30_000_000)
    >>> acker.step([row(a, mark=3), row(a ^ b), row(c)], now=0).num_rows, acker.pending
    (0, 1)
    >>> acker.step([row(b ^ c)], now=1).to_pylist(), acker.pending
    ([{'root': 7, 'spout': 3, 'verdict': 0, 'since': 0}], 0)
    """

    def __init__(self, timeout: int) -> None:
        self.timeout = timeout
        self.orphans = 0
        """How many trees had acks and never began: late acks, mostly."""
        self._trees: Trees = np.zeros(0, _TREE)  # by ascending root
        self._changed: list[Ids] = []  # roots of trees that changed since the last write
        self._stored: Ids = np.zeros(0, np.uint64)  # roots of trees that were written

    @property
    def pending(self) -> int:
        """The number of pending trees."""
        return len(self._trees)

    @property
    def nbytes(self) -> int:
        """The size of the pending trees in bytes."""
        return self._trees.nbytes

    def step(self, batches: Sequence[pa.RecordBatch], now: int) -> pa.RecordBatch:
        """Applies the rows of a micro-batch of this time; returns the verdicts of the trees that have ended."""
        updates = TreeUpdates.of(batches)
        at = np.searchsorted(self._trees["root"], updates.root)
        known = np.zeros(len(updates.root), bool)
        inside = at < len(self._trees)
        known[inside] = self._trees["root"][at[inside]] == updates.root[inside]
        self._update(at[known], updates, known, now)
        new = self._new(updates, ~known, now)
        ended = [self._end(self._trees, now), self._end(new, now)]
        left = [trees[verdict < 0] for trees, verdict in zip((self._trees, new), ended, strict=True)]
        verdicts = [self._verdicts(trees, verdict) for trees, verdict in zip((self._trees, new), ended, strict=True)]
        if len(updates.root) or len(left[0]) != len(self._trees):
            self._changed += [updates.root, self._trees["root"][ended[0] >= 0]]
            self._trees = _sort_by_root(np.concatenate(left)) if len(left[1]) else left[0]
        return pa.concat_batches(verdicts)

    def _update(self, at: Int64Array, updates: TreeUpdates, which: npt.NDArray[np.bool_], now: int) -> None:
        trees = self._trees
        trees["xor"][at] ^= updates.xor[which]
        trees["failed"][at] |= updates.failed[which]
        begins = updates.spout[which] >= 0
        trees["spout"][at[begins]] = updates.spout[which][begins]
        trees["deadline"][at[begins]] = now + self.timeout

    def _new(self, updates: TreeUpdates, which: npt.NDArray[np.bool_], now: int) -> Trees:
        trees = np.zeros(int(which.sum()), _TREE)
        trees["root"], trees["xor"] = updates.root[which], updates.xor[which]
        trees["spout"], trees["failed"] = np.maximum(updates.spout[which], -1), updates.failed[which]
        trees["deadline"] = now + self.timeout
        return trees

    def _end(self, trees: Trees, now: int) -> npt.NDArray[np.int8]:
        """Returns a verdict for each tree: -1 if it is pending, _NEVER_BEGAN if it timed out without a beginning."""
        begun = trees["spout"] >= 0
        verdict = np.full(len(trees), -1, np.int8)
        late = trees["deadline"] <= now
        verdict[late] = np.where(begun[late], TIMED_OUT, _NEVER_BEGAN)
        verdict[begun & (trees["xor"] == 0)] = COMPLETE
        verdict[begun & (trees["failed"] != 0)] = FAILED
        return verdict

    def _verdicts(self, trees: Trees, verdict: npt.NDArray[np.int8]) -> pa.RecordBatch:
        self.orphans += int((verdict == _NEVER_BEGAN).sum())
        begun = (verdict >= 0) & (verdict != _NEVER_BEGAN)
        ended = trees[begun]
        columns = ended["root"], ended["spout"], verdict[begun], ended["deadline"] - self.timeout
        return pa.record_batch([pa.array(np.ascontiguousarray(column)) for column in columns], schema=VERDICTS)

    def dump(self) -> list[bytes]:
        """Returns all trees as blocks: 16 bytes, and 32 for each tree."""
        blocks = self.part(0, HASHES)
        self._mark_written()
        return blocks

    def part(self, low: int, high: int) -> list[bytes]:
        """Returns the trees whose roots have hashes in a range. It does not count as written."""
        hashes = mixed(self._trees["root"])
        inside = hashes >= np.uint64(low)
        if high < HASHES:
            inside &= hashes < np.uint64(high)
        return [_block(self._trees[inside], np.zeros(0, np.uint64))]

    def changes(self) -> list[bytes]:
        """Returns the changes since the last `dump`, `changes` or `load`, without trees that began and ended since."""
        touched = np.unique(np.concatenate(self._changed)) if self._changed else np.zeros(0, np.uint64)
        trees = self._trees[np.isin(self._trees["root"], touched)]
        removed = touched[np.isin(touched, self._stored) & ~np.isin(touched, self._trees["root"])]
        self._mark_written()
        return [_block(trees, removed)] if len(trees) or len(removed) else []

    def load(self, blocks: Iterable[bytes]) -> None:
        """Restores trees from blocks, in order, on top of the present ones."""
        parts = [self._trees]
        for block in blocks:
            head = np.frombuffer(block, _HEAD, 1)[0] if len(block) >= _HEAD.itemsize else np.zeros(1, _HEAD)[0]
            if head["kind"] != _KIND:
                raise ValueError("not a block of the acker's state; load only what dump() or changes() wrote")
            trees = np.frombuffer(block, _TREE, int(head["trees"]), _HEAD.itemsize)
            removed = np.frombuffer(block, "<u8", int(head["removed"]), _HEAD.itemsize + trees.nbytes)
            newer = np.concatenate([trees["root"], removed])
            parts = [part[~np.isin(part["root"], newer)] for part in parts] + [trees]
        self._trees = _sort_by_root(np.concatenate(parts))
        self._mark_written()

    def _mark_written(self) -> None:
        self._changed, self._stored = [], self._trees["root"].copy()


_NEVER_BEGAN: Final = 3


def _sort_by_root(trees: Trees) -> Trees:
    return trees[np.argsort(trees["root"], kind="stable")]


def _block(trees: Trees, removed: Ids) -> bytes:
    head = np.array([(_KIND, len(trees), len(removed))], _HEAD)
    return head.tobytes() + trees.tobytes() + removed.astype("<u8").tobytes()
