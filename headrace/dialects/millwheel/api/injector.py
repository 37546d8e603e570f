"""Injectors: bring records into a stream, and say how far it is: its low watermark begins with them.

An injector appends in batches with numbers. Whoever sends a batch again after a crash, with the same number and
records, appends what is not in the stream yet. Of two processes with one injector's name, the older one is refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headrace.dialects.millwheel.api.recordsandtimers import ComputationError
from headrace.dialects.millwheel.api.streamaddress import stream_address
from headrace.edges.numberedbatches import numbered_batches
from headrace.log.partitioning import partition_of
from headrace.log.producers import Pending
from headrace.log.watermarkrecords import WriterWatermark
from headrace.model.times import MAX_TIME, MIN_TIME, Instant, InstantLike, format_instant, instant, now
from headrace.model.watermarks import BoundedDisorder, WatermarkPolicy, checked_policy


@dataclass(frozen=True)
class Perfect:
    """Watermarks of an injector that knows: it says itself, by `advance`, how far it is, and sends nothing older.

    >>> from headrace import millwheel as mw
    >>> mw.Perfect()
    Perfect()
    """


@dataclass(frozen=True)
class Heuristic:
    """Watermarks of an injector that estimates, by a policy, from the event times it sends. What is older is late.

    >>> from headrace import millwheel as mw
    >>> import headrace as hr
    >>> mw.Heuristic(hr.BoundedDisorder("5 seconds"))
    Heuristic(policy=BoundedDisorder('5 s'))
    """

    policy: WatermarkPolicy = field(default_factory=lambda: BoundedDisorder("10 seconds"))

    def __post_init__(self) -> None:
        if type(checked_policy("Heuristic", self.policy)).low_watermark is WatermarkPolicy.low_watermark:
            raise ComputationError(
                f"Heuristic: {self.policy!r} learns from all that a stream reads, which an injector does not; use e.g. "
                "hr.BoundedDisorder('10 seconds')"
            )


class Injector:
    """Sends records to a stream, a topic of the log or a URI of one of Kafka, with the watermarks of `watermark`.

    `flush` appends what was sent, and returns when it is on disk; leaving a `with` block flushes, too. `next` is the
    number of the batch that comes next: after a crash, an injector of the same name begins with the first batch that is
    not completely in the stream.

    >>> import tempfile
    >>> from headrace.log import Log
    >>> from headrace import millwheel as mw
    >>> topic = Log(tempfile.mkdtemp()).create("queries")
    >>> with mw.Injector("queries", log=topic.log.path, name="frontend") as injector:
    ...     injector.send({"query": "mill"}, timestamp=7)
    ...     injector.advance(8)
    >>> [record.value for record in topic.read(0)], injector.next
    ([{'query': 'mill'}], 1)
    >>> injector.send({"query": "wheel"}, timestamp=7)
    Traceback (most recent call last):
        ...
    headrace.dialects.millwheel.api.recordsandtimers.ComputationError: the injector 'frontend' has said that it is at 1970-01-01T00:00:08Z, and now sends a record of 1970-01-01T00:00:07Z; advance it later, or use mw.Heuristic() watermarks
    """  # noqa: E501 (the message is one line)

    def __init__(
        self,
        stream: str,
        *,
        log: str | os.PathLike[str] | None = None,
        name: str,
        watermark: Perfect | Heuristic = Perfect(),
        clock: Callable[[], int] = now,
    ) -> None:
        if not isinstance(watermark, Perfect | Heuristic):
            raise ComputationError(f"Injector: watermark is mw.Perfect() or mw.Heuristic(...), got {watermark!r}")
        self.name, self.kind, self.clock = name, watermark, clock
        if log is None and ":" not in stream:
            raise ComputationError(f"Injector: the stream {stream!r} is a topic of a log; say of which, with log=")
        address = stream_address(stream, log)
        self.stream = numbered_batches(f"the injector {name!r}", address, f"injector/{name}")
        self.watermark = Instant(MIN_TIME)
        self._said = MIN_TIME  # the watermark of the last batch
        self._incomplete = False  # whether the last flush failed: some partitions may have its batch
        self.sent = self.late = 0
        self._pending: dict[int, Pending] = {}
        self._times: list[int] = []

    @property
    def next(self) -> int:
        """The number of the batch that comes next."""
        return self.stream.last + 1

    def send(self, value: Any, *, timestamp: InstantLike, key: bytes | str | None = None) -> None:
        """Sends a record of an event time; records with one key go to one partition, others to that of the batch."""
        self._check_complete()
        time = instant(timestamp)
        if time < self.stream.earliest:
            raise ComputationError(
                f"the injector {self.name!r} sends a record of {format_instant(time)} to Kafka, which has no times "
                f"before {format_instant(self.stream.earliest)}; use a stream of the log"
            )
        if time < self.watermark:
            if isinstance(self.kind, Perfect):
                raise ComputationError(
                    f"the injector {self.name!r} has said that it is at {self.watermark}, and now sends a record of "
                    f"{format_instant(time)}; advance it later, or use mw.Heuristic() watermarks"
                )
            self.late += 1
        self.sent += 1
        octets = key.encode() if isinstance(key, str) else key
        count = self.stream.partitions
        number = self.next % count if octets is None else partition_of(octets, count)
        pending = self._pending.setdefault(number, Pending())
        pending.values.append(value)
        pending.keys.append(octets)
        pending.timestamps.append(time)
        self._times.append(time)

    def advance(self, watermark: InstantLike) -> None:
        """Says that all later records have this event time or a later one; for perfect watermarks."""
        if not isinstance(self.kind, Perfect):
            raise ComputationError(f"the injector {self.name!r} estimates its watermark itself; leave advance out")
        self._check_complete()
        self.watermark = Instant(max(self.watermark, instant(watermark)))

    def flush(self) -> None:
        """Appends what was sent as batch `next`, and the watermark; if it fails, the same can be flushed again."""
        if isinstance(self.kind, Heuristic) and self._times:
            low = self.kind.policy.low_watermark(np.array(self._times, np.int64))
            self.watermark = Instant(max(self.watermark, low))
        self._incomplete = True
        said = WriterWatermark(f"injector/{self.name}", self.watermark)
        self.stream.write(self.next, self._pending, self.clock(), said)
        self._pending, self._times = {}, []
        self._said, self._incomplete = self.watermark, False

    def _check_complete(self) -> None:
        if self._incomplete:
            raise ComputationError(
                f"the injector {self.name!r} could not append batch {self.next} to all partitions, and those that have "
                "it take no more into it; call flush() again before anything else is sent"
            )

    def finish(self) -> None:
        """Says that nothing follows: the low watermark of this injector goes to the end of time."""
        self._check_complete()
        self.watermark = Instant(MAX_TIME)
        self.flush()

    def __enter__(self) -> Injector:
        return self

    def __exit__(self, kind: object, *rest: object) -> None:
        # A batch without anything new would take the number of one that is still to be sent.
        if kind is None and (self._pending or self.watermark > self._said):
            self.flush()
