"""Weak productions: workers append what callbacks produce at the end of their step, before its state is stored.

So a consumer has it sooner. If the step is run again after a failure, it is appended again. The low watermark of the
stream is written by the driver, after the step, as for strong productions: what comes again does not come late.
"""

from __future__ import annotations

from typing import Any

from headrace.log import Log, Topic
from headrace.log.fences import Fence
from headrace.log.partitioning import partition_of


class WeakProductions:
    """Appends to the output streams of a computation; with fences, until another process owns the computation."""

    def __init__(self, log: str, outputs: dict[str, Any], fences: dict[str, Fence] | None = None) -> None:
        self.log, self.outputs, self.fences = log, outputs, fences or {}
        self._topics: dict[str, Topic] = {}
        self._produced: dict[str, list[tuple[Any, int]]] = {}

    def add(self, produced: list[tuple[str, Any, int | None]], time: int) -> None:
        """Adds what a callback produced; what has no time of its own has that of the callback."""
        for stream, value, timestamp in produced:
            self._produced.setdefault(stream, []).append((value, time if timestamp is None else timestamp))

    def flush(self) -> None:
        """Appends all of it, and returns when it is on disk."""
        produced, self._produced = self._produced, {}
        for stream, records in produced.items():
            topic = self._topic(stream)
            by_partition: dict[int, list[tuple[Any, int, bytes | None]]] = {}
            for value, time in records:
                key = self._key(stream, value)
                partition = 0 if key is None else partition_of(key, len(topic.partitions))
                by_partition.setdefault(partition, []).append((value, time, key))
            for number, each in by_partition.items():
                values, times, keys = map(list, zip(*each, strict=True))
                batch = topic.batch(values, timestamps=[int(time) for time in times], keys=keys)
                topic.partition(number).append(batch, fence=self.fences.get(stream))

    def _topic(self, stream: str) -> Topic:
        if stream not in self._topics:
            self._topics[stream] = Log(self.log).topic(stream)
        return self._topics[stream]

    def _key(self, stream: str, value: Any) -> bytes | None:
        by = self.outputs.get(stream)
        if by is None:
            return None
        key = by(value) if callable(by) else value[by]
        return key if isinstance(key, bytes) else str(key).encode()

    def __getstate__(self) -> dict[str, Any]:
        return {"log": self.log, "outputs": self.outputs, "fences": self.fences, "_topics": {}, "_produced": {}}
