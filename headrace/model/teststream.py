"""TestStream: an unbounded source that a test scripts, step by step, clocks included. What is meant only."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

from headrace.model.dofn import TimestampedValue
from headrace.model.errors import PipelineError
from headrace.model.sources import Source
from headrace.model.times import MAX_TIME, MIN_TIME, format_instant, instant
from headrace.model.watermarks import Monotonic


@dataclass(frozen=True)
class ScriptStep:
    """One micro-batch: the elements it brings with their times, and where the clocks stand once it is over.

    The watermark is that of a partition or, without one, the least of all; None if the step does not speak of it.
    """

    elements: tuple[Any, ...]
    times: tuple[int, ...]
    watermark: int | None
    clock: int
    partition: str | None = None


class TestStream(Source):
    """A source that plays a script on real Spark: each call adds a step, and each step is one micro-batch.

    Steps add elements, or move the watermark or the processing time, which begins at 0, to a given time: seconds,
    datetime or ISO 8601 text; math.inf is the end of time. An element without a time of its own (TimestampedValue)
    gets that of the watermark. `finish()` moves the watermark to the end of time. The run is over after the last step.

    A step may speak of one `partition`: from then on the watermark waits for it, too, but while it has brought nothing
    for `idle_after` of processing time. What names no partition holds for all of them.

    >>> import headrace as hr
    >>> script = hr.TestStream().add([hr.TimestampedValue("a", 3)]).advance_watermark(60).finish()
    >>> with hr.Pipeline() as p:
    ...     words = p | script | hr.WindowInto(hr.FixedWindows(60))
    ...     counts = words | hr.Count.per_element() | hr.Collect()
    >>> [(each.value, each.pane.timing) for each in counts.windowed]
    [(('a', 1), 'on_time')]
    """

    __test__ = False  # its name says Test, but it is none that pytest should collect
    bounded = False

    def __init__(self, *, idle_after: Any = None) -> None:
        self.watermark = Monotonic(idle_after=idle_after)
        self.steps: tuple[ScriptStep, ...] = ()

    def add(self, elements: Iterable[Any], *, partition: str | None = None) -> Self:
        """The script with a step that brings these elements."""
        if isinstance(elements, str | bytes):
            raise PipelineError(
                f"TestStream.add takes an iterable of elements, got one string {elements!r}; write add([{elements!r}])"
            )
        given = list(elements)
        watermark = self._watermark(partition)
        times = tuple(e.timestamp if isinstance(e, TimestampedValue) else watermark for e in given)
        values = tuple(e.value if isinstance(e, TimestampedValue) else e for e in given)
        return self._then(ScriptStep(values, times, watermark, self._clock, partition))

    def advance_watermark(self, to: Any, *, partition: str | None = None) -> Self:
        """The script with a step that moves the watermark."""
        time, before = _time(to), self._watermark(partition)
        if time < before:
            raise PipelineError(
                f"TestStream: the watermark cannot go back from {format_instant(before)} to "
                f"{format_instant(time)}; give a later time"
            )
        return self._then(ScriptStep((), (), time, self._clock, partition))

    def advance_clock(self, to: Any) -> Self:
        """The script with a step that moves processing time."""
        time = _time(to)
        if time < self._clock:
            raise PipelineError(
                f"TestStream: processing time cannot go back from {format_instant(self._clock)} to "
                f"{format_instant(time)}; give a later time"
            )
        return self._then(ScriptStep((), (), None, time))

    def finish(self) -> Self:
        """The script with a last step, after which nothing can come: every window fires."""
        return self._then(ScriptStep((), (), MAX_TIME, self._clock))

    def functions(self) -> tuple[object, ...]:
        return (self.steps,)

    def __str__(self) -> str:
        return f"TestStream({len(self.steps)} steps)"

    def _watermark(self, partition: str | None) -> int:
        """Where the watermark of a partition, or of all of them, is."""
        told = [step.watermark for step in self.steps if step.partition in (None, partition)]
        return max((each for each in told if each is not None), default=MIN_TIME)

    @property
    def _clock(self) -> int:
        return self.steps[-1].clock if self.steps else 0

    def _then(self, step: ScriptStep) -> Self:
        if self._watermark(None) == MAX_TIME:
            raise PipelineError("TestStream: nothing can follow finish(); put it last")
        if step.partition is not None and not (isinstance(step.partition, str) and step.partition):
            raise PipelineError(f"TestStream: a partition is named by some text, got {step.partition!r}")
        longer = copy.copy(self)
        longer.steps = (*self.steps, step)
        return longer


def _time(given: Any) -> int:
    return MAX_TIME if given == math.inf else instant(given)
