"""Compiles triggers into array programs: nodes, and columns of state with a number for each window.

What the nodes do is in `triggernodes`; what a firing emits is decided by the processor.
"""

from __future__ import annotations

import numpy as np

from headrace.engine.shard.clocks import Clocks
from headrace.engine.shard.triggernodes import (
    Counted,
    Delayed,
    Moment,
    Node,
    OnTime,
    Parallel,
    Passed,
    Repeated,
    Sequence,
    Silent,
    Unconditional,
)
from headrace.model.times import MAX_TIME, Int64Array
from headrace.model.triggers import (
    AfterAll,
    AfterAny,
    AfterCount,
    AfterEach,
    AfterPercentile,
    AfterProcessingTime,
    AfterWatermark,
    Always,
    DefaultTrigger,
    Never,
    OrFinally,
    Repeatedly,
    Trigger,
)


class CompiledTrigger:
    """A trigger as a tree of nodes, and the columns of state that the nodes use.

    >>> program = CompiledTrigger(Repeatedly(AfterCount(2)))
    >>> moment = Moment(np.array([10, 10]), np.array([1, 3]), program.fresh(2), Clocks(), Clocks())
    >>> program.root.arrive(moment, np.array([True, True]))
    >>> program.root.ready(moment).tolist()
    [False, True]
    """

    def __init__(self, trigger: Trigger) -> None:
        self.zeros: list[int] = []  # of each column, the first value
        self.keeps: list[str] = []  # for each column, the kind of trigger that uses it
        self.fractions: set[float] = set()  # those of AfterPercentile, whose watermarks it needs
        self.on_time = False  # whether it has a pane for the end of the window
        self.needs_time = False  # whether it fires as processing time passes, also while no data comes
        self.root = self._node(trigger)

    def fresh(self, windows: int) -> Int64Array:
        """Returns the state of windows without elements."""
        return np.repeat(np.array(self.zeros, np.int64)[:, np.newaxis], windows, axis=1)

    def merged(self, parts: Int64Array, starts: Int64Array, end: Int64Array, clocks: Clocks) -> Int64Array:
        """Returns the state of windows that grew or into which others merged, by their new ends.

        Each is a run of `parts`, the state of the windows that it is made of, which begins at one of `starts`.
        """
        moment = Moment(end, np.zeros(len(end), np.int64), self.fresh(len(end)), clocks, clocks)
        self.root.merge(moment, parts, starts)
        return moment.state

    def _column(self, trigger: Trigger, zero: int = 0) -> int:
        self.zeros.append(zero)
        self.keeps.append(type(trigger).__name__)
        return len(self.zeros) - 1

    def _node(self, trigger: Trigger) -> Node:
        match trigger:
            case AfterCount():
                return Counted(trigger.n, self._column(trigger))
            case AfterProcessingTime():
                self.needs_time = True
                return Delayed(trigger.delay, self._column(trigger, MAX_TIME))
            case AfterPercentile():
                self.fractions.add(trigger.q)
                self.needs_time |= trigger.q < 1
                return Passed(trigger.q, once=True)
            case DefaultTrigger():
                self.on_time = True
                return Passed(1.0, once=False)
            case AfterWatermark():
                self.on_time = True
                parts = (trigger.early, trigger.late)
                early, late = (None if part is None else Repeated(self._node(part)) for part in parts)
                column = self._column(trigger) if late else -1
                return OnTime(early, late, column, Passed(1.0, once=True))
            case Repeatedly():
                return Repeated(self._node(trigger.trigger))
            case AfterAny():
                return Parallel([self._node(child) for child in trigger.triggers], np.logical_or)
            case AfterAll():
                return Parallel([self._node(child) for child in trigger.triggers], np.logical_and)
            case OrFinally():
                main, until = self._node(trigger.trigger), self._node(trigger.until)
                return Parallel([main, until], np.logical_or, until)
            case AfterEach():
                return Sequence([self._node(child) for child in trigger.triggers], self._column(trigger))
            case Always():
                return Unconditional()
            case Never():
                return Silent()
        raise TypeError(f"no program for the trigger {trigger!r}; compose it of headrace's own triggers")
