"""Opens the sources of a stream: files as they arrive, numbers at a rate, topics, and scripts.

Every source is a frame with its elements as columns or blocks, their event times, and the columns NOW, LOW and perhaps
PART and PUNCTUATION.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import reduce
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.readwriter import DataStreamReader

from headrace.engine.batch import sources
from headrace.engine.catalyst import relational
from headrace.engine.catalyst.eventtime import event_time_of
from headrace.engine.connectors.fileranges import FILES
from headrace.engine.connectors.streamtopics import StreamTopics
from headrace.engine.connectors.topicreaders import reader_of
from headrace.engine.plan.taps import Tap
from headrace.engine.shard.wire import FORGET, HEARTBEAT
from headrace.engine.spark.batchvalue import BatchValue
from headrace.engine.spark.files import Folder, located, plain_name
from headrace.engine.stream.programs import Watermarks
from headrace.engine.worker.bundles import Bundle, to_block
from headrace.engine.worker.hidden import BAD, LOW, NOW, PART, PUNCTUATION, TIME
from headrace.model.errors import PipelineError
from headrace.model.pipeline import Node, PCollection
from headrace.model.sources import Create, FileSource, Rate, Source
from headrace.model.tablesources import TableSource
from headrace.model.teststream import ScriptStep, TestStream
from headrace.model.times import MAX_TIME, MIN_TIME
from headrace.model.topics import ReadTopic
from headrace.model.watermarks import Punctuated, WatermarkPolicy, WrittenWatermark

_FIRST: Final = 1_000_000_000_000
"""When, in milliseconds, the first file of a script was modified: Spark reads files in this order."""

_READ: Final = "read"
"""The file that says that a table was read completely, where a directory does not appear whole."""

_CLOCKS: Final = [pa.field(NOW, pa.int64()), pa.field(LOW, pa.int64()), pa.field(PART, pa.string())]

_ENDS: Final = pa.schema([("source", pa.string()), (LOW, pa.int64())])


class Sources:
    """Opens the sources of a stream. Scripts are files in `control`, a directory in the checkpoint.

    If a script moves processing time, no other source tells it.
    """

    def __init__(self, spark: SparkSession, control: Folder, topics: StreamTopics, *, scripted_clock: bool) -> None:
        self.spark, self.control, self._ends = spark, control, control.folder("ends")
        self.topics = topics
        self.max_files: int | None = None  # that a batch takes from each source of files at first
        self.listed: set[str] = set()  # labels of sources whose files Spark only lists
        self.directly = self.by_program = True  # whether programs may read files: those of the stream, and any
        self.clock = BatchValue(spark)  # the time of the batch
        self._now: Column = F.lit(None).cast("long") if scripted_clock else self.clock.column

    def open(self, node: Node) -> DataFrame:
        """Opens the frame of a source."""
        return self._punctuated(node, self._opened(node))

    def typed_rows(self, node: Node) -> sources.Files:
        """Opens a source whose rows have types, Parquet or a table, without a look at them."""
        if isinstance(node.transform, FileSource):
            return self._arriving_as(node, node.transform, sources.as_files(self.spark, node, node.transform))
        rows = self._table(node)
        return sources.Files(rows, rows.schema)

    def described(self, node: Node, rows: sources.Files) -> DataFrame:
        """Returns the frame of a source of such rows, as `open` does."""
        of_table = isinstance(node.transform, TableSource)  # which were described when the table was read
        return self._punctuated(node, self.alive(rows.data if of_table else sources.elements(node, rows)))

    def timed(self, node: Node, rows: sources.Files) -> DataFrame:
        """Returns such rows with their times, which bad ones have not; nothing says what is wrong with those."""
        of_table = isinstance(node.transform, TableSource)
        data = rows.data.drop(BAD) if of_table else sources.timed_rows(node, rows)
        return self._punctuated(node, data.withColumn(LOW, F.lit(None).cast("long")))

    def _punctuated(self, node: Node, data: DataFrame) -> DataFrame:
        policy = policy_of(node)
        if not isinstance(policy, Punctuated):
            return data
        own = data.select(*relational.element_columns(data))
        mark = event_time_of(node, own, policy.column, "Punctuated: column")
        return data.withColumn(PUNCTUATION, F.when(F.col(BAD).isNull(), mark) if BAD in data.columns else mark)

    def _opened(self, node: Node) -> DataFrame:
        source = node.transform
        if isinstance(source, TestStream):
            return self._script(node, source.steps)
        if isinstance(source, Create):
            return self._created(node, source).withColumn(NOW, self._now)
        if isinstance(source, Rate):
            numbers = self.spark.readStream.format("rate").option("rowsPerSecond", source.rows_per_second).load()
            return self.alive(numbers.select("value", F.unix_micros("timestamp").alias(TIME)))
        if isinstance(source, FileSource):
            return self.alive(self._files(node, source))
        if isinstance(source, TableSource):
            return self.alive(self._table(node))
        if (reader := reader_of(node)) is not None:
            return self.alive(reader.stream_frame(self.topics))
        raise PipelineError(f"{node}: not yet in a stream: {source}")

    def ends(self) -> DataFrame:
        """Makes the frame of sources' ends, which has a row for each after `end` was called."""
        self._ends.make()
        return self._arriving(self._ends, _ENDS).withColumn(NOW, self._now)

    def end(self, taps: list[Tap], name: str = "end") -> None:
        """Writes that these sources have ended, once under a name. Without sources, it only causes a batch."""
        table = pa.table([[tap.name for tap in taps], [MAX_TIME] * len(taps)], schema=_ENDS)
        if not self.ended(name):
            self._ends.write(f"{name}.parquet", _parquet(table))

    def beat(self, name: str) -> None:
        """Causes a batch in which every shard is stepped: a row that has the time only."""
        self._ends.write(f"{name}.parquet", _parquet(pa.table([[HEARTBEAT], [None]], schema=_ENDS)))

    def ended(self, name: str = "end") -> bool:
        """Returns whether `end` was called under this name."""
        return self._ends.exists(f"{name}.parquet")

    def forget(self, grouping: int, dests: Sequence[int]) -> None:
        """Writes that the state of a grouping's shards is to be removed, once: rows that tell each of them."""
        table = pa.table([[FORGET] * len(dests), list(dests)], schema=_ENDS)
        if not self.ended(f"{FORGET}-{grouping}"):
            self._ends.write(f"{FORGET}-{grouping}.parquet", _parquet(table))

    def heartbeat(self) -> DataFrame:
        """Makes the frame of the heartbeat, which has the time in every batch."""
        beats = self.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
        return beats.select(F.lit(HEARTBEAT).alias("source"), F.lit(None).cast("long").alias(LOW), self._now.alias(NOW))

    def alive(self, data: DataFrame) -> DataFrame:
        """Adds the columns of clocks to the frame of a source that has the time of the batch."""
        lows = {} if LOW in data.columns else {LOW: F.lit(None).cast("long")}
        return data.withColumns({NOW: self._now, **lows})

    def _files(self, node: Node, source: FileSource) -> DataFrame:
        there = sources.as_files(self.spark, node, source)
        if there.by_program and self.by_program:
            self.listed.add(node.label)
            return sources.elements(node, there.read_by_program(self.file_names(node, source)))
        return sources.elements(node, self._arriving_as(node, source, there))

    def _arriving_as(self, node: Node, source: FileSource, there: sources.Files) -> sources.Files:
        """Opens files that arrive in the form of those that are there."""
        reader = self.spark.readStream.schema(there.data.schema).format(sources.format_of(source))
        data = self._arriving_files(node, source, reader.options(**sources.options_of(source)))
        return replace(there, data=data)

    def file_names(self, node: Node, source: FileSource) -> DataFrame:
        """Opens the paths and lengths of the files of a source, in the log in which Spark has the files themselves."""
        data = self._arriving_files(node, source, self.spark.readStream.schema(FILES).format("binaryFile"))
        return data.drop("modificationTime", "content")

    def _arriving_files(self, node: Node, source: FileSource, reader: DataStreamReader) -> DataFrame:
        if self.max_files is not None:
            reader = reader.option("maxFilesPerTrigger", self.max_files)
        parts = [reader.load(self._streamed(located(self.spark, path))) for path in source.paths]
        if names := partitions_of(node):
            parts = [part.withColumn(PART, F.lit(name)) for part, name in zip(parts, names, strict=True)]
        return reduce(DataFrame.union, parts)

    def _created(self, node: Node, source: Create) -> DataFrame:
        """Opens created elements as a script of one step, after which they have ended."""
        if not node.outputs[0].has_columns:
            times = tuple(MIN_TIME if time is None else time for time in source.times)
            return self._script(node, [ScriptStep(tuple(source.elements), times, MAX_TIME, MIN_TIME)])
        table = sources.created_table(self.spark, node, source)
        times = table.column(TIME).fill_null(MIN_TIME)
        table = table.set_column(table.schema.get_field_index(TIME), TIME, times)
        folder = self._script_folder(node)
        if not folder.exists(_step_file(0)):
            script = _with_clocks(table, clock=MIN_TIME, low=MAX_TIME, partition=None)
            folder.write(_step_file(0), _parquet(script), modified=_FIRST)
        return self._arriving(folder, pa.schema([*table.schema, *_CLOCKS]))

    def _streamed(self, path: str) -> str:
        """Returns a path as Spark streams it: that of one file as a glob, since others must be directories."""
        return f"{path[:-1]}[{path[-1]}]" if path[-1].isalnum() and Folder(self.spark, path).is_file() else path

    def _table(self, node: Node) -> DataFrame:
        """Reads a table once, into the checkpoint, from which every start of the stream reads it."""
        folder = self.control.folder(f"table-{plain_name(node.label)}")
        rows = folder.folder("rows")
        new = folder.folder(".new") if folder.renames else rows
        if not (rows.exists() if folder.renames else folder.exists(_READ)):
            new.delete()
            with ExitStack() as resources:
                sources.read(self.spark, node, resources).write.parquet(str(new))
            if folder.renames:
                new.rename(rows)
            else:
                folder.write(_READ, b"")
        schema = self.spark.read.parquet(str(rows)).schema
        reader = self.spark.readStream.schema(schema)
        if self.max_files is not None:
            reader = reader.option("maxFilesPerTrigger", self.max_files)
        return reader.parquet(str(rows))

    def _script(self, node: Node, steps: tuple[ScriptStep, ...] | list[ScriptStep]) -> DataFrame:
        (pc,) = node.outputs
        folder = self._script_folder(node)
        for number, step in enumerate(steps):
            if not folder.exists(_step_file(number)):
                table = _script_table(pc, step)
                folder.write(_step_file(number), _parquet(table), modified=_FIRST + 1000 * number)
        return self._arriving(folder, _script_schema(pc))

    def _script_folder(self, node: Node) -> Folder:
        folder = self.control.folder(f"script-{plain_name(node.label)}")
        folder.make()
        return folder

    def _arriving(self, folder: Folder, schema: pa.Schema) -> DataFrame:
        reader = self.spark.readStream.schema(from_arrow_schema(schema)).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(folder))


def watermarks_of(source: Node) -> Watermarks:
    """Returns how the watermark of a source is known."""
    transform = source.transform
    if isinstance(transform, TestStream | Create):
        return "given"
    if isinstance(policy_of(source), Punctuated):
        return "punctuated"
    if isinstance(policy_of(source), WrittenWatermark):
        return "written"
    if isinstance(transform, Rate | ReadTopic) or getattr(transform, "event_time", None) is not None:
        return "from times"
    return "followed"


def partitions_of(source: Node) -> tuple[str, ...]:
    """Returns the partitions of a source that are known beforehand: those of a topic, or several paths of files."""
    transform = source.transform
    if (reader := reader_of(source)) is not None:
        return reader.partitions()
    return tuple(transform.paths) if isinstance(transform, FileSource) and len(transform.paths) > 1 else ()


def policy_of(source: Node) -> WatermarkPolicy:
    """Returns the watermark policy of a source."""
    assert isinstance(source.transform, Source)
    return source.transform.watermark


def _step_file(number: int) -> str:
    return f"{number:06d}.parquet"


def _script_schema(pc: PCollection) -> pa.Schema:
    if pc.schema is None:
        return pa.schema([("block", pa.binary()), *_CLOCKS])
    return pa.schema([*zip(pc.schema.names, pc.schema.types, strict=True), (TIME, pa.int64()), *_CLOCKS])


def _script_table(pc: PCollection, step: ScriptStep) -> pa.Table:
    """Makes a table of a step's elements, with a row for its clocks."""
    elements, times = list(step.elements), np.array(step.times, np.int64)
    if pc.schema is None:
        blocks = [to_block(Bundle(elements, times))] if elements else []
        table = pa.table({"block": pa.array(blocks, pa.binary())})
    else:
        names = [*pc.schema.names, TIME]
        table = pa.table([*pc.schema.to_columns(elements), pa.array(times)], names=names)
    low = MIN_TIME if step.watermark is None else step.watermark
    return _with_clocks(table, clock=step.clock, low=low, partition=step.partition)


def _with_clocks(table: pa.Table, *, clock: int, low: int, partition: str | None) -> pa.Table:
    """Adds a row for the clocks of a step behind its elements, and their columns."""
    count, schema = table.num_rows, pa.schema([*table.schema, *_CLOCKS])
    columns = [pa.chunked_array([*column.chunks, pa.nulls(1, column.type)]) for column in table.columns]
    lows = pa.array([None] * count + [low], pa.int64())
    clocks = [pa.array([clock] * (count + 1), pa.int64()), lows, pa.array([partition] * (count + 1), pa.string())]
    return pa.table([*columns, *clocks], schema=schema)


def _parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pyarrow.parquet.write_table(table, sink)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]
