"""Appends requests to an embedded topic: each once, however often it is sent.

A request with a key is appended as a batch of a producer of that name, so that the log itself recognises one that is
sent again, also after a restart; a header of its first record in each partition has the digest of the request. Keys are
their owners': nobody sees or takes those of another.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Any, Final

import pyarrow as pa

from headrace.log import LogError, Topic
from headrace.log.partitioning import partition_of
from headrace.log.partitions import Partition
from headrace.log.producers import producer_id
from headrace.log.values import HEADERS
from headrace.views.feeds.feed import Receipt, RequestConflict, RequestKey

_REQUEST: Final = "request"  # the header with the digest of the request that a batch is of
_Event = Mapping[str, Any]


class Requests:
    """Appends requests to a topic, partitioned by the column `key` of their events. Safe for any number of threads.

    >>> import tempfile
    >>> from headrace.log import Log
    >>> requests = Requests(Log(tempfile.mkdtemp()).create("visits", values="user string"), None)
    >>> requests.append([{"user": "ann"}, {"user": "bob"}], [10, 20], None)
    Receipt(records=2, offsets={0: 0}, repeated=False)
    """

    def __init__(self, topic: Topic, key: str | None) -> None:
        self.topic, self.key = topic, key
        self._lock = threading.Lock()  # a partition is for one thread at a time; to encode records needs no lock
        self._turns = itertools.count(1)

    def append(self, events: Sequence[_Event], times: Sequence[int] | None, request: RequestKey | None) -> Receipt:
        """Appends the events of a request durably, with these times or the log's current one."""
        if times is None:
            times = [self.topic.log.clock()] * len(events)
        if request is None:
            batches = self._batches(events, times, spare=next(self._turns) % len(self.topic.partitions))
            with self._lock:
                offsets = {number: self.topic.append(number, batch) for number, batch in batches.items()}
            return Receipt(len(events), offsets)
        digest = _digest(events)
        spare = partition_of(request.key.encode(), len(self.topic.partitions))
        batches = self._batches(events, times, spare, {_REQUEST: digest})
        with self._lock:
            return self._append_once(batches, request, digest, len(events))

    def _append_once(
        self, batches: dict[int, pa.RecordBatch], request: RequestKey, digest: bytes, count: int
    ) -> Receipt:
        producer, sequence = self._producer(batches, request, digest), request.sequence
        # What exists is looked at first: if it is of another request, nothing of this one may be appended.
        offsets = {}
        for number, partition in enumerate(self.topic.partitions):
            last = partition.last_sequence(producer)
            if last == sequence and number not in batches:
                raise RequestConflict(refusal(request))
            if last >= sequence and number in batches:
                offsets[number] = partition.append(batches[number], producer=producer, sequence=sequence)
                if _stored_digest(partition, offsets[number]) not in (digest, None):
                    raise RequestConflict(refusal(request))
        repeated = 0 < len(offsets) == len(batches)
        for number in sorted(batches.keys() - offsets.keys()):
            partition = self.topic.partition(number)
            offsets[number] = partition.append(batches[number], producer=producer, sequence=sequence)
        return Receipt(count, dict(sorted(offsets.items())), repeated)

    def _producer(self, batches: dict[int, pa.RecordBatch], request: RequestKey, digest: bytes) -> int:
        """Returns the producer of a request: its owner's, or everybody's if that has appended the same request before.

        So a request that came before keys had owners, or before there were tokens, is recognised when it is sent again.
        """
        everybody, owner = producer_id(f"request/{request.key}"), producer_id(f"request/{request.name}")
        for number, batch in batches.items() if request.owner else ():
            partition = self.topic.partition(number)
            if partition.last_sequence(everybody) >= request.sequence:
                with suppress(LogError):  # it skipped this number
                    offset = partition.append(batch, producer=everybody, sequence=request.sequence)
                    if _stored_digest(partition, offset) == digest:
                        return everybody
        return owner

    def _batches(
        self, events: Sequence[_Event], times: Sequence[int], spare: int, header: dict[str, bytes] | None = None
    ) -> dict[int, pa.RecordBatch]:
        """Returns the records of each partition, the first with a header; records without a key go to `spare`."""
        count = len(self.topic.partitions)
        shares: dict[int, tuple[list[object], list[int], list[bytes | None]]] = {}
        for event, time in zip(events, times, strict=True):
            octets = key_of(event, self.key)
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


def key_of(event: _Event, column: str | None) -> bytes | None:
    """Returns the key of an event's record.

    >>> key_of({"user": "ann", "n": 3}, "n"), key_of({"user": "ann"}, None)
    (b'3', None)
    """
    value = None if column is None else event.get(column)
    return None if value is None else (value if isinstance(value, str) else json.dumps(value)).encode()


def _digest(events: Sequence[_Event]) -> bytes:
    return blake2b(json.dumps(events, sort_keys=True).encode(), digest_size=16).digest()


def _stored_digest(partition: Partition, offset: int) -> bytes | None:
    """Returns the digest of the request that the batch at an offset is of; None if retention has removed the batch."""
    try:
        _, batch = next(partition.read(offset))
    except LogError:
        return None
    headers: dict[str, bytes] = dict(batch.column(HEADERS)[0].as_py())
    return headers.get(_REQUEST, b"")


def refusal(request: RequestKey) -> str:
    """Returns why another request with the same key is refused."""
    return (
        f"the key {request.key!r} with the sequence {request.sequence} was used with other records before; "
        "nothing of this request was appended: use another key"
    )
