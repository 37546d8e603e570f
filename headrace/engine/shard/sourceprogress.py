"""The progress of a source's partition in a task: its low watermark, by the watermark policy of the source."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from headrace.engine.shard.delays import Sketch, sketch
from headrace.model.times import MAX_TIME, MIN_TIME, Int64Array
from headrace.model.watermarks import BoundedDisorder, Monotonic, Percentile, Punctuated, WatermarkPolicy

_BY_LATEST: Final = (Monotonic, BoundedDisorder, Punctuated)
"""Policies that need not see all times at once: the latest answer for parts is the answer for the whole."""


@dataclass
class SourceProgress:
    """The event times of a partition in a task, or what the watermark policy needs of them.

    An element too far ahead of processing time has a wrong clock: it is counted, and does not move the watermark. If
    processing time is not known, all elements are trusted.

    >>> progress = SourceProgress(BoundedDisorder("10 us", max_skew="50 us"))
    >>> progress.observe(np.array([40, 90, 5_000]), now=100)
    >>> progress.low(), progress.skewed
    (80, 1)
    """

    policy: WatermarkPolicy
    skewed: int = 0
    latest: int = MIN_TIME
    times: list[Int64Array] = field(default_factory=list)

    def observe(self, times: Int64Array, *, now: int | None) -> None:
        """Takes in the times of elements, or punctuations, of a batch of the time `now`."""
        trusted = times[times <= (MAX_TIME if now is None else now + self.policy.max_skew)]
        self.skewed += len(times) - len(trusted)
        # An element without a time says nothing.
        trusted = trusted[trusted > MIN_TIME]
        if not len(trusted):
            return
        if type(self.policy) in _BY_LATEST:
            self.latest = max(self.latest, self.policy.low_watermark(trusted))
        else:
            self.times.append(trusted)

    def low(self) -> int:
        """Returns the low watermark, as far as the task can tell; the beginning of time if it cannot."""
        if not self.times or isinstance(self.policy, Percentile):
            return self.latest
        low = self.policy.low_watermark(np.concatenate(self.times))
        if isinstance(low, bool) or not isinstance(low, int | np.integer):
            raise TypeError(
                f"{type(self.policy).__name__}.low_watermark gives a time in microseconds, an int; got {low!r}"
            )
        return min(max(int(low), MIN_TIME), MAX_TIME)

    def sketch(self) -> Sketch | None:
        """Returns the sketch of disorder, if the policy needs one; shards merge it."""
        if not self.times or not isinstance(self.policy, Percentile):
            return None
        return sketch(np.concatenate(self.times), self.policy.q)
