"""Sends the records that workers encoded to a topic of Kafka, each micro-batch once, in a transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, starmap

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from headrace.edges import kafkaclient
from headrace.edges.kafkatransactions import EARLIEST, Message, TransactionalProducer, kafka_watermark
from headrace.engine.connectors.topicwriter import block_groups
from headrace.engine.spark.persistence import computed
from headrace.engine.worker.blame import blame
from headrace.engine.worker.torecords import read_blocks
from headrace.log.partitions import TIMESTAMP
from headrace.log.values import HEADERS, KEY, VALUE
from headrace.log.watermarkrecords import WriterWatermark
from headrace.model.pipeline import Node
from headrace.model.times import MAX_TIME, MIN_TIME, now
from headrace.model.topics import WriteTopic


class KafkaWriter:
    """Sends the records of one sink. Consumers with isolation.level=read_committed read every batch once."""

    def __init__(self, node: Node) -> None:
        assert isinstance(node.transform, WriteTopic)
        self.node, self.address = node, node.transform.address
        kafkaclient.partitions(node, self.address)  # refuses a topic that does not exist
        self.watermarks = node.transform.watermarks
        self._producer: TransactionalProducer | None = None
        self._writer, self._said = "", MIN_TIME  # and the watermark that the topic has

    def begin(self, stream: str) -> None:
        """Opens the producer, before the first batch of a run; an earlier run of this stream can then write no more."""
        assert isinstance(self.node.transform, WriteTopic)
        self._writer = self.node.transform.writer or f"{stream}/{self.node.label}"
        self._producer = TransactionalProducer(self.node, self.address, f"headrace-{stream}-{self.node.label}")

    def append(
        self,
        blocks: Iterable[pa.Buffer],
        number: int,
        time: Callable[[], int],
        watermark: int | None = None,
        *,
        many: bool = False,
    ) -> None:
        """Sends the blocks of batch `number`; `time` returns the timestamp of records that have none.

        Blocks are read again if the brokers were away. If they are `many`, the transaction may take long.

        With a `watermark`, no later record is older; if it has moved, every partition gets a record that says so.
        """
        assert self._producer is not None
        if number > self._producer.written:
            with blame(self.node.label):
                batch = _BatchMessages(blocks, time, self._watermarks(watermark, time))
                self._producer.write(batch, number, long=many)
            self._said = max(self._said, watermark or MIN_TIME)

    def append_all(self, data: DataFrame) -> None:
        """Sends all records of a batch run in one transaction."""
        assert self._producer is not None
        began = now()
        with computed(data), blame(self.node.label):  # a transaction must not wait for Spark to compute
            rows = data.toLocalIterator(prefetchPartitions=True)
            records = (_messages(blocks, lambda: began) for blocks in block_groups(rows))
            self._producer.write_all(chain(records, [self._watermarks(MAX_TIME, lambda: began)] * self.watermarks))

    def _watermarks(self, watermark: int | None, time: Callable[[], int]) -> list[Message]:
        """Returns the records that say how far this writer is, if that is further than before."""
        if watermark is None or watermark <= self._said:
            return []
        watermark = kafka_watermark(watermark)
        key, milliseconds = WriterWatermark(self._writer, watermark).key(), time() // 1000
        numbers = kafkaclient.partitions(self.node, self.address)
        return [Message(key, None, milliseconds, [], int(number)) for number in numbers]

    def close(self) -> None:
        """Closes the producer, after the run."""
        if self._producer is not None:
            self._producer.close()


@dataclass(frozen=True)
class _BatchMessages:
    """The messages of a batch, made when they are sent, each time they are sent."""

    blocks: Iterable[pa.Buffer]
    time: Callable[[], int]
    watermarks: list[Message]

    def __iter__(self) -> Iterator[Message]:
        return chain(_messages(self.blocks, self.time), self.watermarks)


def _messages(blocks: Iterable[pa.Buffer], time: Callable[[], int]) -> Iterator[Message]:
    """Yields records as messages of the client. Those before EARLIEST get the time of the batch."""
    for _, records in read_blocks(blocks):
        times = records.column(TIMESTAMP)
        known = pc.greater_equal(times, EARLIEST).fill_null(False)
        if not pc.all(known).as_py():
            times = pc.if_else(known, times, time())
        columns = (
            records.column(KEY).to_pylist(),
            records.column(VALUE).to_pylist(),
            pc.divide(times, 1000).to_pylist(),
            records.column(HEADERS).to_pylist(),
        )
        yield from starmap(Message, zip(*columns, strict=True))
