"""Clocks of a shard: watermarks of its input and output and processing time, and what they are computed from.

Low watermarks of partitions become a shard's input watermark; that and holds, its output watermark. Nothing here reads
a wall clock: every time is an argument, so that a replay sees the same times.
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
WRITTEN_BY: Final = " "
"""Between the names of a partition and of a writer, which says how far it is there."""


def written_part(partition: str, writer: str) -> str:
    """Returns the name by which a writer's watermark in a partition is reported."""
    return f"{partition}{WRITTEN_BY}{writer}"


@dataclass(frozen=True)
class Clocks:
    """The clocks of a shard: its input watermark, processing time, and the watermarks of percentiles in use.

    >>> Clocks(watermark=10).moved(Clocks(watermark=7, now=3))
    Clocks(watermark=10, now=3, percentiles={})
    >>> Clocks(watermark=10, percentiles={0.9: 25}).percentile(0.9), Clocks(watermark=10).percentile(1.0)
    (25, 10)
    """

    watermark: int = MIN_TIME
    now: int = MIN_TIME
    percentiles: Mapping[float, int] = field(default_factory=dict)

    def moved(self, to: Clocks) -> Clocks:
        """Returns these clocks moved on to others; none ever goes back."""
        earlier = self.percentiles
        percentiles = {
            q: max(earlier.get(q, MIN_TIME), to.percentiles.get(q, MIN_TIME)) for q in {**earlier, **to.percentiles}
        }
        return Clocks(max(self.watermark, to.watermark), max(self.now, to.now), percentiles)

    def percentile(self, q: float) -> int:
        """Returns the watermark of the fastest fraction `q` of the input; it is never behind that of the whole."""
        return max(self.watermark, self.percentiles.get(q, MIN_TIME))


def output_watermark(before: int, watermark: int, holds: Int64Array) -> int:
    """Computes the output watermark: the input watermark, but not past any watermark hold, and never back.

    >>> import numpy as np
    >>> output_watermark(5, 20, np.array([12, 15])), output_watermark(14, 20, np.array([12]))
    (12, 14)
    """
    return max(before, min(watermark, int(holds.min(initial=MAX_TIME))))


@dataclass
class Upstream:
    """The low watermarks of what a shard reads from: their minimum is its input watermark.

    What it reads from is named. Sources may have partitions; new ones are known when they report. A report of the whole
    source applies to all its partitions, also to new ones. The watermark waits for whatever has not reported yet.

    A partition that reported nothing for `idle_after` (by name, in microseconds of processing time) is idle: the
    watermark does not wait for it until it reports again. If all are idle, the watermark stays where it is.

    `disorder`, by partition, is of sources whose watermark depends on the disorder of their elements.

    Of sources in `written` the writers say how far they are. A writer that has said something in one partition is
    waited for in all: what it wrote to another may not have been read yet.

    >>> upstream = Upstream({"minutes": MIN_TIME}, partitions={"minutes": {"0": MIN_TIME, "1": MIN_TIME}})
    >>> upstream.written = frozenset({"minutes"})
    >>> upstream.report("minutes", 60, now=0, partition=written_part("0", "a"))
    >>> upstream.advance(now=0) == MIN_TIME
    True
    >>> upstream.report("minutes", 50, now=0, partition=written_part("1", "a"))
    >>> upstream.advance(now=0)
    50

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
    written: frozenset[str] = frozenset()

    def report(self, name: str, low: int, *, now: int, partition: str = WHOLE) -> None:
        """Notes that a source, or a partition of it, has come to `low` in a batch of the time `now`."""
        if partition == WHOLE:
            self.low[name] = max(self.low.get(name, MIN_TIME), low)
        else:
            lows = self.partitions.setdefault(name, {})
            lows[partition] = max(lows.get(partition, MIN_TIME), low)
        if name in self.idle_after:
            self.active.setdefault(name, {})[partition] = now

    def learn(self, sketches: Iterable[tuple[str, str, Sketch]], *, now: int) -> None:
        """Takes in the sketches of disorder that the tasks of a micro-batch sent: upstream, partition, sketch."""
        by_partition: dict[tuple[str, str], list[Sketch]] = defaultdict(list)
        for name, partition, sketch in sketches:
            by_partition[name, partition].append(sketch)
        for (name, partition), of_partition in by_partition.items():
            disorder = self.disorder.setdefault(name, {}).setdefault(partition, Disorder())
            self.report(name, disorder.take(of_partition), now=now, partition=partition)

    def idle(self, *, now: int) -> list[tuple[str, str]]:
        """Returns the partitions that are idle: name and partition."""
        return sorted((name, part) for name, part, _ in self.lows() if self._is_idle(name, part, now))

    def advance(self, *, now: int) -> int:
        """Moves the input watermark on as far as all that are not idle allow; returns it."""
        for name, partition, _ in self.lows() if now > MIN_TIME else ():
            if name in self.idle_after:  # one that never reports becomes idle, too
                self.active.setdefault(name, {}).setdefault(partition, now)
        waited_for = [low for name, part, low in self.lows() if not self._is_idle(name, part, now)]
        self.watermark = max(self.watermark, min(waited_for, default=MIN_TIME))
        return self.watermark

    def _is_idle(self, name: str, partition: str, now: int) -> bool:
        since = self.active.get(name, {}).get(partition)
        return name in self.idle_after and since is not None and now - since >= self.idle_after[name]

    def lows(self) -> Iterator[tuple[str, str, int]]:
        """Yields the low watermark of every partition: name, partition, time."""
        for name, whole in self.low.items():
            parts = self.partitions.get(name) or {WHOLE: whole}
            for part, low in (_by_writer(parts) if name in self.written else parts).items():
                yield name, part, max(whole, low)

    def by_name(self) -> dict[str, int]:
        """Returns the low watermark by name, which is that of the slowest partition."""
        slowest: dict[str, int] = {}
        for name, _, low in self.lows():
            slowest[name] = min(low, slowest.get(name, low))
        return slowest

    def dump(self) -> bytes:
        """Encodes what was reported, the same bytes for the same contents."""
        disorder = {name: {part: of.dump() for part, of in parts.items()} for name, parts in self.disorder.items()}
        return json.dumps([self.watermark, self.low, self.partitions, self.active, disorder], sort_keys=True).encode()

    def load(self, data: bytes) -> None:
        """Restores what `dump` encoded."""
        self.watermark, self.low, self.partitions, self.active, disorder = json.loads(data)
        self.disorder = {
            name: {part: Disorder.load(of) for part, of in parts.items()} for name, parts in disorder.items()
        }


def _by_writer(parts: Mapping[str, int]) -> dict[str, int]:
    """Returns the low watermark of every writer in every partition; those of partitions, if there is no writer yet."""
    named = [part.partition(WRITTEN_BY) for part in parts]
    partitions = dict.fromkeys(partition for partition, _, _ in named)
    writers = dict.fromkeys(writer for _, written, writer in named if written)
    if not writers:
        return dict(parts)
    every = (written_part(partition, writer) for partition in partitions for writer in writers)
    return {part: parts.get(part, MIN_TIME) for part in every}
