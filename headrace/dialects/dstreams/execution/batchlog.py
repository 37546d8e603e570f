"""The log of batches: one record for each interval, empty ones too, with the cut of every input.

A batch is what its record says, whenever and however often it is run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from headrace.dialects.dstreams.graph.inputs import Cut
from headrace.log import Group, Log

TOPIC: Final = "batches"
RETAINED: Final = 128
"""Batches that are kept after the last one that is needed: inputs read up to 64 of them back."""
_SEGMENT: Final = 1 << 20
"""Bytes after which records that are needed no more can be removed."""


class LoggedBatch(NamedTuple):
    """A batch of the log: its cut of each input, and when it was logged."""

    cuts: list[Cut]
    logged: int


class BatchLog:
    """The batches of a program, whose intervals are `interval` milliseconds; the first ends at `zero` + `interval`.

    `clock` tells when a batch is logged, for listeners; the times of batches may be those of a test's clock.
    """

    def __init__(self, folder: Path, zero: int, interval: int, clock: Callable[[], int]) -> None:
        self.path, self.zero, self.interval, self._clock = str(folder / "log"), zero, interval, clock
        log = Log(self.path)
        if TOPIC not in log.topics():
            log.create(TOPIC, segment_bytes=_SEGMENT, keep_bytes=0)  # what a group needs is kept all the same
        self._topic = log.topic(TOPIC)
        self._partition = self._topic.partition(0)
        self._group = Group(log, TOPIC, "kept")
        if not self._group.committed():
            self._group.commit({0: 0})

    def last(self) -> int:
        """Returns the time of the last batch; `zero` if there is none."""
        return self.zero + self._partition.next_offset() * self.interval

    def append(self, time: int, cuts: list[Cut]) -> None:
        """Appends the next batch. It counts once it is on disk."""
        assert time == self.last() + self.interval
        record = {"time": time, "cuts": cuts, "logged": self._clock()}
        self._topic.append(0, self._topic.batch([record], timestamps=[time * 1000]))

    def release(self, time: int) -> None:
        """Notes that no batch up to a time is read again; what inputs may ask for at their start is kept."""
        count = (time - self.zero) // self.interval
        if count > RETAINED and count % RETAINED == 0:
            self._group.commit({0: count - RETAINED})

    def batch(self, time: int) -> LoggedBatch:
        """Reads a batch."""
        at = (time - self.zero) // self.interval - 1
        record = next(self._topic.read(0, at, at + 1)).value
        return LoggedBatch(record["cuts"], record["logged"])

    def earlier(self, number: int) -> Iterator[Cut]:
        """Yields the cuts of an input, the last one first."""
        for time in range(self.last(), self.zero, -self.interval):
            yield self.batch(time).cuts[number]
