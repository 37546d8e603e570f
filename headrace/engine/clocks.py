"""Clocks: how far the input has come, by event time and by processing time, and what that is worked out from.

Low watermarks of partitions become a shard's input watermark; that and holds, its output watermark. Nothing here reads
a wall clock: every time is given, so that a replay sees the same ones.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from headrace.model.times import MAX_TIME, MIN_TIME, Int64Array


@dataclass(frozen=True)
class Clocks:
    """What a shard knows of time: its input watermark, processing time, and the watermarks of percentiles in use.

    >>> Clocks(watermark=10).moved(Clocks(watermark=7, now=3))
    Clocks(watermark=10, now=3, percentiles={})
    >>> Clocks(watermark=10, percentiles={0.9: 25}).percentile(0.9), Clocks(watermark=10).percentile(1.0)
    (25, 10)
    """

    watermark: int = MIN_TIME
    now: int = MIN_TIME
    percentiles: Mapping[float, int] = field(default_factory=dict)

    def moved(self, to: Clocks) -> Clocks:
        """These clocks moved on to others; none ever goes back."""
        earlier = self.percentiles
        percentiles = {
            q: max(earlier.get(q, MIN_TIME), to.percentiles.get(q, MIN_TIME)) for q in {**earlier, **to.percentiles}
        }
        return Clocks(max(self.watermark, to.watermark), max(self.now, to.now), percentiles)

    def percentile(self, q: float) -> int:
        """The watermark of the fastest fraction `q` of the input; it never trails that of the whole."""
        return max(self.watermark, self.percentiles.get(q, MIN_TIME))


def output_watermark(before: int, watermark: int, holds: Int64Array) -> int:
    """How far a stage's output has come: as far as its input, but not past what it still holds back; never back.

    >>> output_watermark(5, 20, np.array([12, 15])), output_watermark(14, 20, np.array([12]))
    (12, 14)
    """
    return max(before, min(watermark, int(holds.min(initial=MAX_TIME))))


def source_watermark(before: int, times: Int64Array, *, now: int, slack: int, max_skew: int) -> tuple[int, int]:
    """The low watermark of a source partition after it read elements of these times, and how many it did not trust.

    The watermark trails the latest element by `slack`. An element more than `max_skew` ahead of processing time is a
    wrong clock, not progress: it is counted, and does not move the watermark.

    >>> source_watermark(0, np.array([40, 90, 5_000]), now=100, slack=10, max_skew=50)
    (80, 1)
    """
    trusted = times <= now + max_skew
    latest = int(times[trusted].max(initial=MIN_TIME))
    return max(before, latest - slack if latest > MIN_TIME else MIN_TIME), int(np.count_nonzero(~trusted))


@dataclass
class Upstream:
    """The low watermarks of the partitions a shard reads from: their minimum is its input watermark.

    A partition that brought nothing for `idle_after` (microseconds of processing time) is not waited for until it
    brings something again. If all are idle the watermark stays where it is.

    >>> upstream = Upstream(idle_after=60)
    >>> upstream.report("a", 100, now=0), upstream.report("b", 40, now=0), upstream.advance(now=0)
    (None, None, 40)
    >>> upstream.report("a", 120, now=60), upstream.idle(now=60), upstream.advance(now=60)
    (None, ['b'], 120)
    """

    idle_after: int | None = None
    watermark: int = MIN_TIME
    low: dict[str, int] = field(default_factory=dict)
    active: dict[str, int] = field(default_factory=dict)

    def report(self, partition: str, low: int, *, now: int, rows: int = 0) -> None:
        """A partition has come to `low`, by a batch with this many rows."""
        before = self.low.get(partition)
        self.low[partition] = low if before is None else max(before, low)
        if before is None or low > before or rows:
            self.active[partition] = now

    def idle(self, *, now: int) -> list[str]:
        """The partitions that are not waited for."""
        if self.idle_after is None:
            return []
        return sorted(name for name, since in self.active.items() if now - since >= self.idle_after)

    def advance(self, *, now: int) -> int:
        """The input watermark, moved on as far as the partitions allow."""
        idle = set(self.idle(now=now))
        waited_for = [low for name, low in self.low.items() if name not in idle]
        self.watermark = max(self.watermark, min(waited_for, default=MIN_TIME))
        return self.watermark

    def dump(self) -> bytes:
        """All of it, the same bytes for the same contents."""
        return json.dumps([self.idle_after, self.watermark, self.low, self.active], sort_keys=True).encode()

    @classmethod
    def load(cls, data: bytes) -> Upstream:
        """What `dump` wrote."""
        return cls(*json.loads(data))


_GROWTH: Final = np.log1p(0.02)  # from bucket to bucket


@dataclass
class Delays:
    """How late elements come, as a sketch: counts in buckets whose width grows with the delay.

    Its answers are not below the truth, and at most two percent above. Unlike those of sketches that toss coins, they
    are the same in every replay.

    >>> delays = Delays()
    >>> delays.observe(np.array([99, 98, 0]), now=100)
    >>> delays.quantile(0.6), delays.quantile(1.0)
    (2, 102)
    """

    buckets: dict[int, int] = field(default_factory=dict)

    def observe(self, times: Int64Array, *, now: int) -> None:
        """Elements of these event times arrive now."""
        late = np.maximum(now - times, 0).astype(np.float64)
        numbers, counts = np.unique(np.ceil(np.log1p(late) / _GROWTH).astype(np.int64), return_counts=True)
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            self.buckets[number] = self.buckets.get(number, 0) + count

    def quantile(self, q: float) -> int:
        """The delay that a fraction `q` of the elements did not exceed; 0 if there were none."""
        if not self.buckets:
            return 0
        numbers = np.array(sorted(self.buckets))
        reached = np.cumsum([self.buckets[number] for number in numbers.tolist()])
        number = numbers[np.searchsorted(reached, q * reached[-1] * (1 - 1e-12))]
        return round(float(np.expm1(number * _GROWTH)))

    def watermarks(self, qs: set[float], *, now: int) -> dict[float, int]:
        """For each fraction, the time before which so much of the input has arrived by now. All of it: nobody knows."""
        return {q: now - self.quantile(q) for q in sorted(qs) if q < 1 and self.buckets}
