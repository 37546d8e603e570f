"""Spark's data source of embedded topics.

It yields ranges of offsets, for programs that read the records themselves, or columns, or blocks of pickled values. A
Python process beside the driver computes offsets and divides them among tasks; workers read.
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

from headrace.edges.topicranges import Offsets, Range, divided_ranges, end_offsets, limited_end, topic_at
from headrace.engine.connectors.fromrecords import OFFSET, OFFSET_BITS, PLACE, WRITER, FromJson, Records, value_columns
from headrace.engine.connectors.streamtopics import offsets_of
from headrace.engine.shard.clocks import WRITTEN_BY
from headrace.engine.worker.blame import blame
from headrace.engine.worker.bundles import BLOCK_SCHEMA, to_block
from headrace.engine.worker.hidden import PART
from headrace.log import Group, Log, LogError, Topic

NAME: Final = "headrace-topic"
RANGES: Final = pa.schema([("partition", pa.int32()), ("first", pa.int64()), ("until", pa.int64())])


@dataclass(frozen=True)
class Scan:
    """A range of a topic to read: from which offsets, up to which if there is an end, and in which form.

    - tasks: the most tasks that read; max_records: the most records of a micro-batch, unless Spark sets a limit
    - columns: those of the values to read, where these are rows; all, if there are none; timed, placed: whether records
      have their timestamps, and their positions, since each column that Spark copies costs time
    - watermarks: whether what writers say is read, too
    - group: the consumer group to which a stream commits its offsets
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
    columns: tuple[str, ...] = ()
    timed: bool = True
    placed: bool = True
    watermarks: bool = False

    def write(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> Scan:
        """Decodes what `write` encoded."""
        fields = json.loads(text)
        end = fields["end"]
        start, columns = offsets_of(fields["start"]), tuple(fields["columns"])
        return cls(**{**fields, "start": start, "end": None if end is None else offsets_of(end), "columns": columns})

    def open(self) -> Topic:
        return topic_at(self.log, self.topic)

    def records(self) -> Records:
        """Returns how workers read records, for the forms "columns" and "blocks"."""
        every = value_columns(self.open().settings.values)
        columns = pa.schema([field for field in every if field.name in self.columns]) if self.columns else every
        if self.form == "blocks":
            return Records(self.log, self.topic, columns)
        return Records(self.log, self.topic, columns, placed=self.placed, timed=self.timed, watermarks=self.watermarks)

    def schema(self) -> pa.Schema:
        """Returns the columns of its frame."""
        return {"ranges": RANGES, "blocks": BLOCK_SCHEMA}.get(self.form) or self.records().schema()

    def batches(self, ranges: Sequence[Range]) -> Iterator[pa.RecordBatch]:
        """Yields the output of a task that reads these ranges."""
        if self.form == "ranges":
            rows = zip(*[(span.partition, span.first, span.until) for span in ranges], strict=True)
            yield pa.record_batch([pa.array(column) for column in rows], schema=RANGES)
            return
        batches = self.records().read(ranges)
        if self.form == "columns":
            yield from batches
            return
        for bundle in FromJson(self.label).bundles(batches):
            yield pa.record_batch([pa.array([to_block(bundle)], pa.binary())], schema=BLOCK_SCHEMA)


def load(spark: SparkSession, scan: Scan) -> DataFrame:
    """Returns the frame of the records between `start` and `end`."""
    _register(spark)
    return with_parts(spark.read.format(NAME).option("scan", scan.write()).load())


def load_stream(spark: SparkSession, scan: Scan) -> DataFrame:
    """Returns the frame of the records as they arrive."""
    _register(spark)
    return with_parts(spark.readStream.format(NAME).option("scan", scan.write()).load())


def with_parts(data: DataFrame) -> DataFrame:
    """Returns the frame with PART and OFFSET in place of PLACE and WRITER, if it has them."""
    if PLACE not in data.columns:
        return data
    part = F.shiftright(PLACE, OFFSET_BITS).cast("string")
    offset = F.col(PLACE).bitwiseAND((1 << OFFSET_BITS) - 1)
    if WRITER in data.columns:
        part = F.concat_ws(WRITTEN_BY, part, WRITER)  # which leaves nulls out
    return data.withColumns({PART: part, OFFSET: offset}).drop(PLACE, WRITER)


def _register(spark: SparkSession) -> None:
    spark.dataSource.register(TopicSource)


class TopicSource(DataSource):
    """The data source that Spark knows by NAME."""

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
            return [InputPartition(share) for share in divided_ranges(scan.open(), scan.start, scan.end, scan.tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with blame(self.scan.label):
            yield from self.scan.batches(partition.value or [])  # without partitions, Spark passes None


class TopicStreamReader(DataSourceStreamReader):
    """Reads a topic as it grows. The start of a micro-batch is committed: everything before it has been processed."""

    def __init__(self, scan: Scan) -> None:
        self.scan = scan
        self._committed: Offsets = {}

    def initialOffset(self) -> dict[str, int]:
        return _json(self.scan.start)

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self.scan.max_records
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        with blame(self.scan.label):
            begin, ends = offsets_of(start), end_offsets(self.scan.open())
            _check_continued(self.scan, begin, ends)
            self._commit(begin)
            end = ends if self.scan.end is None else {n: min(at, self.scan.end[n]) for n, at in ends.items()}
            return _json(limited_end(begin, end, limit.max_rows if isinstance(limit, ReadMaxRows) else None))

    def reportLatestOffset(self) -> dict[str, int]:
        return _json(end_offsets(self.scan.open()))

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        with blame(self.scan.label):
            self._commit(offsets_of(start))
            shares = divided_ranges(self.scan.open(), offsets_of(start), offsets_of(end), self.scan.tasks)
            return [InputPartition(share) for share in shares]

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


def _check_continued(scan: Scan, begin: Offsets, ends: Offsets) -> None:
    """Refuses a topic that is not the one that the stream has read so far."""
    another = "the topic was replaced by another; run the pipeline with a new checkpoint"
    if len(begin) != len(ends):
        raise LogError(f"{scan.topic} has {len(ends)} partitions, but the stream has read {len(begin)}: {another}")
    for number, at in begin.items():
        if at > ends[number]:
            raise LogError(
                f"{scan.topic}/{number} ends at offset {ends[number]}, but the stream has read up to {at}: {another}"
            )


def _json(offsets: Offsets) -> dict[str, int]:
    return {str(partition): offset for partition, offset in offsets.items()}
