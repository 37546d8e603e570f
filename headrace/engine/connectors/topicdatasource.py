"""The data source by which Spark reads topics of the embedded log.

As ranges of offsets, for programs that read the records themselves; as columns; or as packed blocks, for values that
are Python objects. Offsets, and who needs which, are worked out in one process beside the driver; workers read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Final, Literal

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType

from headrace.edges.topicranges import Offsets, Range, admitted, available, dealt, topic_at
from headrace.engine.connectors.fromrecords import OFFSET, OFFSET_BITS, PLACE, FromJson, Records, columns_of
from headrace.engine.connectors.streamtopics import offsets_of
from headrace.engine.worker.blame import blame
from headrace.engine.worker.bundles import BLOCK_SCHEMA, to_block
from headrace.engine.worker.hidden import PART
from headrace.log import Group, Log, LogError, Topic

NAME: Final = "headrace-topic"
RANGES: Final = pa.schema([("partition", pa.int32()), ("first", pa.int64()), ("until", pa.int64())])


@dataclass(frozen=True)
class Scan:
    """What is to be read of a topic: from which offsets, up to which if there is an end, and in which form.

    - tasks: by how many at most; max_records: how many in a micro-batch at most, unless Spark says otherwise
    - group: the consumer group that remembers how far a stream is
    """

    label: str
    log: str
    topic: str
    start: Offsets
    end: Offsets | None
    tasks: int
    form: Literal["ranges", "columns", "blocks"] = "columns"
    group: str | None = None
    max_records: int | None = None

    def write(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> Scan:
        """What `write` wrote."""
        held = json.loads(text)
        end = held["end"]
        return cls(**{**held, "start": offsets_of(held["start"]), "end": None if end is None else offsets_of(end)})

    def open(self) -> Topic:
        return topic_at(self.log, self.topic)

    def records(self) -> Records:
        """How workers read it, in one of the forms that hold records."""
        values = self.open().settings.values
        return Records(self.log, self.topic, columns_of(values), placed=self.form == "columns")

    def schema(self) -> pa.Schema:
        """The columns of its frame."""
        return {"ranges": RANGES, "blocks": BLOCK_SCHEMA}.get(self.form) or self.records().schema()

    def batches(self, ranges: Sequence[Range]) -> Iterator[pa.RecordBatch]:
        """What a task gives."""
        if self.form == "ranges":
            rows = zip(*[(each.partition, each.first, each.until) for each in ranges], strict=True)
            yield pa.record_batch([pa.array(column) for column in rows], schema=RANGES)
            return
        batches = (batch for _, batch in self.records().read(ranges))
        if self.form == "columns":
            yield from batches
            return
        for bundle in FromJson(self.label).bundles(batches):
            yield pa.record_batch([pa.array([to_block(bundle)], pa.binary())], schema=BLOCK_SCHEMA)


def load(spark: SparkSession, scan: Scan) -> DataFrame:
    """The frame of what is there now."""
    _register(spark)
    return _placed(spark.read.format(NAME).option("scan", scan.write()).load())


def load_stream(spark: SparkSession, scan: Scan) -> DataFrame:
    """The frame of what comes."""
    _register(spark)
    return _placed(spark.readStream.format(NAME).option("scan", scan.write()).load())


def _placed(data: DataFrame) -> DataFrame:
    """The frame with PART and OFFSET, if it says where records are."""
    if PLACE not in data.columns:
        return data
    partition, offset = F.shiftright(PLACE, OFFSET_BITS), F.col(PLACE).bitwiseAND((1 << OFFSET_BITS) - 1)
    return data.withColumns({PART: partition.cast("string"), OFFSET: offset}).drop(PLACE)


def _register(spark: SparkSession) -> None:
    spark.dataSource.register(TopicSource)


class TopicSource(DataSource):
    """A topic as Spark sees it."""

    @classmethod
    def name(cls) -> str:
        return NAME

    @property
    def scan(self) -> Scan:
        return Scan.read(self.options["scan"])

    def schema(self) -> StructType:
        return from_arrow_schema(self.scan.schema())

    def reader(self, schema: StructType) -> DataSourceReader:
        return TopicReader(self.scan)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return TopicStreamReader(self.scan)


class TopicReader(DataSourceReader):
    """Reads a topic up to its end."""

    def __init__(self, scan: Scan) -> None:
        self.scan = scan

    def partitions(self) -> Sequence[InputPartition]:
        scan = self.scan
        assert scan.end is not None
        with blame(scan.label):
            return [InputPartition(hand) for hand in dealt(scan.open(), scan.start, scan.end, scan.tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with blame(self.scan.label):
            yield from self.scan.batches(partition.value or [])  # Spark asks for nothing, too


class TopicStreamReader(DataSourceStreamReader):
    """Reads a topic as it grows. Where a micro-batch begins, all before it has been done: that is what is committed."""

    def __init__(self, scan: Scan) -> None:
        self.scan = scan
        self._committed: Offsets = {}

    def initialOffset(self) -> dict[str, int]:
        return _json(self.scan.start)

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self.scan.max_records
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        with blame(self.scan.label):
            begin, there = offsets_of(start), available(self.scan.open())
            _check_continued(self.scan, begin, there)
            self._commit(begin)
            end = there if self.scan.end is None else {n: min(at, self.scan.end[n]) for n, at in there.items()}
            return _json(admitted(begin, end, limit.max_rows if isinstance(limit, ReadMaxRows) else None))

    def reportLatestOffset(self) -> dict[str, int]:
        return _json(available(self.scan.open()))

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        with blame(self.scan.label):
            self._commit(offsets_of(start))
            hands = dealt(self.scan.open(), offsets_of(start), offsets_of(end), self.scan.tasks)
            return [InputPartition(hand) for hand in hands]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with blame(self.scan.label):
            yield from self.scan.batches(partition.value)

    def commit(self, end: dict[str, int]) -> None:
        with blame(self.scan.label):
            self._commit(offsets_of(end))

    def _commit(self, offsets: Offsets) -> None:
        if self.scan.group is not None and offsets != self._committed:
            Group(Log(self.scan.log), self.scan.topic, self.scan.group).commit(offsets)
            self._committed = offsets


def _check_continued(scan: Scan, begin: Offsets, there: Offsets) -> None:
    """Refuses a topic that is not the one whose offsets these are."""
    another = "it is not the topic that it was; run the pipeline with a new checkpoint"
    if len(begin) != len(there):
        raise LogError(f"{scan.topic} has {len(there)} partitions, but the stream has read {len(begin)}: {another}")
    for number, at in begin.items():
        if at > there[number]:
            raise LogError(
                f"{scan.topic}/{number} ends at offset {there[number]}, but the stream has read up to {at}: {another}"
            )


def _json(offsets: Offsets) -> dict[str, int]:
    return {str(partition): offset for partition, offset in offsets.items()}
