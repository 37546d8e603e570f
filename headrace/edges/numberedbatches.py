"""Writes numbered batches of records to a topic of the log or of Kafka, each once even if it is written again.

A writer has a name. One that begins under a name takes over from the one before, which is refused from then on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from headrace.edges import kafkaclient
from headrace.edges.jsoncolumns import json_text
from headrace.edges.kafkatransactions import EARLIEST, Message, TransactionalProducer, kafka_watermark
from headrace.edges.topicranges import open_topic
from headrace.log.partitions import TIMESTAMP
from headrace.log.producers import Pending, producer_id
from headrace.log.watermarkrecords import WriterWatermark, watermark_record
from headrace.model.times import MIN_TIME
from headrace.model.topics import Address

Batch = Mapping[int, Pending]
"""Records by the number of their partition."""


class LogBatches:
    """Writes batches to a topic of the log: to each partition by itself. `last` is the last that all of them have."""

    earliest: Final = MIN_TIME

    def __init__(self, who: str, address: Address, name: str) -> None:
        self.topic, self._producer = open_topic(who, address), producer_id(name)
        self.partitions = len(self.topic.partitions)
        self._fence = self.topic.take_over(self._producer)
        self.last = min(partition.last_sequence(self._producer) for partition in self.topic.partitions)

    def write(self, number: int, batch: Batch, time: int, said: WriterWatermark | None = None) -> None:
        """Writes a batch, and behind it, with the timestamp `time`, how far its writer is, if that is `said`.

        If it fails, some partitions may have it: then the same batch is to be written again.
        """
        for place, partition in enumerate(self.topic.partitions):
            parts = []
            if (pending := batch.get(place)) is not None:
                parts.append(self.topic.batch(pending.values, timestamps=pending.timestamps, keys=pending.keys))
            if said is not None:  # in every partition, so that their last numbers say which batches are complete
                record = watermark_record(said, self.topic.schema)
                at = record.schema.get_field_index(TIMESTAMP)
                parts.append(record.set_column(at, TIMESTAMP, pa.array([time], pa.int64())))
            if parts:
                rows = pa.concat_batches(parts).replace_schema_metadata(self.topic.schema.metadata)
                partition.append(rows, producer=self._producer, sequence=number, fence=self._fence)
        self.last = number


class KafkaBatches:
    """Writes batches to a topic of Kafka, each in a transaction. `last` is the last that the topic has."""

    earliest: Final = EARLIEST

    def __init__(self, who: str, address: Address, name: str) -> None:
        self.partitions = len(kafkaclient.partitions(who, address))
        self._producer = TransactionalProducer(who, address, f"headrace-{address.name}-{name}")

    @property
    def last(self) -> int:
        return self._producer.written

    def write(self, number: int, batch: Batch, time: int, said: WriterWatermark | None = None) -> None:
        """Writes a batch, as LogBatches does: values as JSON, unless they are bytes."""
        messages = [
            Message(key, value if isinstance(value, bytes) else json_text(value).encode(), timestamp // 1000, [], place)
            for place, pending in batch.items()
            for key, value, timestamp in zip(pending.keys, pending.values, pending.timestamps, strict=True)
        ]
        if said is not None:
            key = WriterWatermark(said.writer, kafka_watermark(said.watermark)).key()
            messages += [Message(key, None, time // 1000, [], place) for place in range(self.partitions)]
        self._producer.write(messages, number)


def numbered_batches(who: str, address: Address, name: str) -> LogBatches | KafkaBatches:
    """Opens a topic for a writer of a name."""
    return (LogBatches if address.brokers is None else KafkaBatches)(who, address, name)
