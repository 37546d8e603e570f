"""The nodes of compiled triggers: each judges many windows at once, by its columns of state and by the clocks.

A condition stays true until its node is reset; a window does not fire again and again, since it is judged only when
something happened to it. `compiledtriggers` turns a trigger into a tree of nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.engine.shard.clocks import Clocks
from headrace.model.times import MAX_TIME, Int64Array, format_duration, format_instant

Mask: TypeAlias = npt.NDArray[np.bool_]


@dataclass
class Moment:
    """Windows to judge: their ends, the elements each got, their trigger state, and the clocks before and after.

    `state` has a row for each column of the program, and nodes write to it.
    """

    end: Int64Array
    arrived: Int64Array
    state: Int64Array
    before: Clocks
    after: Clocks

    @property
    def ended(self) -> Mask:
        """Which windows the watermark has passed the end of."""
        return self.end <= self.after.watermark

    def none(self) -> Mask:
        return np.zeros(len(self.end), np.bool_)


class Node:
    """A node of a compiled trigger. `wakes`: its alarm rang in this step. `ready`: it would fire if judged now.

    A window is judged when elements came or an alarm rang; `fire` returns where that finished the trigger.
    """

    def arrive(self, moment: Moment, where: Mask) -> None:
        """Notes the elements that came."""

    def wakes(self, moment: Moment) -> Mask:
        return moment.none()

    def ready(self, moment: Moment) -> Mask:
        raise NotImplementedError

    def fire(self, moment: Moment, where: Mask) -> Mask:
        return moment.none()

    def reset(self, moment: Moment, where: Mask) -> None:
        """Resets the state."""

    def merge(self, moment: Moment, parts: Int64Array, starts: Int64Array) -> None:
        """Sets the state of windows that grew or into which others merged: each a run of `parts` from one of `starts`.

        Where the new end is beyond the watermark, what had waited for the watermark waits again.
        """

    def finished(self, moment: Moment) -> Mask:
        """Judges where the condition with which it finishes is true."""
        return moment.none()

    def crossed(self, moment: Moment) -> Mask | None:
        """Returns where an alarm may have rung, None for nowhere; it must be cheap, since all windows are asked."""
        return None

    def why(self, moment: Moment) -> str:
        """Explains what the first window of `moment` waits for."""
        raise NotImplementedError


@dataclass
class Counted(Node):
    """The node of AfterCount."""

    n: int
    column: int

    def arrive(self, moment: Moment, where: Mask) -> None:
        moment.state[self.column] += np.where(where, moment.arrived, 0)

    def ready(self, moment: Moment) -> Mask:
        enough: Mask = moment.state[self.column] >= self.n
        return enough

    def fire(self, moment: Moment, where: Mask) -> Mask:
        return where

    def reset(self, moment: Moment, where: Mask) -> None:
        moment.state[self.column, where] = 0

    def merge(self, moment: Moment, parts: Int64Array, starts: Int64Array) -> None:
        moment.state[self.column] = np.add.reduceat(parts[self.column], starts)

    def finished(self, moment: Moment) -> Mask:
        return self.ready(moment)

    def why(self, moment: Moment) -> str:
        missing = self.n - int(moment.state[self.column, 0])
        return "has elements enough" if missing <= 0 else f"needs {missing} more element{'s' * (missing > 1)}"


@dataclass
class Delayed(Node):
    """The node of AfterProcessingTime: the column has the time of the first element, or the end of time."""

    delay: int
    column: int

    def _due(self, moment: Moment) -> Int64Array:
        due: Int64Array = moment.state[self.column] + self.delay
        return due

    def arrive(self, moment: Moment, where: Mask) -> None:
        column = moment.state[self.column]
        column[:] = np.where(where & (moment.arrived > 0), np.minimum(column, moment.after.now), column)

    def wakes(self, moment: Moment) -> Mask:
        due = self._due(moment)
        return (due > moment.before.now) & (due <= moment.after.now)

    def ready(self, moment: Moment) -> Mask:
        return self._due(moment) <= moment.after.now

    def fire(self, moment: Moment, where: Mask) -> Mask:
        return where

    def reset(self, moment: Moment, where: Mask) -> None:
        moment.state[self.column, where] = MAX_TIME

    def merge(self, moment: Moment, parts: Int64Array, starts: Int64Array) -> None:
        moment.state[self.column] = np.minimum.reduceat(parts[self.column], starts)

    def finished(self, moment: Moment) -> Mask:
        return self.ready(moment)

    def crossed(self, moment: Moment) -> Mask | None:
        return self.wakes(moment) if moment.after.now > moment.before.now else None

    def why(self, moment: Moment) -> str:
        if moment.state[self.column, 0] >= MAX_TIME:
            return f"waits for an element, and then for {format_duration(self.delay)} of processing time"
        due, now = format_instant(int(self._due(moment)[0])), format_instant(moment.after.now)
        return f"waits for processing time to reach {due}, which is at {now}"


@dataclass
class Passed(Node):
    """The node of DefaultTrigger, which never finishes, and of AfterPercentile, which does: by a watermark."""

    q: float
    once: bool

    def wakes(self, moment: Moment) -> Mask:
        return (moment.end > moment.before.percentile(self.q)) & self.ready(moment)

    def ready(self, moment: Moment) -> Mask:
        return moment.end <= moment.after.percentile(self.q)

    def fire(self, moment: Moment, where: Mask) -> Mask:
        return where if self.once else moment.none()

    def finished(self, moment: Moment) -> Mask:
        return self.ready(moment) if self.once else moment.none()

    def crossed(self, moment: Moment) -> Mask | None:
        moved = moment.after.percentile(self.q) > moment.before.percentile(self.q)
        return self.wakes(moment) if moved else None

    def why(self, moment: Moment) -> str:
        end, clock = int(moment.end[0]), moment.after.percentile(self.q)
        name = "the watermark" if self.q == 1 else f"the watermark of {self.q:.6g} of the input"
        if end <= clock:
            return "waits for another element" if not self.once else f"{name} has passed its end"
        return f"waits for {name} to pass {format_instant(end)}, which is at {format_instant(clock)}"


@dataclass
class OnTime(Node):
    """The node of AfterWatermark: the column has whether the on-time pane was fired, and exists only if `late` does."""

    early: Node | None
    late: Node | None
    column: int
    end: Passed

    def _is_late(self, moment: Moment) -> Mask:
        return moment.none() if self.late is None else moment.state[self.column] > 0

    def _split(self, moment: Moment) -> tuple[Mask, Mask]:
        """Returns where the late trigger decides, and where, before the end, the early one does."""
        late = self._is_late(moment)
        return late, ~late & ~moment.ended

    def arrive(self, moment: Moment, where: Mask) -> None:
        late = self._is_late(moment)
        if self.late is not None:
            self.late.arrive(moment, where & late)
        if self.early is not None:
            self.early.arrive(moment, where & ~late)

    def wakes(self, moment: Moment) -> Mask:
        return self._chosen(moment, self.end.wakes(moment), lambda child: child.wakes(moment))

    def ready(self, moment: Moment) -> Mask:
        return self._chosen(moment, moment.ended, lambda child: child.ready(moment))

    def _chosen(self, moment: Moment, at_end: Mask, ask: Callable[[Node], Mask]) -> Mask:
        late, early = self._split(moment)
        answer = at_end & ~late
        if self.early is not None:
            answer |= early & ask(self.early)
        if self.late is not None:
            answer |= late & ask(self.late)
        return answer

    def fire(self, moment: Moment, where: Mask) -> Mask:
        late, early = self._split(moment)
        on_time = where & ~late & ~early
        if self.early is not None:
            self.early.fire(moment, where & early)
            self.early.reset(moment, on_time)  # what it counted is in the on-time pane
        if self.late is None:
            return on_time
        self.late.fire(moment, where & late)
        moment.state[self.column, on_time] = 1
        return moment.none()

    def reset(self, moment: Moment, where: Mask) -> None:
        for child in (self.early, self.late):
            if child is not None:
                child.reset(moment, where)
        if self.late is not None:
            moment.state[self.column, where] = 0

    def merge(self, moment: Moment, parts: Int64Array, starts: Int64Array) -> None:
        late = moment.none()
        if self.late is not None:
            # The on-time pane is to come (again) if it is in one of the parts, or if the end is beyond the watermark.
            late = moment.ended & (np.minimum.reduceat(parts[self.column], starts) > 0)
            moment.state[self.column] = late
            self.late.merge(moment, parts, starts)
            self.late.reset(moment, ~late)
        if self.early is not None:
            self.early.merge(moment, parts, starts)
            self.early.reset(moment, late)

    def finished(self, moment: Moment) -> Mask:
        return moment.ended if self.late is None else moment.none()

    def crossed(self, moment: Moment) -> Mask | None:
        return _either([node.crossed(moment) for node in (self.end, self.early, self.late) if node is not None])

    def why(self, moment: Moment) -> str:
        if self.late is not None and self._is_late(moment)[0]:
            return f"{self.late.why(moment)}, for late data"
        if self.early is None:
            return self.end.why(moment)
        return f"{self.end.why(moment)}; for an early pane, {self.early.why(moment)}"


@dataclass
class Repeated(Node):
    """The node of Repeatedly, and of the early and late triggers of AfterWatermark."""

    child: Node

    def arrive(self, moment: Moment, where: Mask) -> None:
        self.child.arrive(moment, where)

    def wakes(self, moment: Moment) -> Mask:
        return self.child.wakes(moment)

    def ready(self, moment: Moment) -> Mask:
        return self.child.ready(moment)

    def fire(self, moment: Moment, where: Mask) -> Mask:
        self.child.reset(moment, self.child.fire(moment, where))
        return moment.none()

    def reset(self, moment: Moment, where: Mask) -> None:
        self.child.reset(moment, where)

    def merge(self, moment: Moment, parts: Int64Array, starts: Int64Array) -> None:
        self.child.merge(moment, parts, starts)

    def crossed(self, moment: Moment) -> Mask | None:
        return self.child.crossed(moment)

    def why(self, moment: Moment) -> str:
        return self.child.why(moment)


@dataclass
class Parallel(Node):
    """The node of AfterAny (`combine` is or), AfterAll (and), and OrFinally, where a firing of `until` finishes."""

    children: list[Node]
    combine: np.ufunc
    until: Node | None = None

    def arrive(self, moment: Moment, where: Mask) -> None:
        for child in self.children:
            child.arrive(moment, where)

    def wakes(self, moment: Moment) -> Mask:
        return reduce(np.logical_or, [child.wakes(moment) for child in self.children])

    def ready(self, moment: Moment) -> Mask:
        return reduce(self.combine, [child.ready(moment) for child in self.children])

    def fire(self, moment: Moment, where: Mask) -> Mask:
        finished = []
        for child in self.children:
            fired = where & child.ready(moment)
            done = child.fire(moment, fired)
            finished.append(fired if child is self.until else done)
        return reduce(self.combine, finished)

    def reset(self, moment: Moment, where: Mask) -> None:
        for child in self.children:
            child.reset(moment, where)

    def merge(self, moment: Moment, parts: Int64Array, starts: Int64Array) -> None:
        for child in self.children:
            child.merge(moment, parts, starts)

    def finished(self, moment: Moment) -> Mask:
        finished = [child.ready(moment) if child is self.until else child.finished(moment) for child in self.children]
        return reduce(self.combine, finished)

    def crossed(self, moment: Moment) -> Mask | None:
        return _either([child.crossed(moment) for child in self.children])

    def why(self, moment: Moment) -> str:
        waiting = [child.why(moment) for child in self.children if not child.ready(moment)[0]]
        return (" or " if self.combine is np.logical_or else " and ").join(waiting or ["waits for another element"])


@dataclass
class Sequence(Node):
    """The node of AfterEach: the column has the number of the current child."""

    children: list[Node]
    column: int

    def _turns(self, moment: Moment) -> Iterator[tuple[Node, Mask]]:
        current = moment.state[self.column].copy()
        for position, child in enumerate(self.children):
            yield child, current == position

    def arrive(self, moment: Moment, where: Mask) -> None:
        for child, turn in self._turns(moment):
            child.arrive(moment, where & turn)

    def wakes(self, moment: Moment) -> Mask:
        return reduce(np.logical_or, [turn & child.wakes(moment) for child, turn in self._turns(moment)])

    def ready(self, moment: Moment) -> Mask:
        return reduce(np.logical_or, [turn & child.ready(moment) for child, turn in self._turns(moment)])

    def fire(self, moment: Moment, where: Mask) -> Mask:
        for child, turn in self._turns(moment):
            moment.state[self.column] += child.fire(moment, where & turn)
        return where & self.finished(moment)

    def reset(self, moment: Moment, where: Mask) -> None:
        moment.state[self.column, where] = 0
        for child in self.children:
            child.reset(moment, where)

    def merge(self, moment: Moment, parts: Int64Array, starts: Int64Array) -> None:
        turn = np.maximum.reduceat(parts[self.column], starts)
        for position, child in reversed(list(enumerate(self.children))):
            child.merge(moment, parts, starts)
            turn = np.where((turn > position) & ~child.finished(moment), position, turn)
        moment.state[self.column] = turn
        for position, child in enumerate(self.children):
            child.reset(moment, turn < position)

    def finished(self, moment: Moment) -> Mask:
        through: Mask = moment.state[self.column] == len(self.children)
        return through

    def crossed(self, moment: Moment) -> Mask | None:
        return _either([child.crossed(moment) for child in self.children])

    def why(self, moment: Moment) -> str:
        current = int(moment.state[self.column, 0])
        return self.children[current].why(moment) if current < len(self.children) else "has finished"


class Unconditional(Node):
    """The node of Always."""

    def ready(self, moment: Moment) -> Mask:
        return ~moment.none()

    def why(self, moment: Moment) -> str:
        return "waits for another element"


class Silent(Node):
    """The node of Never."""

    def ready(self, moment: Moment) -> Mask:
        return moment.none()

    def why(self, moment: Moment) -> str:
        return "waits until the window closes, for its trigger never fires"


def _either(masks: list[Mask | None]) -> Mask | None:
    present = [mask for mask in masks if mask is not None]
    return reduce(np.logical_or, present) if present else None
