"""Path summaries: what a path through a graph with loops does to the time of a message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headrace.model.timely.antichains import Time, is_before


@dataclass(frozen=True)
class PathSummary:
    """Effect of a path on a time: leaves `keep` of its coordinates, adds to the last of them, appends others.

    Every path has this form: who leaves a loop drops its counter, feedback adds one to the last counter, and who
    enters a loop appends a zero.

    >>> PathSummary(2, 1, (0,))((7, 3, 9))
    (7, 4, 0)
    """

    keep: int
    add: int = 0
    append: Time = ()

    def __call__(self, time: Time) -> Time:
        head = time[: self.keep]
        return (*head[:-1], head[-1] + self.add, *self.append)

    @property
    def depth(self) -> int:
        """The number of coordinates that a time has at the end of the path."""
        return self.keep + len(self.append)

    def then(self, other: PathSummary) -> PathSummary:
        """Returns the summary of this path followed by another.

        >>> feedback = PathSummary(2, 1)
        >>> feedback.then(PathSummary(2, 0, (0,))).then(PathSummary(3, 1))
        PathSummary(keep=2, add=1, append=(1,))
        """
        if other.keep < self.keep:
            return other
        if other.keep == self.keep:
            return PathSummary(self.keep, self.add + other.add, other.append)
        return PathSummary(self.keep, self.add, other((*(0,) * self.keep, *self.append))[self.keep :])

    def precedes(self, other: PathSummary) -> bool:
        """Says whether this path takes every time to one at or before that to which the other path takes it.

        >>> PathSummary(2).precedes(PathSummary(2, 1)), PathSummary(1, 0, (0,)).precedes(PathSummary(2))
        (True, True)
        >>> PathSummary(2).precedes(PathSummary(1, 0, (3,)))
        False
        """
        if self.depth != other.depth or self.keep > other.keep:
            return False  # a counter that is left as it is can be above any constant
        if self.keep == other.keep:
            return self.add <= other.add and is_before(self.append, other.append)
        least = other((0,) * other.keep)  # the other path leaves the least where counters begin at zero
        return self.add == 0 and is_before(self.append, least[self.keep :])


STAY: Final = "stay"
ENTER: Final = "enter"
LEAVE: Final = "leave"
FEEDBACK: Final = "feedback"


def step_summary(kind: str, depth: int) -> PathSummary:
    """Returns what a node of a kind does to a time of `depth` coordinates that passes it.

    >>> step_summary(LEAVE, 3)((0, 4, 9))
    (0, 4)
    """
    match kind:
        case "enter":
            return PathSummary(depth, 0, (0,))
        case "leave":
            return PathSummary(depth - 1)
        case "feedback":
            return PathSummary(depth, 1)
        case _:
            return PathSummary(depth)
