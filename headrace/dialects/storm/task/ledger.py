"""What a bolt task has to tell the acker of a batch, worked out with arrays: one XOR for each tuple that came.

A tuple's XOR is of its own number, if it was acked, and of the numbers of all that was anchored to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.dialects.storm.api.collectors import UNANCHORED, Collected, Out
from headrace.dialects.storm.task.acker import ACK, FAIL, acks
from headrace.dialects.storm.task.incoming import Incoming
from headrace.dialects.storm.task.tupleids import NO_ROOT, Ids
from headrace.model.times import Int64Array

_NOTHING: Final = np.uint64(0)


@dataclass(frozen=True)
class Anchored:
    """Tuples that were emitted: for each, the place of its one anchor in this batch (below zero if it has none such),
    its first root, and further roots.
    """

    places: Int64Array
    roots: Ids
    more: dict[int, tuple[int, ...]]


class Ledger:
    """The XORs of a batch."""

    def __init__(self, incoming: Incoming) -> None:
        self._incoming = incoming
        self._xors = np.zeros(incoming.count, np.uint64)
        self._others: list[tuple[int, int]] = []  # roots and XORs of what has several anchors, or came earlier

    def anchored(self, out: Out) -> Anchored:
        """The trees that emitted tuples belong to."""
        incoming = self._incoming
        anchors = np.fromiter(out.anchors, np.int64, len(out.anchors))
        if not len(anchors) or anchors.min() >= 0:
            places = anchors - incoming.first
            roots = incoming.roots[places]
        else:
            places = np.where(anchors >= 0, anchors - incoming.first, UNANCHORED)
            roots = np.where(places >= 0, incoming.roots[places] if incoming.count else NO_ROOT, NO_ROOT)
        more: dict[int, tuple[int, ...]] = {}
        if incoming.more:
            rows = {row - incoming.first: further for row, further in incoming.more.items()}
            more = {i: rows[place] for i, place in enumerate(places.tolist()) if place in rows}
        for i in np.flatnonzero(anchors < UNANCHORED).tolist() if out.several else ():
            several = out.several[UNANCHORED - 1 - int(anchors[i])]
            union = list(dict.fromkeys(root for each in several for root in each.roots))
            if union:
                roots[i], more[i] = union[0], tuple(union[1:])
        return Anchored(places, roots, {i: further for i, further in more.items() if further})

    def emitted(self, anchored: Anchored, xors: Ids) -> None:
        """Takes tuples that were sent, with the XOR of the numbers of each one's copies."""
        here = anchored.places >= 0
        if here.all():
            np.bitwise_xor.at(self._xors, anchored.places, xors)
            return
        np.bitwise_xor.at(self._xors, anchored.places[here], xors[here])
        for i in np.flatnonzero(~here & (anchored.roots != NO_ROOT)).tolist():
            roots = (int(anchored.roots[i]), *anchored.more.get(i, ()))
            self._others += [(root, int(xors[i])) for root in roots]

    def close(self, collected: Collected) -> pa.RecordBatch:
        """All there is to tell, with what was acked and failed."""
        incoming, xors = self._incoming, self._xors
        done = np.zeros(incoming.count, bool)  # however often it was acked
        done[np.fromiter(collected.acked, np.int64, len(collected.acked)) - incoming.first] = True
        xors ^= np.where(done, incoming.ids, _NOTHING)
        others = list(self._others)
        for row, further in incoming.more.items():
            others += [(root, int(xors[row - incoming.first])) for root in further]
        for tup in {id(tup): tup for tup in collected.held_acked}.values():
            others += [(root, tup.id) for root in tup.roots]
        failed = list(dict.fromkeys(root for tup in collected.failed for root in tup.roots))
        told = (xors != _NOTHING) & (incoming.roots != NO_ROOT)
        mine, my_xors = _by_run(incoming.roots[told], xors[told])
        roots = np.concatenate([mine, _ids([root for root, _ in others]), _ids(failed)])
        all_xors = np.concatenate([my_xors, _ids([xor for _, xor in others]), _ids([0] * len(failed))])
        marks = np.full(len(roots), ACK)
        marks[len(roots) - len(failed) :] = FAIL
        return acks(roots, all_xors, marks)


def _by_run(roots: Ids, xors: Ids) -> tuple[Ids, Ids]:
    """One XOR for tuples of a tree that follow one another, as those do that were emitted together."""
    if not len(roots):
        return roots, xors
    starts = np.flatnonzero(np.append(True, roots[1:] != roots[:-1]))
    return roots[starts], np.bitwise_xor.reduceat(xors, starts)


def _ids(numbers: list[int]) -> Ids:
    return np.array(numbers, np.uint64)
