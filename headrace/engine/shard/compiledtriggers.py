"""Compiles triggers into array programs: nodes, and columns of state with a number for each window.

What the nodes do is in `triggernodes`; what a firing emits is decided by the processor.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headrace.engine.shard.triggernodes import (
    Counted,
    Delayed,
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


@dataclass(frozen=True)
class Column:
    """A column of trigger state: its first value, and how the values of merged windows are combined."""

    zero: int
    merge: np.ufunc


class CompiledTrigger:
    """A trigger as a tree of nodes, and the columns of state that the nodes use.

    >>> from headrace.engine.shard.clocks import Clocks
    >>> from headrace.engine.shard.triggernodes import Moment
    >>> program = CompiledTrigger(Repeatedly(AfterCount(2)))
    >>> moment = Moment(np.array([10, 10]), np.array([1, 3]), program.fresh(2), Clocks(), Clocks())
    >>> program.root.arrive(moment, np.array([True, True]))
    >>> program.root.ready(moment).tolist()
    [False, True]
    """

    def __init__(self, trigger: Trigger) -> None:
        self.columns: list[Column] = []
        self.keeps: list[str] = []  # for each column, the kind of trigger that uses it
        self.fractions: set[float] = set()  # those of AfterPercentile, whose watermarks it needs
        self.on_time = False  # whether it has a pane for the end of the window
        self.needs_time = False  # whether it fires as processing time passes, also while no data comes
        self.root = self._node(trigger)

    def fresh(self, windows: int) -> Int64Array:
        """Returns the state of windows without elements."""
        zeros = np.array([column.zero for column in self.columns], np.int64)
        return np.repeat(zeros[:, np.newaxis], windows, axis=1)

    def merged(self, state: Int64Array, starts: Int64Array) -> Int64Array:
        """Returns the state of merged windows, each a run of columns that begins at one of `starts`."""
        runs = [column.merge.reduceat(values, starts) for column, values in zip(self.columns, state, strict=True)]
        return np.array(runs, np.int64).reshape(len(self.columns), len(starts))

    def _column(self, trigger: Trigger, zero: int, merge: np.ufunc) -> int:
        self.columns.append(Column(zero, merge))
        self.keeps.append(type(trigger).__name__)
        return len(self.columns) - 1

    def _node(self, trigger: Trigger) -> Node:
        match trigger:
            case AfterCount():
                return Counted(trigger.n, self._column(trigger, 0, np.add))
            case AfterProcessingTime():
                self.needs_time = True
                return Delayed(trigger.delay, self._column(trigger, MAX_TIME, np.minimum))
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
                column = self._column(trigger, 0, np.maximum) if late else -1
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
                return Sequence([self._node(child) for child in trigger.triggers], self._column(trigger, 0, np.maximum))
            case Always():
                return Unconditional()
            case Never():
                return Silent()
        raise TypeError(f"no program for the trigger {trigger!r}; compose it of headrace's own triggers")
