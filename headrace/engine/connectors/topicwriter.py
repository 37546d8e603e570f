"""The writer of embedded topics: appends what workers made of elements, each micro-batch once.

A partition gets one append a batch, under the number of the batch, from a producer that is known by stream and sink.
So the log itself tells a batch that comes again, and no other place has to remember what was appended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, Row

from headrace.edges.topicranges import open_topic
from headrace.engine.spark.persistence import computed
from headrace.engine.worker.blame import blame
from headrace.engine.worker.torecords import ANY, unblocked
from headrace.log import LogError
from headrace.log.partitions import TIMESTAMP
from headrace.log.producers import producer_id
from headrace.model.pipeline import Node
from headrace.model.times import now
from headrace.model.topics import WriteTopic

_HELD_BYTES: Final = 64 << 20
"""About how much a batch run brings to the driver before it is appended."""


class TopicWriter:
    """Appends the records of one sink."""

    def __init__(self, node: Node) -> None:
        assert isinstance(node.transform, WriteTopic)
        self.label, self.topic = node.label, open_topic(node, node.transform.address)
        self.producer = 0

    def begin(self, stream: str) -> None:
        """Before the first batch of a run."""
        self.producer = producer_id(f"{stream}/{self.label}")

    def append(self, blocks: Iterable[pa.Buffer], number: int, time: Callable[[], int]) -> None:
        """The blocks of batch `number`, whose `time` is that of records which have none."""
        parts: dict[int, list[pa.RecordBatch]] = {}
        count = len(self.topic.partitions)
        for partition, records in unblocked(blocks):
            parts.setdefault(number % count if partition == ANY else partition, []).append(records)
        with blame(self.label):
            for partition, batches in sorted(parts.items()):
                self._append(partition, _timed(_joined(batches, self.topic.schema), time), number)

    def _append(self, partition: int, records: pa.RecordBatch, number: int) -> None:
        place = self.topic.partition(partition)
        try:
            place.append(records, producer=self.producer, sequence=number)
        except OSError as error:
            raise LogError(
                f"{place.place}: cannot append {records.num_rows} records: {error.strerror or error}; mend that, and "
                "run the pipeline again: what is there already is not appended twice"
            ) from error

    def append_all(self, data: DataFrame) -> None:
        """All that a batch run gives. Nothing is appended before all of it is there."""
        began = now()
        with computed(data):
            for number, blocks in enumerate(gathered(data.toLocalIterator(prefetchPartitions=True))):
                self.append(blocks, number, lambda: began)

    def close(self) -> None:
        """After the run."""


def gathered(rows: Iterator[Row]) -> Iterator[list[pa.Buffer]]:
    """The blocks in rows, as many at a time as are worth an append."""
    held: list[pa.Buffer] = []
    size = 0
    for row in rows:
        held.append(pa.py_buffer(row[0]))
        size += held[-1].size
        if size >= _HELD_BYTES:
            yield held
            held, size = [], 0
    if held:
        yield held


def _joined(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    try:
        return pa.concat_batches(batches).replace_schema_metadata(schema.metadata)
    except pa.ArrowInvalid as error:
        raise LogError(
            f"{sum(batch.nbytes for batch in batches):,} bytes are too many for one append: {error}; make batches "
            "smaller with run(batch_time=...)"
        ) from None


def _timed(records: pa.RecordBatch, time: Callable[[], int]) -> pa.RecordBatch:
    """Records that all have a time."""
    times = records.column(TIMESTAMP)
    if not times.null_count:
        return records
    return records.set_column(records.schema.get_field_index(TIMESTAMP), TIMESTAMP, times.fill_null(time()))
