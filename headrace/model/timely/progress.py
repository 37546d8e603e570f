"""Progress of a timely dataflow: what is still under way, and so which notices are safe.

A pointstamp is a node and a time. It is active while a message to the node has that time, or the node waits for a
notice of it, or an input may still send at it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, TypeAlias

from headrace.model.errors import PipelineError
from headrace.model.timely.antichains import Antichain, Time, is_before
from headrace.model.timely.loopgraph import LoopGraph

Pointstamp: TypeAlias = tuple[str, Time]

_NOTHING: Final[dict[Pointstamp, int]] = {}


class Progress:
    """Counts active pointstamps, and says of a notice whether anything that is active could still lead to its time.

    >>> graph = LoopGraph([("in", "count"), ("count", "out")])
    >>> progress = Progress(graph)
    >>> progress.add("in", (0,))            # the input may still send in epoch 0
    >>> progress.add("count", (0,))         # count waits for a notice
    >>> progress.is_safe("count", (0,)), progress.blockers("count", (0,))
    (False, [('in', (0,))])
    >>> progress.add("in", (1,)); progress.remove("in", (0,))
    >>> progress.is_safe("count", (0,)), progress.frontier("out")
    (True, [(0,)])
    """

    def __init__(self, graph: LoopGraph, active: Iterable[tuple[Pointstamp, int]] = ()) -> None:
        self.graph = graph
        self._epochs: list[int] = []  # of what is active, in order: what is later than a notice cannot hold it back
        self._active: dict[int, dict[Pointstamp, int]] = {}
        for (node, time), count in active:
            self.add(node, time, count)

    @property
    def active(self) -> dict[Pointstamp, int]:
        """The active pointstamps, and how often each is."""
        return {stamp: count for epoch in self._epochs for stamp, count in self._active[epoch].items()}

    def add(self, node: str, time: Time, count: int = 1) -> None:
        """Notes that there is something at a node and time."""
        if len(time) != self.graph.depth[node]:
            raise PipelineError(
                f"times at {node!r} have an epoch and {self.graph.depth[node] - 1} loop counters, got {time}"
            )
        of_epoch = self._active.get(time[0])
        if of_epoch is None:
            insort(self._epochs, time[0])
            self._active[time[0]] = of_epoch = {}
        stamp = node, time
        of_epoch[stamp] = of_epoch.get(stamp, 0) + count

    def remove(self, node: str, time: Time, count: int = 1) -> None:
        """Notes that something at a node and time is done; what it sent is to be added before."""
        of_epoch = self._active.get(time[0], _NOTHING)
        stamp = node, time
        left = of_epoch.get(stamp, 0) - count
        if left < 0:
            raise PipelineError(f"{node!r} at {time} was done more often than it was begun")
        if left:
            of_epoch[stamp] = left
            return
        del of_epoch[stamp]
        if not of_epoch:
            del self._active[time[0]]
            del self._epochs[bisect_left(self._epochs, time[0])]

    def blockers(self, node: str, time: Time) -> list[Pointstamp]:
        """Returns the active pointstamps, other than this one, that could lead to it."""
        return list(self._before(node, time))

    def is_safe(self, node: str, time: Time) -> bool:
        """Says whether no message to the node can have this time or an earlier one any more.

        The node's own wait for the notice does not count; to be called while no message has this node and time.
        """
        return next(self._before(node, time), None) is None

    def _before(self, node: str, time: Time) -> Iterator[Pointstamp]:
        could = self.graph.could_result_in
        for epoch in islice(self._epochs, bisect_right(self._epochs, time[0])):
            for active in self._active[epoch]:
                if active != (node, time) and could(active, (node, time)):
                    yield active

    def frontier(self, node: str) -> list[Time]:
        """Returns the earliest times that messages and notices at a node may still have, none if it is done."""
        earliest = Antichain[Time](is_before)
        for start, time in self.active:
            for summary in self.graph.summaries[start, node]:
                earliest.add(summary(time))
        return sorted(earliest)
