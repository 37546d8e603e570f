"""The passing of time in a stream: whether it ends, whether a script moves its clock, whether it has a heartbeat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.engine.plan.line import Line
from headrace.engine.stream.sources import policy_of
from headrace.model.sources import FileSource, Rate
from headrace.model.teststream import TestStream
from headrace.model.topics import ReadTopic
from headrace.model.watermarks import WatermarkPolicy


@dataclass(frozen=True)
class Timing:
    """Facts about time that a line's sources and shards have.

    - scripted_clock: a script moves processing time; ends: all sources are read to their end
    - policies: watermark policies by source; idle_after: when sources are idle, by name, of those that may be
    - timed: something happens as processing time passes
    """

    scripted_clock: bool
    ends: bool
    policies: dict[str, WatermarkPolicy]
    idle_after: dict[str, int]
    timed: bool

    @classmethod
    def of(cls, line: Line, trigger: Any) -> Timing:
        """Returns the timing of a line; with a trigger, files are read as they arrive."""
        kinds = [tap.source.transform for tap in line.taps]
        arriving = trigger is not None and any(isinstance(kind, FileSource) for kind in kinds)
        endless = any(isinstance(kind, Rate | ReadTopic) and not kind.bounded for kind in kinds)
        policies = {tap.name: policy_of(tap.source) for tap in line.taps}
        idle_after = {name: each.idle_after for name, each in policies.items() if each.idle_after is not None}
        return cls(
            scripted_clock=any(isinstance(kind, TestStream) for kind in kinds),
            ends=not endless and not arriving,
            policies=policies,
            idle_after=idle_after,
            timed=bool(idle_after) or any(exchange.work.needs_time for exchange in line.exchanges),
        )

    def needs_heartbeat(self, *, had_one: bool) -> bool:
        """Returns whether the clock is a source of the stream; one that had it keeps it."""
        return (self.timed or had_one) and not self.ends and not self.scripted_clock
