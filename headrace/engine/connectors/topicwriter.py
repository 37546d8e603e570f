"""Appends the records that workers encoded to an embedded topic, each micro-batch once.

Each partition gets one append for each batch, with the number of the batch, from a producer named after stream and
sink. So the log itself recognises a repeated batch, and nothing else records what was appended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, Row

from headrace.edges.topicranges import open_topic
from headrace.engine.checkpoint.streamnames import sink_producer
from headrace.engine.spark.persistence import computed
from headrace.engine.worker.blame import blame
from headrace.engine.worker.torecords import ANY, read_blocks
from headrace.log import LogError
from headrace.log.fences import Fence
from headrace.log.partitions import TIMESTAMP
from headrace.log.watermarkrecords import WriterWatermark, watermark_record
from headrace.model.pipeline import Node
from headrace.model.times import MAX_TIME, MIN_TIME, now
from headrace.model.topics import WriteTopic

_GROUP_BYTES: Final = 64 << 20
"""About how many bytes a batch run collects in the driver for one append."""


class TopicWriter:
    """Appends the records of one sink."""

    def __init__(self, node: Node) -> None:
        assert isinstance(node.transform, WriteTopic)
        self.label, self.topic = node.label, open_topic(node, node.transform.address)
        self.watermarks, self._known_as = node.transform.watermarks, node.transform.writer
        self.producer, self._writer = 0, ""
        self._fence: Fence | None = None
        self._said = MIN_TIME  # the watermark that the topic has

    def begin(self, stream: str) -> None:
        """Sets the producer, before the first batch of a run."""
        self._writer = self._known_as or f"{stream}/{self.label}"
        self.producer = sink_producer(stream, self.label)

    def take_over(self) -> None:
        """Takes the stream over from a process that still runs it: what that one would append is refused."""
        self._fence = self.topic.take_over(self.producer)

    def append(
        self,
        blocks: Iterable[pa.Buffer],
        number: int,
        time: Callable[[], int],
        watermark: int | None = None,
        *,
        many: bool = False,
    ) -> None:
        """Appends the blocks of batch `number`; `time` returns the timestamp of records that have none.

        One append has all of a partition, also if they are `many`.

        With a `watermark`, no later record is older; if it has moved, every partition gets a record that says so.
        """
        parts: dict[int, list[pa.RecordBatch]] = {}
        count = len(self.topic.partitions)
        for partition, records in read_blocks(blocks):
            parts.setdefault(number % count if partition == ANY else partition, []).append(records)
        if watermark is not None and watermark > self._said:
            said = watermark_record(WriterWatermark(self._writer, watermark), self.topic.schema)
            for partition in range(count):
                parts.setdefault(partition, []).append(said)
        with blame(self.label):
            for partition, batches in sorted(parts.items()):
                self._append(partition, _timed(_joined(batches, self.topic.schema), time), number)
        self._said = max(self._said, watermark or MIN_TIME)

    def _append(self, partition: int, records: pa.RecordBatch, number: int) -> None:
        place = self.topic.partition(partition)
        try:
            place.append(records, producer=self.producer, sequence=number, fence=self._fence)
        except OSError as error:
            raise LogError(
                f"{place.place}: cannot append {records.num_rows} records: {error.strerror or error}; correct "
                "that, and run the pipeline again: nothing is appended twice"
            ) from error

    def append_all(self, data: DataFrame) -> None:
        """Appends all records of a batch run, once all of them have been computed."""
        began = now()
        with computed(data):
            number = -1
            for number, blocks in enumerate(block_groups(data.toLocalIterator(prefetchPartitions=True))):
                self.append(blocks, number, lambda: began)
            if self.watermarks:
                self.append((), number + 1, lambda: began, MAX_TIME)

    def close(self) -> None:
        """Does nothing: an embedded topic needs no closing."""


def block_groups(rows: Iterator[Row]) -> Iterator[list[pa.Buffer]]:
    """Yields the blocks in rows, in groups large enough for an append."""
    group: list[pa.Buffer] = []
    size = 0
    for row in rows:
        group.append(pa.py_buffer(row[0]))
        size += group[-1].size
        if size >= _GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _joined(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    try:
        return pa.concat_batches(batches).replace_schema_metadata(schema.metadata)
    except pa.ArrowInvalid as error:
        raise LogError(
            f"{sum(batch.nbytes for batch in batches):,} bytes are too many for one append: {error}; make batches "
            "smaller with run(batch_time=...)"
        ) from None


def _timed(records: pa.RecordBatch, time: Callable[[], int]) -> pa.RecordBatch:
    """Returns the records with `time()` for those that have no timestamp."""
    times = records.column(TIMESTAMP)
    if not times.null_count:
        return records
    return records.set_column(records.schema.get_field_index(TIMESTAMP), TIMESTAMP, times.fill_null(time()))
