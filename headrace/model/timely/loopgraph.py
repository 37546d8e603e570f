"""Graphs with loops: nodes, what they do to times, and which node could still hear from which."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from headrace.model.errors import PipelineError
from headrace.model.timely.antichains import Antichain, Time, is_before
from headrace.model.timely.pathsummaries import ENTER, FEEDBACK, LEAVE, STAY, PathSummary, step_summary


@dataclass(frozen=True)
class LoopGraph:
    """A graph of named nodes: its edges, and of nodes that are no plain vertices the kind.

    A node that enters a loop appends a counter to times, one that leaves a loop drops it, and feedback adds one to it;
    every cycle has a feedback. The times of nodes that have no edge to them are epochs.

    >>> graph = LoopGraph(
    ...     [("in", "enter"), ("enter", "body"), ("body", "back"), ("back", "body"), ("body", "end"), ("end", "out")],
    ...     {"enter": ENTER, "back": FEEDBACK, "end": LEAVE},
    ... )
    >>> graph.depth["body"], graph.depth["out"]
    (2, 1)
    >>> moving = ("body", (1, 3))
    >>> [graph.could_result_in(moving, other) for other in [("body", (1, 4)), ("out", (1,)), ("out", (0,))]]
    [True, True, False]
    """

    edges: Iterable[tuple[str, str]]
    kinds: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "edges", tuple(dict.fromkeys(self.edges)))
        if unknown := sorted(set(self.kinds.values()) - {STAY, ENTER, LEAVE, FEEDBACK}):
            raise PipelineError(f"a node is one of {STAY}, {ENTER}, {LEAVE} and {FEEDBACK}, not {unknown[0]!r}")
        self._check_cycles()

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """All nodes, in the order in which edges and kinds name them."""
        return tuple(dict.fromkeys([*(node for edge in self.edges for node in edge), *self.kinds]))

    @cached_property
    def successors(self) -> dict[str, list[str]]:
        """The nodes to which each node sends."""
        found: dict[str, list[str]] = {node: [] for node in self.nodes}
        for sender, receiver in self.edges:
            found[sender].append(receiver)
        return found

    @cached_property
    def depth(self) -> dict[str, int]:
        """The number of coordinates of the times of messages to each node."""
        receivers = {receiver for _, receiver in self.edges}
        depths = {node: 1 for node in self.nodes if node not in receivers}
        waiting = deque(depths)
        while waiting:
            sender = waiting.popleft()
            if self.kinds.get(sender) in (LEAVE, FEEDBACK) and depths[sender] < 2:
                raise PipelineError(f"{sender!r} is a {self.kinds[sender]} but in no loop; enter one before")
            behind = self.behind(sender, depths[sender]).depth
            for receiver in self.successors[sender]:
                if receiver not in depths:
                    depths[receiver] = behind
                    waiting.append(receiver)
                elif depths[receiver] != behind:
                    raise PipelineError(
                        f"{receiver!r} gets messages from loops of different depth, {depths[receiver] - 1} and "
                        f"{behind - 1}; let each enter or leave first"
                    )
        if lost := [node for node in self.nodes if node not in depths]:
            raise PipelineError(f"{lost[0]!r} is reached from no input; connect one")
        return depths

    def behind(self, node: str, depth: int) -> PathSummary:
        """Returns what a node does to a time of so many coordinates."""
        return step_summary(self.kinds.get(node, STAY), depth)

    @cached_property
    def summaries(self) -> dict[tuple[str, str], Antichain[PathSummary]]:
        """The least path summaries from messages to one node to messages to another; the path may be empty."""
        found = {
            (start, end): Antichain[PathSummary](PathSummary.precedes) for start in self.nodes for end in self.nodes
        }
        for start in self.nodes:
            waiting = deque([(start, PathSummary(self.depth[start]))])
            found[start, start].add(waiting[0][1])
            while waiting:
                node, summary = waiting.popleft()
                onward = summary.then(self.behind(node, self.depth[node]))
                for receiver in self.successors[node]:
                    if found[start, receiver].add(onward):
                        waiting.append((receiver, onward))
        return found

    def could_result_in(self, one: tuple[str, Time], other: tuple[str, Time]) -> bool:
        """Says whether a message or notice at one node and time could lead to one at another, or is that one."""
        (start, time), (end, reached) = one, other
        return any(is_before(summary(time), reached) for summary in self.summaries[start, end])

    def _check_cycles(self) -> None:
        """Refuses a cycle that does not move time forward: its messages could go round for ever."""
        for sender, receiver in self.edges:
            behind = self.behind(sender, self.depth[sender])
            if any(summary.then(behind).add == 0 for summary in self.summaries[receiver, sender]):
                raise PipelineError(
                    f"{receiver!r} is in a cycle without a feedback of its own loop, where time would stand still; "
                    "put one in"
                )
