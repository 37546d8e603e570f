"""Clocks: how far the input has come, by event time and by processing time, and what that is worked out from.

Low watermarks of partitions become a shard's input watermark; that and holds, its output watermark. Nothing here reads
a wall clock: every time is given, so that a replay sees the same ones.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from headrace.engine.shard.delays import Disorder, Sketch
from headrace.model.times import MAX_TIME, MIN_TIME, Int64Array

WHOLE: Final = ""
"""In place of a partition's name: all of a source."""


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

    >>> import numpy as np
    >>> output_watermark(5, 20, np.array([12, 15])), output_watermark(14, 20, np.array([12]))
    (12, 14)
    """
    return max(before, min(watermark, int(holds.min(initial=MAX_TIME))))


@dataclass
class Upstream:
    """The low watermarks of what a shard reads from: their minimum is its input watermark.

    What it reads from is named; sources may have partitions, and it learns of new ones when they report. What is
    reported of the whole holds for each of them, also those to come. Whoever has not reported is waited for.

    One that reported nothing for `idle_after` (by name, in microseconds of processing time) is not waited for until it
    reports again. If all are idle the watermark stays where it is.

    Of sources whose watermark is by the disorder of their elements, it keeps that, by partition.

    >>> upstream = Upstream({"events": MIN_TIME}, idle_after={"events": 60})
    >>> upstream.report("events", 100, now=0, partition="a")
    >>> upstream.report("events", 40, now=0, partition="b")
    >>> upstream.advance(now=0)
    40
    >>> upstream.report("events", 120, now=60, partition="a")
    >>> upstream.idle(now=60), upstream.advance(now=60)
    ([('events', 'b')], 120)
    """

    low: dict[str, int]
    idle_after: dict[str, int] = field(default_factory=dict)
    partitions: dict[str, dict[str, int]] = field(default_factory=dict)
    watermark: int = MIN_TIME
    active: dict[str, dict[str, int]] = field(default_factory=dict)  # when each reported last
    disorder: dict[str, dict[str, Disorder]] = field(default_factory=dict)

    def report(self, name: str, low: int, *, now: int, partition: str = WHOLE) -> None:
        """A source or a partition of it has come to `low`, by a batch in which it had something to say."""
        if partition == WHOLE:
            self.low[name] = max(self.low.get(name, MIN_TIME), low)
        else:
            lows = self.partitions.setdefault(name, {})
            lows[partition] = max(lows.get(partition, MIN_TIME), low)
        if name in self.idle_after:
            self.active.setdefault(name, {})[partition] = now

    def learn(self, sketches: Iterable[tuple[str, str, Sketch]], *, now: int) -> None:
        """What the tasks of a micro-batch tell of disorder: names, each with its partition."""
        told: dict[tuple[str, str], list[Sketch]] = defaultdict(list)
        for name, partition, sketch in sketches:
            told[name, partition].append(sketch)
        for (name, partition), each in told.items():
            disorder = self.disorder.setdefault(name, {}).setdefault(partition, Disorder())
            self.report(name, disorder.take(each), now=now, partition=partition)

    def idle(self, *, now: int) -> list[tuple[str, str]]:
        """Those that are not waited for: names, each with its partition."""
        return sorted((name, part) for name, part, _ in self.lows() if self._is_idle(name, part, now))

    def advance(self, *, now: int) -> int:
        """The input watermark, moved on as far as those who are waited for allow."""
        for name, partition, _ in self.lows() if now > MIN_TIME else ():
            if name in self.idle_after:  # one that never reports is idle some day, too
                self.active.setdefault(name, {}).setdefault(partition, now)
        waited_for = [low for name, part, low in self.lows() if not self._is_idle(name, part, now)]
        self.watermark = max(self.watermark, min(waited_for, default=MIN_TIME))
        return self.watermark

    def _is_idle(self, name: str, partition: str, now: int) -> bool:
        since = self.active.get(name, {}).get(partition)
        return name in self.idle_after and since is not None and now - since >= self.idle_after[name]

    def lows(self) -> Iterator[tuple[str, str, int]]:
        """How far each has come: names, each with its partition."""
        for name, whole in self.low.items():
            for part, low in (self.partitions.get(name) or {WHOLE: whole}).items():
                yield name, part, max(whole, low)

    def by_name(self) -> dict[str, int]:
        """How far each has come, which is as far as its slowest partition."""
        slowest: dict[str, int] = {}
        for name, _, low in self.lows():
            slowest[name] = min(low, slowest.get(name, low))
        return slowest

    def dump(self) -> bytes:
        """What it has learnt, the same bytes for the same contents."""
        disorder = {name: {part: of.dump() for part, of in each.items()} for name, each in self.disorder.items()}
        return json.dumps([self.watermark, self.low, self.partitions, self.active, disorder], sort_keys=True).encode()

    def load(self, data: bytes) -> None:
        """Takes over what `dump` wrote."""
        self.watermark, self.low, self.partitions, self.active, disorder = json.loads(data)
        self.disorder = {
            name: {part: Disorder.load(of) for part, of in each.items()} for name, each in disorder.items()
        }
