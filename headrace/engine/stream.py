"""A graph as a stream: one Structured Streaming query, a straight line from the sources through shards to the sinks.

    sources -> Python -> shards of level 1 -> Python -> shards of level 2 -> ... -> Python -> foreachBatch

The query is put together here. What its operators do is in `streamprogram` and `shards`; where rows go, in `levels`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery

from headrace.engine import relational
from headrace.engine.bundles import FromBlocks, ToColumns
from headrace.engine.checkpoint import Checkpoint
from headrace.engine.columnbundles import FromRecords
from headrace.engine.columnrows import columns_read
from headrace.engine.counters import Counters
from headrace.engine.deferred import Deferred
from headrace.engine.filelogs import forget_untaken
from headrace.engine.files import Folder
from headrace.engine.levels import Exchange, lower
from headrace.engine.program import Head, Program, steps_of
from headrace.engine.routing import WIRE
from headrace.engine.shards import Shards, ShardSpec
from headrace.engine.streamcolumns import ColumnsOf
from headrace.engine.streamprogram import (
    ClockProgram,
    Entry,
    FromClocks,
    FromSource,
    LevelProgram,
    SourceProgram,
)
from headrace.engine.streamside import SideInputs
from headrace.engine.streamsinks import Delivery
from headrace.engine.streamsources import Sources, partitions_of, policy_of, watermarks_of
from headrace.engine.taps import Tap, frame_of
from headrace.model.pickling import classes_of_script
from headrace.model.pipeline import Graph
from headrace.model.schema import rows_schema
from headrace.model.sources import Rate, ReadFiles
from headrace.model.teststream import TestStream
from headrace.model.times import duration

_SETTINGS: Final = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.exchange.reuse": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",  # or columns come in pieces too small for arrays
}
_ON_LOCAL_DISK: Final = {  # elsewhere a rename is not what makes a file appear whole
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
_HEARTBEAT: Final = "1 second"
"""How often to look at the clock, where triggers wait for it and nobody says how often."""


class Stream:
    """One run of a graph as a stream."""

    def __init__(
        self, spark: SparkSession, graph: Graph, counters: Counters, checkpoint: str | None, trigger: Any
    ) -> None:
        self.spark, self.counters = spark, counters
        self.trigger = None if trigger is None else duration(trigger)
        self.checkpoint = Checkpoint(spark, checkpoint)
        manifest = self.checkpoint.manifest
        self.line = lower(graph, shards=manifest.shards, partitions=manifest.partitions)
        self.checkpoint.check(self.line)
        kinds = [tap.source.transform for tap in self.line.taps]
        scripted_clock = any(isinstance(kind, TestStream) for kind in kinds)
        arriving = [kind for kind in kinds if isinstance(kind, ReadFiles)]
        self.ends = not any(isinstance(kind, Rate) for kind in kinds) and not (arriving and trigger is not None)
        policies = {tap.name: policy_of(tap.source) for tap in self.line.taps}
        self._idle_after = {name: each.idle_after for name, each in policies.items() if each.idle_after is not None}
        timed = bool(self._idle_after) or any(exchange.work.needs_time for exchange in self.line.exchanges)
        self._heartbeat = timed and not self.ends and not scripted_clock
        self._sources = Sources(spark, self.checkpoint.control, scripted_clock=scripted_clock)
        self._sides = SideInputs(spark, graph)
        self._columns = ColumnsOf(spark, graph)
        self._classes = classes_of_script()
        self.delivery = Delivery(self.line)

    def start(self) -> StreamingQuery:
        """Starts the query."""
        # It would log what a sink's function raises, which the handle tells.
        logging.getLogger("py4j.clientserver").setLevel(logging.CRITICAL)
        entries = [reading.readers for tap in self.line.taps for reading in tap.readings]
        self._sides.fill(steps_of(*entries))
        self._sides.fill(step for exchange in self.line.exchanges for step in steps_of(*exchange.readers.values()))
        entering = [self._tapped(tap) for tap in self.line.taps]
        for outlet in self.line.outlets:
            if isinstance(outlet.output, ToColumns) and outlet.output.element_schema is None:
                outlet.output.element_schema = rows_schema(self._columns.of(outlet.node.inputs[0]))
        self._columns.check_aggregates()
        data = reduce(DataFrame.union, [self._mapped(frame, program) for frame, program in entering] + self._clocks())
        for level in range(1, self.line.depth + 1):
            shards: Any = Deferred(Shards(self.checkpoint.manifest.stream, self._specs(level), self._classes))
            data = data.groupBy("dest").transformWithState(shards, from_arrow_schema(WIRE), "Append", "None")
            data = self._mapped(data, self._after(level))
        self.delivery.begin(self.spark, self.checkpoint.manifest.stream, fresh=self.checkpoint.fresh)
        self.checkpoint.write(self.line)
        forget_untaken(Folder(self.spark, self.checkpoint.spark_path))
        return self._started(data)

    def end(self) -> None:
        """Files were read to their end: nothing will come that is older than the end of time."""
        if files := self._files():
            self._sources.end(files)

    def close(self) -> None:
        """After the run."""
        self._sides.close()
        self.checkpoint.close()

    def _files(self) -> list[Tap]:
        return [tap for tap in self.line.taps if isinstance(tap.source.transform, ReadFiles)]

    def _tapped(self, tap: Tap) -> tuple[DataFrame, Program]:
        opened, watermarks = self._columns.opened(tap.source, self._sources.open), watermarks_of(tap.source)
        data = frame_of(tap, opened, self._columns.note, timed=watermarks == "from times")
        read = [columns_read(reading.readers, self.line.outputs) for reading in tap.readings]
        if len(read) == 1 and read[0] is not None:
            data = data.select(*[name for name in data.columns if name in read[0] or name in relational.HIDDEN])
        pcs = [reading.pc for reading in tap.readings]
        rows: list[Head] = [FromRecords(pc.schema) if pc.has_columns else FromBlocks() for pc in pcs]
        tidings = self.line.tidings
        return data, SourceProgram(
            FromClocks(tidings),
            tidings=tidings,
            label=tap.source.label,
            source=FromSource(tap.name, rows, watermarks, policy_of(tap.source), tidings),
            entries=[reading.readers for reading in tap.readings],
        )

    def _clocks(self) -> list[DataFrame]:
        """What enters beside the sources: that those of files have ended, and the time."""
        frames = [self._sources.ends()] if self.ends and self._files() else []
        frames += [self._sources.heartbeat()] if self._heartbeat else []
        tidings = self.line.tidings
        return [self._mapped(frame, ClockProgram(FromClocks(tidings), tidings=tidings)) for frame in frames]

    def _after(self, level: int) -> Program:
        exchanges = self.line.level(level)
        entries = {each.number: Entry(each.work, each.readers) for each in exchanges}
        return LevelProgram(FromClocks(self.line.tidings), tidings=self.line.tidings, level=level, entries=entries)

    def _mapped(self, data: DataFrame, program: Program) -> DataFrame:
        program.outputs = self.line.outputs
        program.counters, program.classes = self.counters, self._classes
        return data.mapInArrow(program, from_arrow_schema(WIRE))

    def _specs(self, level: int) -> dict[int, ShardSpec]:
        return {
            dest: ShardSpec(name, each.label, each.work, each.upstream, *self._sources_of(each))
            for each in self.line.level(level)
            for dest, name in zip(each.dests, each.names(), strict=True)
        }

    def _sources_of(self, exchange: Exchange) -> tuple[dict[str, tuple[str, ...]], dict[str, int]]:
        """Of the sources it reads from, the partitions that are known, and after how long they are idle."""
        taps = [tap for tap in self.line.taps if tap.name in exchange.upstream]
        partitions = {tap.name: partitions_of(tap.source) for tap in taps}
        return partitions, {name: self._idle_after[name] for name in partitions if name in self._idle_after}

    def _started(self, data: DataFrame) -> StreamingQuery:
        writer = data.writeStream.outputMode("append").foreachBatch(self.delivery)
        writer = writer.option("checkpointLocation", self.checkpoint.spark_path)
        wait = self.trigger if self.trigger is not None else duration(_HEARTBEAT) if self._heartbeat else None
        if wait is not None:
            writer = writer.trigger(processingTime=f"{max(wait // 1000, 1)} milliseconds")
        with self._settings():
            return writer.start()

    @contextmanager
    def _settings(self) -> Iterator[None]:
        """The settings a query takes over when it starts."""
        settings = {
            **_SETTINGS,
            **(_ON_LOCAL_DISK if self.checkpoint.local else {}),
            "spark.sql.shuffle.partitions": str(self.checkpoint.manifest.partitions),
        }
        before = {name: self.spark.conf.get(name, None) for name in settings}
        for name, value in settings.items():
            self.spark.conf.set(name, value)
        try:
            yield
        finally:
            for name, held in before.items():
                if held is None:
                    self.spark.conf.unset(name)
                else:
                    self.spark.conf.set(name, held)
