"""Events from outside, on their way into a topic: lines of JSON become records, all of a request or none.

A request with a key is appended as a batch of a producer of that name, so that one which comes again is recognised by
the log itself, also after a restart; a header of its first record in each partition tells it from others. Nothing of
HTTP is here.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, NamedTuple, NoReturn

import pyarrow as pa

from headrace import log
from headrace.log import LogError
from headrace.log.partitioning import partition_of
from headrace.log.partitions import Partition
from headrace.log.producers import producer_id
from headrace.log.values import HEADERS
from headrace.views.declarations import Topic

_TOLD: Final = 100  # bad lines that are told one by one
_REQUEST: Final = "request"  # the header with the digest of the request that a batch is of


class BadLines(ValueError):
    """Lines that are no events of the topic, by their numbers from 1 on: all are counted, at most a hundred told."""

    def __init__(self, reasons: Mapping[int, str]) -> None:
        what = "1 line is no event" if len(reasons) == 1 else f"{len(reasons)} lines are no events"
        super().__init__(f"{what} of the topic; none of the request was appended")
        self.count, self.reasons = len(reasons), dict(list(reasons.items())[:_TOLD])


class OtherRequest(ValueError):
    """A key that came with other records before."""


class Tried(NamedTuple):
    """The name under which a client sends a request again if it heard nothing, and the number of the request."""

    key: str
    sequence: int = 0


@dataclass(frozen=True)
class Receipt:
    """What became of a request: how many records, the offset of the first in each partition, and whether it had come
    before."""

    records: int
    offsets: dict[int, int]
    repeated: bool = False


class Ingestion:
    """Appends events to one topic. Any number of threads may.

    >>> import headrace as hr, tempfile
    >>> visits = hr.Topic("visits", schema="user string, ts timestamp", event_time="ts", key="user")
    >>> ingestion = Ingestion(visits, log.Log(tempfile.mkdtemp()).create("visits", values=visits.schema))
    >>> line = b'{"user": "ann", "ts": "2026-01-31T12:00:00Z"}'
    >>> ingestion.append(line, Tried("a1")), ingestion.append(line, Tried("a1"))
    (Receipt(records=1, offsets={0: 0}, repeated=False), Receipt(records=1, offsets={0: 0}, repeated=True))
    """

    def __init__(self, declared: Topic, topic: log.Topic) -> None:
        self.declared, self.topic = declared, topic
        self._lock = threading.Lock()  # a partition is not for several threads at once
        self._turn = 0

    def append(self, body: bytes, tried: Tried | None = None) -> Receipt:
        """Appends the events of a body, one in each line that is not empty. On disk when it returns."""
        events, times = self._parsed(body)
        with self._lock:
            if tried is None:
                self._turn = (self._turn + 1) % len(self.topic.partitions)
                batches = self._batches(events, times, spare=self._turn)
                return Receipt(
                    len(events), {number: self.topic.append(number, each) for number, each in batches.items()}
                )
            digest = _digest(events)
            spare = partition_of(tried.key.encode(), len(self.topic.partitions))
            batches = self._batches(events, times, spare, {_REQUEST: digest})
            return self._append_once(batches, tried, digest, len(events))

    def offsets(self) -> dict[int, int]:
        """The offset that the next record of each partition will have."""
        with self._lock:
            return {number: each.next_offset() for number, each in enumerate(self.topic.partitions)}

    def bounds(self) -> dict[int, tuple[int, int]]:
        """The first offset that each partition has, and the one that its next record will have."""
        with self._lock:
            return {number: (each.earliest(), each.next_offset()) for number, each in enumerate(self.topic.partitions)}

    def _append_once(self, batches: dict[int, pa.RecordBatch], tried: Tried, digest: bytes, count: int) -> Receipt:
        producer, sequence = producer_id(f"request/{tried.key}"), tried.sequence
        # What is there already is looked at first: if it is another request, nothing of this one may be appended.
        found = {}
        for number, partition in enumerate(self.topic.partitions):
            last = partition.last_sequence(producer)
            if last == sequence and number not in batches:
                _refuse(tried)
            if last >= sequence and number in batches:
                found[number] = partition.append(batches[number], producer=producer, sequence=sequence)
                if not _is_of(partition, found[number], digest):
                    _refuse(tried)
        repeated = 0 < len(found) == len(batches)
        for number in sorted(batches.keys() - found.keys()):
            partition = self.topic.partition(number)
            found[number] = partition.append(batches[number], producer=producer, sequence=sequence)
        return Receipt(count, dict(sorted(found.items())), repeated)

    def _parsed(self, body: bytes) -> tuple[list[dict[str, Any]], list[int]]:
        """The events and their times."""
        events, numbers, reasons = [], [], {}
        for number, line in enumerate(body.split(b"\n"), 1):
            if not line.strip():
                continue
            try:
                events.append(_event(line, self.declared.event_time))
                numbers.append(number)
            except ValueError as error:
                reasons[number] = str(error)
            except RecursionError:
                reasons[number] = "it is nested too deeply"
        try:
            if not reasons:
                return events, self._times(self.topic.values.encoded(events))
        except (LogError, OverflowError):
            pass
        for number, event in zip(numbers, events, strict=True):
            try:
                self.topic.values.encoded([event])
            except (LogError, OverflowError) as error:
                reasons[number] = str(error)
        raise BadLines(dict(sorted(reasons.items())))

    def _times(self, values: pa.StructArray) -> list[int]:
        if self.declared.event_time is None:
            return [self.topic.log.clock()] * len(values)
        times = values.field(self.declared.event_time)
        return times.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]

    def _batches(
        self, events: list[dict[str, Any]], times: list[int], spare: int, header: dict[str, bytes] | None = None
    ) -> dict[int, pa.RecordBatch]:
        """The records of each partition, the first of them with a header; those without a key go to `spare`."""
        key, count = self.declared.key, len(self.topic.partitions)
        shares: dict[int, tuple[list[object], list[int], list[bytes | None]]] = {}
        for event, time in zip(events, times, strict=True):
            octets = None if key is None or event.get(key) is None else _text(event[key]).encode()
            number = spare if octets is None else partition_of(octets, count)
            share = shares.setdefault(number, ([], [], []))
            share[0].append(event)
            share[1].append(time)
            share[2].append(octets)
        return {
            number: self.topic.batch(
                values, timestamps=stamps, keys=keys, headers=[header, *[None] * (len(values) - 1)]
            )
            for number, (values, stamps, keys) in sorted(shares.items())
        }


def _event(line: bytes, event_time: str | None) -> dict[str, Any]:
    try:
        event = json.loads(line, parse_constant=_no_number)
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {error.msg} at {error.colno}") from None
    if not isinstance(event, dict):
        raise ValueError("it is not a JSON object of columns")
    if event_time is not None and event.get(event_time) is None:
        raise ValueError(f"it has no {event_time!r}, which is the time of the event")
    return event


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _digest(events: list[dict[str, Any]]) -> bytes:
    return blake2b(json.dumps(events, sort_keys=True).encode(), digest_size=16).digest()


def _is_of(partition: Partition, offset: int, digest: bytes) -> bool:
    """Whether the batch at an offset is of the request with this digest."""
    try:
        _, batch = next(partition.read(offset))
    except LogError:
        return True  # removed by retention meanwhile; its number is all that is known
    return dict(batch.column(HEADERS)[0].as_py()).get(_REQUEST) == digest


def _refuse(tried: Tried) -> NoReturn:
    raise OtherRequest(
        f"the key {tried.key!r} with the sequence {tried.sequence} came with other records before; "
        "none of this request was appended: give it a key of its own"
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
