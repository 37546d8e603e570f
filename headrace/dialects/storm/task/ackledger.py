"""The ack ledger: computes what a bolt task sends to the acker for a batch, with one XOR for each incoming tuple.

The XOR of a tuple is that of its own id, if it was acked, and of the ids of all tuples anchored to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.dialects.storm.api.collectors import UNANCHORED, OutputCollector, StreamOutput
from headrace.dialects.storm.api.tuples import Ids
from headrace.dialects.storm.task.acker import ACK, FAIL, acks
from headrace.dialects.storm.task.incoming import Incoming
from headrace.dialects.storm.task.tupleids import NO_ROOT
from headrace.model.times import Int64Array

_ZERO: Final = np.uint64(0)


@dataclass(frozen=True)
class Anchors:
    """The anchors of emitted tuples: for each, the place of its one anchor in this batch, and its roots.

    A place is below zero if the tuple has no such anchor. `roots` has the first root of each tuple, `more` further
    roots, by tuple.
    """

    places: Int64Array
    roots: Ids
    more: dict[int, tuple[int, ...]]


class AckLedger:
    """The XORs of the incoming tuples of a batch."""

    def __init__(self, incoming: Incoming) -> None:
        self._incoming = incoming
        self._xors = np.zeros(incoming.count, np.uint64)
        self._others: list[tuple[int, int]] = []  # roots and XORs of tuples with several anchors, or with earlier ones

    def anchors(self, output: StreamOutput) -> Anchors:
        """Finds the trees that emitted tuples belong to."""
        incoming = self._incoming
        anchors = np.fromiter(output.anchors, np.int64, len(output.anchors))
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
        for i in np.flatnonzero(anchors < UNANCHORED).tolist() if output.anchor_lists else ():
            tuples = output.anchors_of(int(anchors[i]))
            union = list(dict.fromkeys(root for tup in tuples for root in tup.roots))
            if union:
                roots[i], more[i] = union[0], tuple(union[1:])
        return Anchors(places, roots, {i: further for i, further in more.items() if further})

    def add_sent(self, anchors: Anchors, xors: Ids) -> None:
        """Adds tuples that were sent, with the XOR of the ids of each one's copies."""
        here = anchors.places >= 0
        if here.all():
            np.bitwise_xor.at(self._xors, anchors.places, xors)
            return
        np.bitwise_xor.at(self._xors, anchors.places[here], xors[here])
        for i in np.flatnonzero(~here & (anchors.roots != NO_ROOT)).tolist():
            roots = (int(anchors.roots[i]), *anchors.more.get(i, ()))
            self._others += [(root, int(xors[i])) for root in roots]

    def close(self, collector: OutputCollector) -> pa.RecordBatch:
        """Adds the acked and failed tuples, and returns the rows for the acker."""
        incoming, xors = self._incoming, self._xors
        acked = np.zeros(incoming.count, bool)  # a tuple may have been acked several times
        acked[np.fromiter(collector.acked, np.int64, len(collector.acked)) - incoming.first] = True
        xors ^= np.where(acked, incoming.ids, _ZERO)
        others = list(self._others)
        for row, further in incoming.more.items():
            others += [(root, int(xors[row - incoming.first])) for root in further]
        for tup in {id(tup): tup for tup in collector.earlier_acked}.values():
            others += [(root, tup.id) for root in tup.roots]
        failed = list(dict.fromkeys(root for tup in collector.failed for root in tup.roots))
        changed = (xors != _ZERO) & (incoming.roots != NO_ROOT)
        first_roots, first_xors = _xor_runs(incoming.roots[changed], xors[changed])
        roots = np.concatenate([first_roots, _ids([root for root, _ in others]), _ids(failed)])
        all_xors = np.concatenate([first_xors, _ids([xor for _, xor in others]), _ids([0] * len(failed))])
        marks = np.full(len(roots), ACK)
        marks[len(roots) - len(failed) :] = FAIL
        return acks(roots, all_xors, marks)


def _xor_runs(roots: Ids, xors: Ids) -> tuple[Ids, Ids]:
    """Combines the XORs of successive tuples of one tree: tuples that were emitted together arrive so."""
    if not len(roots):
        return roots, xors
    starts = np.flatnonzero(np.append(True, roots[1:] != roots[:-1]))
    return roots[starts], np.bitwise_xor.reduceat(xors, starts)


def _ids(numbers: list[int]) -> Ids:
    return np.array(numbers, np.uint64)
