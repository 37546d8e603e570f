"""Producers: collect records, choose their partitions, and append them in batches, each once even if sent again."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import pyarrow as pa

from headrace.log.errors import LogError
from headrace.log.fences import Fence
from headrace.log.partitioning import partition_of
from headrace.log.partitions import TIMESTAMP, Partition
from headrace.log.topics import Topic
from headrace.log.watermarkrecords import WriterWatermark, split_watermarks, watermark_record


@dataclass
class Pending:
    """The records to be appended to one partition."""

    values: list[Any] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    headers: list[dict[str, bytes] | None] = field(default_factory=list)


class Producer:
    """Sends records to a topic. With a name, it continues after a restart where it was: its batches are numbered.

    A record goes to the given partition, else to that of its key, else to one partition after the other, a batch each.
    `flush` returns when all that was sent is on disk; leaving the `with` block flushes, too. With a `fence`, appends
    are refused once another process has taken it over.

    >>> import tempfile
    >>> from headrace.log import Log
    >>> topic = Log(tempfile.mkdtemp()).create("visits", partitions=2)
    >>> with Producer(topic) as producer:
    ...     producer.send({"url": "/"}, key=b"ann", timestamp=7)
    >>> [(record.key, record.value) for p in (0, 1) for record in topic.read(p)]
    [(b'ann', {'url': '/'})]
    """

    def __init__(
        self,
        topic: Topic,
        name: str | None = None,
        *,
        batch: int = 10_000,
        durable: bool = True,
        clock: Callable[[], int] | None = None,
        fence: Fence | None = None,
    ) -> None:
        self.topic, self.batch, self.durable, self.clock = topic, batch, durable, clock or topic.log.clock
        self.fence, self.name = fence, name
        self.id = -producer_id(os.urandom(16).hex()) if name is None else producer_id(name)
        self._sequences = [partition.last_sequence(self.id) for partition in topic.partitions]
        self._pending: dict[int, Pending] = {}
        self._turn = 0

    def send(
        self,
        value: Any,
        *,
        key: bytes | str | None = None,
        timestamp: int | None = None,
        headers: dict[str, bytes] | None = None,
        partition: int | None = None,
    ) -> None:
        """Sends a record; it is appended with its batch, or by `flush`."""
        octets = key.encode() if isinstance(key, str) else key
        if partition is None:
            count = len(self.topic.partitions)
            partition = self._turn if octets is None else partition_of(octets, count)
        else:
            self.topic.partition(partition)
        pending = self._pending.get(partition)
        if pending is None:
            pending = self._pending[partition] = Pending()
        pending.values.append(value)
        pending.keys.append(octets)
        pending.timestamps.append(self.clock() if timestamp is None else timestamp)
        pending.headers.append(headers)
        if len(pending.values) >= self.batch:
            self._append(partition)

    def send_rows(self, rows: pa.StructArray) -> None:
        """Appends rows of a topic with columns, as one batch, behind what was sent before."""
        self.flush()
        self._append_batch(self._turn, self.topic.batch(rows, timestamps=[self.clock()] * len(rows)))

    def advance_watermark(self, time: int) -> None:
        """Flushes, and says in every partition that no later record of this producer is older than this time.

        >>> import tempfile
        >>> from headrace.log import Log
        >>> topic = Log(tempfile.mkdtemp()).create("visits")
        >>> producer = Producer(topic, "shop 1")
        >>> producer.said_watermark()
        >>> producer.advance_watermark(60_000_000)
        >>> producer.said_watermark(), list(topic.read(0))
        (60000000, [])
        """
        said = self._said(time)
        self.flush()
        for number in range(len(self.topic.partitions)):
            self._append_batch(number, said)

    def said_watermark(self) -> int | None:
        """Returns how far this producer has said last that it is, None if it has not.

        It looks at its own batches, from the last one back to the one that says it. If its process died while it said
        it, what is missing in other partitions is appended.
        """
        by_partition = [self._said_last(partition) for partition in self.topic.partitions]
        latest = max((each for each in by_partition if each is not None), default=None)
        if latest is not None:
            for number, said_there in enumerate(by_partition):
                if said_there != latest:
                    self._append_batch(number, self._said(latest))
        return latest

    def _said_last(self, partition: Partition) -> int | None:
        writer = self._writer()
        for batch in partition.read_back(self.id):
            said = [each.watermark for each in split_watermarks(batch)[1] if each.writer == writer]
            if said:
                return max(said)
        return None

    def _writer(self) -> str:
        if self.name is None:
            raise LogError(f"{self.topic.name}: a producer without a name cannot say how far it is; give it a name")
        return self.name

    def _said(self, time: int) -> pa.RecordBatch:
        record = watermark_record(WriterWatermark(self._writer(), time), self.topic.schema)
        place = record.schema.get_field_index(TIMESTAMP)
        return record.set_column(place, record.schema.field(place), pa.array([self.clock()], pa.int64()))

    def flush(self) -> None:
        """Appends all that was sent. If it fails, records that are not in the log yet can be flushed again."""
        for partition in sorted(self._pending):
            self._append(partition)

    def _append(self, number: int) -> None:
        pending = self._pending[number]
        batch = self.topic.batch(
            pending.values, timestamps=pending.timestamps, keys=pending.keys, headers=pending.headers
        )
        self._append_batch(number, batch)
        del self._pending[number]

    def _append_batch(self, number: int, batch: pa.RecordBatch) -> None:
        sequence = self._sequences[number] + 1
        try:
            self.topic.partition(number).append(
                batch, producer=self.id, sequence=sequence, durable=self.durable, fence=self.fence
            )
        except OSError as error:
            raise LogError(
                f"{self.topic.name}/{number}: cannot append {batch.num_rows} records: {error.strerror}; the producer "
                "still has them: call flush() again when that is fixed"
            ) from error
        self._sequences[number] = sequence
        if number == self._turn:
            self._turn = (self._turn + 1) % len(self.topic.partitions)

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, kind: object, *rest: object) -> None:
        if kind is None:
            self.flush()


def producer_id(name: str) -> int:
    """Returns the number of a named producer, above 0. Producers without a name have numbers below 0; 0 is for none."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little") >> 1 or 1
