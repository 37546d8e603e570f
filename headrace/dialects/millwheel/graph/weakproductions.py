"""Weak productions: workers append what callbacks produce at the end of their step, before its state is stored.

So a consumer has it sooner. If the step is run again after a failure, it is appended again. The low watermark of the
stream is written by the driver, after the step, as for strong productions: what comes again does not come late.
"""

from __future__ import annotations

from typing import Any

from headrace.dialects.millwheel.api.streamaddress import stream_address
from headrace.edges.recordparts import key_bytes, parts_of
from headrace.edges.topicranges import open_topic
from headrace.log.fences import Fence
from headrace.log.producers import Producer


class WeakProductions:
    """Appends to the output streams of a computation; with fences, until another process owns the computation."""

    def __init__(self, log: str, outputs: dict[str, Any], fences: dict[str, Fence] | None = None) -> None:
        self.log, self.outputs, self.fences = log, outputs, fences or {}
        self._producers: dict[str, Producer] = {}

    def add(self, produced: list[tuple[str, Any, int | None]], time: int) -> None:
        """Adds what a callback produced; what has no time of its own has that of the callback."""
        for stream, value, timestamp in produced:
            (key,) = parts_of([value], self.outputs[stream])
            when = int(time if timestamp is None else timestamp)
            self._producer(stream).send(value, key=key_bytes(key), timestamp=when)

    def flush(self) -> None:
        """Appends all of it, and returns when it is on disk."""
        for producer in self._producers.values():
            producer.flush()

    def _producer(self, stream: str) -> Producer:
        if stream not in self._producers:
            topic = open_topic(stream, stream_address(stream, self.log))
            self._producers[stream] = Producer(topic, fence=self.fences.get(stream))
        return self._producers[stream]

    def __getstate__(self) -> dict[str, Any]:
        return {"log": self.log, "outputs": self.outputs, "fences": self.fences, "_producers": {}}
