"""Runs a graph as a stream: one Structured Streaming query, a straight line from sources through shards to sinks.

    sources -> Python -> shards of level 1 -> Python -> shards of level 2 -> ... -> Python -> foreachBatch

The query is put together here. What its operators do is in `streamprogram` and `shards`; where rows go, in `levels`.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain
from typing import Any, Final, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, GroupedData, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery

from headrace.engine.catalyst import relational
from headrace.engine.catalyst.badrecords import BadRecordReader
from headrace.engine.connectors.directread import DirectRead
from headrace.engine.connectors.receivers import Receivers
from headrace.engine.connectors.refusedrecords import RefusedRecords
from headrace.engine.connectors.streamtopics import StreamTopics
from headrace.engine.connectors.topicreaders import reader_of
from headrace.engine.plan.joinedtables import without_tables
from headrace.engine.plan.line import Exchange
from headrace.engine.plan.lowering import lower
from headrace.engine.plan.taps import Tap
from headrace.engine.shard.columnrows import columns_grouped
from headrace.engine.shard.wire import WIRE, Station, shard_dests
from headrace.engine.spark.admission import FIRST_RECORDS, Admission
from headrace.engine.spark.counters import Counters
from headrace.engine.spark.deferred import Deferred
from headrace.engine.spark.filelogs import forget_untaken
from headrace.engine.spark.files import Folder
from headrace.engine.spark.pace import Pace
from headrace.engine.spark.session import CHECKPOINT_FILES, LOCAL_FILES, STORE_FILES, is_loadable
from headrace.engine.state.storedstate import BYTES_AT_ONCE, initial_cells
from headrace.engine.stream import columnstream, segmentprogram, usualrows
from headrace.engine.stream.boundedsides import BoundedSides
from headrace.engine.stream.columnsteps import ColumnSteps, column_steps, without_rows
from headrace.engine.stream.delivery import BodyUnpacker, Delivery, is_written_by_spark, staged_by_workers
from headrace.engine.stream.directfiles import direct_files
from headrace.engine.stream.fromranges import FromRanges, head_of
from headrace.engine.stream.programs import (
    ClockProgram,
    Entry,
    FromSource,
    LevelProgram,
    SourceProgram,
)
from headrace.engine.stream.restoring import begun
from headrace.engine.stream.rounds import Rounds
from headrace.engine.stream.schemas import CollectionColumns
from headrace.engine.stream.shards import ShardOperator, ShardSpec
from headrace.engine.stream.sources import Sources, partitions_of, policy_of, watermarks_of
from headrace.engine.stream.tapframes import frame_of
from headrace.engine.stream.timing import Timing
from headrace.engine.stream.writtenfiles import writes, written_by_workers
from headrace.engine.worker.bundles import FromBlocks
from headrace.engine.worker.columnbundles import ColumnReader
from headrace.engine.worker.hidden import BAD
from headrace.engine.worker.program import Head, Program, columns_read
from headrace.model.errors import PipelineError
from headrace.model.pickling import classes_of_script
from headrace.model.pipeline import Graph
from headrace.model.schema import rows_schema
from headrace.model.sources import FileSource, ReadParquet
from headrace.model.tablesources import TableSource
from headrace.model.times import SECOND, duration, now
from headrace.model.topics import ReadTopic

P = TypeVar("P", bound=Program)

_SETTINGS: Final = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.exchange.reuse": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",  # or columns come in pieces too small for arrays
}
_ON_LOCAL_DISK: Final = {CHECKPOINT_FILES: LOCAL_FILES}  # elsewhere a rename is not what makes a file appear whole
_INTERPRETED: Final = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""For streams of which Spark sees rows in flight only: compiled code for those few costs more than it saves."""
_HEARTBEAT: Final = "1 second"
"""The interval of the heartbeat where triggers wait for the clock and no trigger interval is given."""
_DRAIN: Final = "drain"


_starting: Final = threading.Lock()
"""Held while a query takes over the session's settings: two that start at once would undo each other's."""


@dataclass(frozen=True)
class Options:
    """Options of a stream, as `Pipeline.run` takes them."""

    checkpoint: str | None = None
    savepoint: str | None = None
    forget: Sequence[str] | None = None
    levels: int | None = None
    shards: int | None = None
    partitions: int | None = None
    trigger: Any = None
    batch_time: Any = None
    max_files_per_batch: int | None = None
    max_records_per_batch: int | None = None


@dataclass(frozen=True)
class DirectTap:
    """The direct way to read a tap: its source, a frame of it without rows, and the columns of each reading."""

    read: DirectRead
    source: DataFrame
    columns: tuple[ColumnSteps, ...]

    @property
    def computes(self) -> bool:
        """Whether there are columns to compute."""
        return any(each.steps for each in self.columns)


class Stream:
    """One run of a graph as a stream."""

    def __init__(self, spark: SparkSession, graph: Graph, counters: Counters, options: Options) -> None:
        self.spark, self.counters = spark, counters
        self.trigger = None if options.trigger is None else duration(options.trigger)
        self.checkpoint = begun(spark, graph, options)
        before = self.checkpoint.manifest
        self.line = lower(
            graph,
            shards=before.shards,
            partitions=before.partitions,
            numbers=before.numbers,
            taken=(entry.number for entry in before.forgotten),
            levels=max(before.depth, _checked_levels(options.levels)),
            by_slot=bool(before.slots),
        )
        self.line.taps = before.in_order(self.line.taps)
        timing = Timing.of(self.line, options.trigger)
        self._scripted_clock = scripted_clock = timing.scripted_clock
        self.ends, self._policies, self._idle_after = timing.ends, timing.policies, timing.idle_after
        self._heartbeat = timing.needs_heartbeat(had_one=before.heartbeat)
        self._rounds = self.line.rounds or before.rounds
        self._manifest = self.checkpoint.check(self.line, heartbeat=self._heartbeat, forget=_labels(options.forget))
        self.receivers = Receivers(self.line.taps, self.checkpoint)
        control, name = self.checkpoint.control, self.checkpoint.name
        self._topics = StreamTopics(spark, control, name, temporary=self.checkpoint.temporary)
        self._sources = Sources(spark, self.checkpoint.control, self._topics, scripted_clock=scripted_clock)
        self._sides = BoundedSides(spark, graph, counters)
        self._columns = CollectionColumns(spark, without_tables(graph), self._sides.joined_table)
        self._classes = classes_of_script()
        self._programs = 0
        self._run = uuid.uuid4().hex  # what workers remember of an earlier run may be of other functions
        self.refused = RefusedRecords(graph, counters.bad_records)
        self._reads: dict[str, DirectTap | None] = {}  # by the name of the tap, once they are known
        alone = not self._heartbeat and not self._rounds
        self._columnar = columnstream.is_columnar(self.line) and alone and not self._by_programs()
        self._reads_by_spark = True  # whether Spark reads records, which is known when the taps are open
        delivery = self._delivery()
        self.delivery = delivery(self.line, counters, self.checkpoint.time_of, self._columns.known, self.refused.say)
        self.delivery.clock = self._sources.clock
        if self._rounds:
            self.delivery.rounds = Rounds(spark, self.checkpoint.control)
        self._admit(options)

    def _delivery(self) -> type[Delivery]:
        if not self._columnar:
            return Delivery
        return usualrows.UsualDelivery if usualrows.has_usual_rows(self.line) else columnstream.ColumnDelivery

    def _admit(self, options: Options) -> None:
        bounds = {"files": options.max_files_per_batch, "records": options.max_records_per_batch}
        for unit, most in bounds.items():
            if most is not None and (not isinstance(most, int) or most < 1):
                raise PipelineError(f"max_{unit}_per_batch is a number of {unit}, at least 1, got {most!r}")
        if options.batch_time is not None:
            target = duration(options.batch_time) / SECOND
            files = Pace(target, most=bounds["files"])
            records = Pace(target, min(FIRST_RECORDS, bounds["records"] or FIRST_RECORDS), bounds["records"])
            self.delivery.admission = Admission(self.spark, self.checkpoint.control, files, records)
            bounds = {"files": files.limit, "records": records.limit}
        self._sources.max_files, self._topics.max_records = bounds["files"], bounds["records"]

    def start(self) -> StreamingQuery:
        """Starts the query."""
        # It would log what a sink's function raises, which the handle raises, too.
        logging.getLogger("py4j.clientserver").setLevel(logging.CRITICAL)
        self.checkpoint.prepare()
        self.receivers.open()
        opened = [] if self._columnar else self._opened()
        columns = self._columns_alone() if self._columnar else None
        # The plan stays as it is; what runs is a copy that knows side inputs, and the columns of opened sources.
        self.line = self.line.bind(self._sides.value, lambda pc: rows_schema(self._columns.of(pc)))
        self.delivery.bind(self.line)
        self._columns.check_aggregates()
        if not self._columnar:
            self.line = written_by_workers(self.spark, self.line, self._run)
            if (staging := self._staging()) is not None:
                self.line = staged_by_workers(self.line, staging)
            self.delivery.bind(self.line)
            self.delivery.staging = staging
        data = self._through_python(opened) if columns is None else columns
        known, alone = self.checkpoint.manifest.sinks, self.checkpoint.temporary
        self.delivery.begin(self.spark, self._manifest, known=known, alone=alone)
        self.checkpoint.write(self._manifest)
        for number, dests in self._forgotten().items():
            self._sources.forget(number, dests)
        self._data = data
        query = self.start_query()
        self.receivers.start(failed=lambda: self.query.stop())
        return query

    def _staging(self) -> str | None:
        """Returns the directory for output that is too much to travel to the driver; None if Python reaches none."""
        control = self.checkpoint.control.local
        return None if control is None else str(control / "staged")

    def leave_files_to_spark(self) -> None:
        """Makes the query anew, with Spark to read what its programs left, or all files; it goes on where it was."""
        self._sources.directly, self._sources.by_program = False, self._sources.directly
        self._sources.listed, self._programs, self._reads = set(), 0, {}
        self._columns.forget()
        self._data = self._columns_alone() if self._columnar else self._through_python(self._opened())

    @property
    def direct_files(self) -> set[str]:
        """Labels of sources whose files Spark only lists."""
        return self._sources.listed

    @property
    def may_leave_to_spark(self) -> bool:
        """Whether programs do what Spark can do in their place: read files, or compute columns."""
        return bool(self._sources.listed) or any(each is not None and each.computes for each in self._reads.values())

    def _through_python(self, opened: list[tuple[DataFrame, FromSource]]) -> DataFrame:
        """Makes the frame of the query from those of the taps: programs, and levels of shards."""
        entered = [
            self._mapped(frame, self._entering(tap, source), (0, 0))
            for tap, (frame, source) in zip(self.line.taps, opened, strict=True)
        ]
        entered += self._clocks()
        if self.delivery.rounds is not None:
            entered.append(self.delivery.rounds.frame())  # rows in flight, as they were sent
        data = self._through_columns(reduce(DataFrame.union, entered), 0)
        for level in range(1, self.line.depth + 1):
            program, in_shards = self._after(level), self._runs_in_shards(level)
            after = self._bound(program).after_shard if in_shards else None
            forgotten = frozenset(chain.from_iterable(self._forgotten(level).values()))
            operator = ShardOperator(
                self._run,
                self._specs(level),
                self._classes,
                after,
                forgotten,
                stamps_apart=self._manifest.stamps_apart,
            )
            shards: Any = Deferred(operator)
            begins = self._initial(level)
            data = data.groupBy("dest").transformWithState(shards, from_arrow_schema(WIRE), "Append", "None", begins)
            if not in_shards:
                data = self._through_columns(self._mapped(data, program, (level, 0)), level)
        return data

    def _initial(self, level: int) -> GroupedData | None:
        """Returns the cells with which the shards of a level begin; None if the stream has begun, or begins empty."""
        cells = initial_cells(self.checkpoint.folder)
        numbers = [exchange.number for exchange in self.line.level(level)]
        return None if cells is None else cells.where(F.shiftright("dest", 32).isin(numbers)).groupBy("dest")

    def _runs_in_shards(self, level: int) -> bool:
        """Whether the program behind a level runs where its shards are, without a process and an operator of its own.

        A task must have one shard only, since a program runs once a task; what leaves must be rows in flight.
        """
        exchanges = self.line.level(level)
        alone = len(exchanges) == 1 and len(exchanges[0].dests) == self.checkpoint.manifest.partitions
        to_files = level == self.line.depth and self.delivery.direct is not None
        return alone and not to_files and not self.line.at((level, 1))

    def _columns_alone(self) -> DataFrame:
        """Makes the frame of a query that is Catalyst's alone."""
        (tap,) = self.line.taps
        delivery = self.delivery
        assert isinstance(delivery, columnstream.ColumnDelivery)
        opened = self._columns.opened(tap.source, lambda node: delivery.open(node, self._sources))

        def through(rows: DataFrame, *, timed: bool) -> DataFrame:
            return frame_of(tap, rows, self._columns.note, self._sides.joined_table, timed=timed)

        data = delivery.frame(tap, opened, through)
        return data.union(columnstream.without_rows(self._sources.ends(), data))

    def start_query(self) -> StreamingQuery:
        """Starts Spark's query: for the first time, or again after one that failed and may do better now."""
        forget_untaken(Folder(self.spark, self.checkpoint.spark_path))
        self.query = self._started(self._data)
        self.delivery.started(self.query)
        return self.query

    def end(self) -> None:
        """Ends the sources that were read to their end: their watermarks go to the end of time."""
        kinds = FileSource | TableSource | ReadTopic
        if ended := [tap for tap in self.line.taps if isinstance(tap.source.transform, kinds)]:
            self._sources.end(ended)

    @property
    def draining(self) -> bool:
        """Whether the stream was being drained when it stopped."""
        return self._sources.ended(_DRAIN)

    def drain(self) -> None:
        """Ends all sources; again, if they were ended before, since a crash may have come before the stream read it."""
        self.receivers.stop()
        self.delivery.draining = True
        self._sources.end(self.line.taps, f"{_DRAIN}-{self._run}" if self.draining else _DRAIN)

    def time_until_again(self) -> int | None:
        """Returns in how long a shard wants to be stepped again, in microseconds; None if none does, or never will.

        The clock of a script stands still when the script is over.
        """
        reports = self.delivery.shards.values()
        again = min((report.again for report in reports if report.again is not None), default=None)
        if again is None:
            return None
        time = max(report.now for report in reports) if self._scripted_clock else now()
        return None if again > time and self._scripted_clock else max(again - time, 0)

    def step_again(self) -> None:
        """Causes another batch, in which every shard is stepped."""
        self._sources.beat(f"again-{uuid.uuid4().hex}")

    def wake(self) -> None:
        """Causes another batch, with or without data."""
        self._sources.end([], f"wake-{uuid.uuid4().hex}")

    def close(self) -> None:
        """Releases all resources after the run."""
        self.receivers.stop()
        self._sides.close()
        self.delivery.close()
        self._topics.close()
        self.checkpoint.close()

    def _opened(self) -> list[tuple[DataFrame, FromSource]]:
        """Makes the frame and head of each tap. The taps of a source share what Spark reads, and so its offsets."""
        direct = [self._direct_read(tap) for tap in self.line.taps]
        by_spark = {id(tap.source) for tap, read in zip(self.line.taps, direct, strict=True) if read is None}
        self._reads_by_spark = bool(by_spark)
        return [
            self._tapped(tap) if read is None or id(tap.source) in by_spark else self._direct(tap, read)
            for tap, read in zip(self.line.taps, direct, strict=True)
        ]

    def _by_programs(self) -> bool:
        """Whether programs do all that Catalyst could do alone: they read Parquet, compute columns, and write Parquet.

        Among lines of text, bad ones are too usual: one of them would leave all to Spark and a program behind it.
        """
        (tap,) = self.line.taps
        try:
            direct = self._direct_read(tap) if isinstance(tap.source.transform, ReadParquet) else None
        except PipelineError:  # which the source raises again when it is opened
            return False
        if direct is None:
            return False
        schemas = {id(reading.pc): steps.schema for reading, steps in zip(tap.readings, direct.columns, strict=True)}
        sinks = [(outlet.node.transform, schemas[id(outlet.node.inputs[0])]) for outlet in self.line.outlets]
        return all(writes(self.spark, sink, schema) for sink, schema in sinks)

    def _direct_read(self, tap: Tap) -> DirectTap | None:
        """Returns how the program of a tap reads records by itself; None if Spark reads them."""
        if tap.name not in self._reads:
            self._reads[tap.name] = self._direct_tap(tap)
        return self._reads[tap.name]

    def _direct_tap(self, tap: Tap) -> DirectTap | None:
        frames: list[DataFrame] = []
        columns: list[ColumnSteps] = []

        def read(schema: pa.Schema) -> list[set[str] | None] | None:
            frames.append(without_rows(self.spark, schema))
            for reading, wanted in zip(tap.readings, self._columns_read(tap), strict=True):
                if reading.columns and not self._sources.directly:
                    return None
                steps = column_steps(reading.columns, frames[0], wanted)
                if steps is None:
                    return None
                columns.append(steps)
            return [steps.reads for steps in columns]

        if (reader := reader_of(tap.source)) is not None:
            known = watermarks_of(tap.source) in ("from times", "written")
            direct = reader.direct(self._topics, read) if known else None
        else:
            direct = direct_files(tap.source, self._sources, read) if self._sources.directly else None
        return None if direct is None else DirectTap(direct, frames[0], tuple(columns))

    def _columns_read(self, tap: Tap) -> list[set[str] | None]:
        def of_output(number: int) -> set[str] | None:
            return columns_grouped(self.line.outputs[number])

        return [
            columns_read(reading.readers, reading.pc.schema, of_output) if reading.pc.has_columns else None
            for reading in tap.readings
        ]

    def _tapped(self, tap: Tap) -> tuple[DataFrame, FromSource]:
        """Makes the frame and head of a tap whose records Spark reads."""
        read, watermarks = self._columns_read(tap), watermarks_of(tap.source)
        opened = self._columns.opened(tap.source, self._sources.open)
        timed = watermarks in ("from times", "punctuated")
        data = frame_of(tap, opened, self._columns.note, self._sides.joined_table, timed=timed)
        if len(read) == 1:
            data = relational.only_columns(data, read[0])
        rows: list[Head] = [
            ColumnReader(reading.pc.schema, reading.window_operators()) if reading.pc.has_columns else FromBlocks()
            for reading in tap.readings
        ]
        letters = BadRecordReader.of(tap.source, BAD in data.columns)
        source = FromSource(tap.name, rows, watermarks, policy_of(tap.source), letters=letters)
        return data, source

    def _direct(self, tap: Tap, direct: DirectTap) -> tuple[DataFrame, FromSource]:
        """Makes the frame and head of a tap whose program reads records by itself, and computes its columns."""
        read, label = direct.read, tap.source.label
        self._columns.opened(tap.source, lambda node: direct.source)
        for reading, steps in zip(tap.readings, direct.columns, strict=True):
            for pc, frame in (*steps.frames, *((node.outputs[0], steps.columns) for node in reading.windows)):
                self._columns.note(pc, frame)
        rows = [head_of(each, label, steps.steps) for each, steps in zip(tap.readings, direct.columns, strict=True)]
        watermarks, policy = watermarks_of(tap.source), policy_of(tap.source)
        source = FromRanges(tap.name, rows, watermarks, policy, label=label, records=read.records)
        source.letters = BadRecordReader.of(tap.source, read.checks)
        if isinstance(tap.source.transform, FileSource):
            self._sources.listed.add(label)
        return self._sources.alive(read.ranges()), source

    def _entering(self, tap: Tap, source: FromSource) -> Program:
        return SourceProgram(
            label=tap.source.label,
            source=source,
            entries=[*[reading.readers for reading in tap.readings], tap.dead],
            labels={number: reading.row_producer(tap.source).label for number, reading in enumerate(tap.readings)},
        )

    def _clocks(self) -> list[DataFrame]:
        """Makes the frames that enter beside the sources: ends of sources, and the heartbeat."""
        frames = [self._sources.ends(), *([self._sources.heartbeat()] if self._heartbeat else [])]
        return [self._mapped(frame, ClockProgram(), (0, 0)) for frame in frames]

    def _after(self, level: int) -> LevelProgram:
        exchanges = self.line.level(level)
        entries = {each.number: Entry(each.label, each.work, each.readers) for each in exchanges}
        return LevelProgram(station=(level, 0), entries=entries)

    def _through_columns(self, data: DataFrame, level: int) -> DataFrame:
        """Applies the column segments of a level, between its Python programs."""
        hop = 1
        while here := self.line.at((level, hop)):
            program = segmentprogram.after(here, self._policies)
            data = self._mapped(segmentprogram.transformed(here, data, self._sides.joined_table), program, (level, hop))
            hop += 1
        return data

    def _mapped(self, data: DataFrame, program: Program, station: Station) -> DataFrame:
        program = self._bound(program)
        level, hop = station
        if behind := self.line.at((level, hop + 1)):
            opening = segmentprogram.opening(program, behind)
            return data.mapInArrow(opening, from_arrow_schema(opening.schema()))
        if station == (self.line.depth, 0) and (outlet := self.delivery.direct) is not None:
            unpacked = BodyUnpacker(self.counters.written, program)
            return data.mapInArrow(unpacked, from_arrow_schema(outlet.output.schema()))
        return data.mapInArrow(program, from_arrow_schema(WIRE))

    def _bound(self, program: P) -> P:
        """Returns a copy of a program for this run."""
        self._programs += 1
        program = replace(program, outputs=self.line.outputs, counters=self.counters, classes=self._classes)
        return replace(program, number=self._programs)

    def _specs(self, level: int) -> dict[int, ShardSpec]:
        return {
            dest: ShardSpec(name, each.label, each.work, each.upstream, number, *self._sources_of(each))
            for each in self.line.level(level)
            for number, (dest, name) in enumerate(zip(each.dests, each.names(), strict=True))
        }

    def _forgotten(self, level: int | None = None) -> dict[int, tuple[int, ...]]:
        """Returns the places of forgotten groupings' shards, of one level or all, by the number of the grouping."""
        return {
            entry.number: shard_dests(entry.number, entry.shards, self._manifest.partitions)
            for entry in self._manifest.forgotten
            if level in (None, entry.level)
        }

    def _sources_of(self, exchange: Exchange) -> tuple[dict[str, tuple[str, ...]], dict[str, int], frozenset[str]]:
        """Returns of the sources an exchange reads from: known partitions, idle times, whose watermarks are written."""
        taps = [tap for tap in self.line.taps if tap.name in exchange.upstream]
        partitions = {tap.name: partitions_of(tap.source) for tap in taps}
        idle_after = {name: self._idle_after[name] for name in partitions if name in self._idle_after}
        written = (tap.name for tap in taps if watermarks_of(tap.source) == "written")
        return partitions, idle_after, frozenset(written)

    def _started(self, data: DataFrame) -> StreamingQuery:
        writer = data.writeStream.outputMode("append").foreachBatch(self.delivery)
        writer = writer.option("checkpointLocation", self.checkpoint.spark_path)
        wait = self.trigger if self.trigger is not None else duration(_HEARTBEAT) if self._heartbeat else None
        if wait is not None:
            writer = writer.trigger(processingTime=f"{max(wait // 1000, 1)} milliseconds")
        if not self.checkpoint.local and self.spark.conf.get(CHECKPOINT_FILES, None) == LOCAL_FILES:
            # For good: logs of file sources are made when the query runs.
            if not self.checkpoint.folder.renames and is_loadable(self.spark, STORE_FILES):
                self.spark.conf.set(CHECKPOINT_FILES, STORE_FILES)
            else:
                self.spark.conf.unset(CHECKPOINT_FILES)
        with _starting, self._settings():
            return writer.start()

    @property
    def _in_flight_only(self) -> bool:
        """Whether Spark sees nothing but rows in flight."""
        return not (self._reads_by_spark or self.line.segments or any(map(is_written_by_spark, self.line.outlets)))

    @contextmanager
    def _settings(self) -> Iterator[None]:
        """Sets the session's settings while a query starts, which takes them over."""
        settings = {
            **_SETTINGS,
            **(_ON_LOCAL_DISK if self.checkpoint.local else {}),
            **(_INTERPRETED if self._in_flight_only else {}),
            **(BYTES_AT_ONCE if initial_cells(self.checkpoint.folder) is not None else {}),
            "spark.sql.shuffle.partitions": str(self.checkpoint.manifest.partitions),
        }
        before = {name: self.spark.conf.get(name, None) for name in settings}
        for name, value in settings.items():
            self.spark.conf.set(name, value)
        try:
            yield
        finally:
            for name, earlier in before.items():
                if earlier is None:
                    self.spark.conf.unset(name)
                else:
                    self.spark.conf.set(name, earlier)


def _labels(forget: Any) -> tuple[str, ...]:
    """Returns the labels of groupings to forget."""
    if not isinstance(forget, list | tuple | None) or not all(isinstance(label, str) for label in forget or ()):
        raise PipelineError(f"run: forget takes a list of labels, got {forget!r}; write forget=['totals']")
    return tuple(forget or ())


def _checked_levels(levels: Any) -> int:
    """Returns the least number of levels that a stream is to have."""
    if levels is not None and (not isinstance(levels, int) or levels < 1):
        raise PipelineError(f"run: levels is a number of levels of groupings, at least 1, got {levels!r}")
    return levels or 0
