"""TestStream: an unbounded source whose elements and clocks a test scripts, step by step."""

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
    """One micro-batch of a script: its elements with their times, and the clocks after it.

    The watermark is that of the partition or, without one, of all partitions; None if the step does not set it.
    """

    elements: tuple[Any, ...]
    times: tuple[int, ...]
    watermark: int | None
    clock: int
    partition: str | None = None


class TestStream(Source):
    """A source for tests that plays a script on real Spark: each call adds a step, and each step is one micro-batch.

    A step adds elements, or moves the watermark or the processing time, which starts at 0, to a time: seconds, a
    datetime or ISO 8601 text; math.inf is the end of time. An element without a timestamp (TimestampedValue) gets that
    of the watermark. `finish()` moves the watermark to the end of time. The run ends after the last step.

    A step may name a `partition`: from then on the watermark waits for that partition, too, except while it has had no
    elements for `idle_after` of processing time. A step without a partition is for all of them.

    >>> import headrace as hr
    >>> script = hr.TestStream().add([hr.TimestampedValue("a", 3)]).advance_watermark(60).finish()
    >>> with hr.Pipeline() as p:
    ...     words = p | script | hr.WindowInto(hr.FixedWindows(60))
    ...     counts = words | hr.Count.per_element() | hr.Collect()
    >>> [(count.value, count.pane.timing) for count in counts.windowed]
    [(('a', 1), 'on_time')]
    """

    __test__ = False  # pytest collects classes called Test...
    bounded = False

    def __init__(self, *, idle_after: Any = None) -> None:
        self.watermark = Monotonic(idle_after=idle_after)
        self.steps: tuple[ScriptStep, ...] = ()

    def add(self, elements: Iterable[Any], *, partition: str | None = None) -> Self:
        """Returns the script with a further step that adds these elements."""
        if isinstance(elements, str | bytes):
            raise PipelineError(
                f"TestStream.add takes an iterable of elements, got one string {elements!r}; write add([{elements!r}])"
            )
        added = list(elements)
        watermark = self._watermark(partition)
        times = tuple(e.timestamp if isinstance(e, TimestampedValue) else watermark for e in added)
        values = tuple(e.value if isinstance(e, TimestampedValue) else e for e in added)
        return self._then(ScriptStep(values, times, watermark, self._clock, partition))

    def advance_watermark(self, to: Any, *, partition: str | None = None) -> Self:
        """Returns the script with a further step that moves the watermark."""
        time, before = _time(to), self._watermark(partition)
        if time < before:
            raise PipelineError(
                f"TestStream: the watermark cannot go back from {format_instant(before)} to "
                f"{format_instant(time)}; give a later time"
            )
        return self._then(ScriptStep((), (), time, self._clock, partition))

    def advance_clock(self, to: Any) -> Self:
        """Returns the script with a further step that moves processing time."""
        time = _time(to)
        if time < self._clock:
            raise PipelineError(
                f"TestStream: processing time cannot go back from {format_instant(self._clock)} to "
                f"{format_instant(time)}; give a later time"
            )
        return self._then(ScriptStep((), (), None, time))

    def finish(self) -> Self:
        """Returns the script with a last step, which moves the watermark to the end of time: every window fires."""
        return self._then(ScriptStep((), (), MAX_TIME, self._clock))

    def functions(self) -> tuple[object, ...]:
        return (self.steps,)

    def __str__(self) -> str:
        return f"TestStream({len(self.steps)} steps)"

    def _watermark(self, partition: str | None) -> int:
        """Returns the watermark of a partition, or of all of them."""
        watermarks = [step.watermark for step in self.steps if step.partition in (None, partition)]
        return max((watermark for watermark in watermarks if watermark is not None), default=MIN_TIME)

    @property
    def _clock(self) -> int:
        return self.steps[-1].clock if self.steps else 0

    def _then(self, step: ScriptStep) -> Self:
        if self._watermark(None) == MAX_TIME:
            raise PipelineError("TestStream: no step can follow finish(); put it last")
        if step.partition is not None and not (isinstance(step.partition, str) and step.partition):
            raise PipelineError(f"TestStream: a partition's name must be text, got {step.partition!r}")
        longer = copy.copy(self)
        longer.steps = (*self.steps, step)
        return longer


def _time(value: Any) -> int:
    return MAX_TIME if value == math.inf else instant(value)
