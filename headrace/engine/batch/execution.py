"""Runs a plan as a batch: stages become DataFrames, lazily, and each sink is a Spark job."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial, reduce
from typing import Any

import pyarrow as pa
from pyspark import Broadcast, StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from headrace.engine.batch import sinks, sources
from headrace.engine.batch.writers import RecordWriter, Writer, writer_of
from headrace.engine.catalyst import badrecords, relational
from headrace.engine.catalyst.panecolumns import with_added
from headrace.engine.connectors.lakewriter import LakeWriter
from headrace.engine.connectors.refusedrecords import RefusedRecords
from headrace.engine.plan.stages import (
    DEAD,
    Columns,
    Frame,
    Plan,
    Python,
    Read,
    Relational,
    Shuffle,
    Stage,
    Union,
    Write,
)
from headrace.engine.spark.counters import Counters
from headrace.engine.worker.bundles import ToColumns, to_block
from headrace.engine.worker.columnbundles import ColumnReader
from headrace.engine.worker.hidden import BAD, END, START, TIME
from headrace.engine.worker.program import Program, columns_read, unnumbered
from headrace.engine.worker.sidevalues import BroadcastBlocks, SideValue
from headrace.model.columnjoins import Join
from headrace.model.columns import Aggregate, TopRows, Where
from headrace.model.elementwise import SideInput
from headrace.model.errors import PipelineError
from headrace.model.lakes import WriteLake
from headrace.model.metriccells import recording
from headrace.model.panes import NO_PANE
from headrace.model.pickling import classes_of_script
from headrace.model.pipeline import Node
from headrace.model.schema import Schema, rows_schema
from headrace.model.sinks import BatchSink, ForEachArrow, WriteFiles
from headrace.model.sources import ReadParquet
from headrace.model.tablesources import TableSource


class Batch:
    """One run of a plan on a session."""

    def __init__(
        self,
        spark: SparkSession,
        plan: Plan,
        counters: Counters,
        progress: Callable[[str], None],
        *,
        persisting: bool = True,  # or what is read twice is computed twice
    ) -> None:
        self.spark, self.plan, self.counters, self.progress = spark, plan, counters, progress
        self._persisting = persisting
        self.refused = RefusedRecords(
            [stage.node for stage in plan.stages if isinstance(stage, Read)], counters.bad_records
        )
        self._classes = classes_of_script()
        self._made: dict[int, DataFrame] = {}
        self._observed: dict[int, badrecords.BadRecordObservation] = {}
        self._unreported: list[badrecords.BadRecordObservation] = []
        self._persisted: list[DataFrame] = []
        self._programs: dict[int, Program] = {}
        self._numbers = itertools.count()
        self._sides: dict[int, Broadcast[Any]] = {}
        self._writers: dict[int, Writer | RecordWriter] = {}
        self._lakes: dict[int, LakeWriter] = {}
        self._resources = ExitStack()  # that sources need while they are read

    def run(self) -> None:
        """Runs every sink, and stages that are run for their effects only."""
        ends = self.plan.ends()
        for stage in ends:
            if isinstance(stage, Write):
                sinks.check_target(self.spark, stage.node)
                if isinstance(stage.node.transform, WriteLake):
                    self._lakes[id(stage)] = LakeWriter(stage.node)
                if isinstance(stage.node.transform, BatchSink):
                    self._writers[id(stage)] = writer_of(stage.node, partial(self._columns, stage.inputs[0]))
        try:
            for stage in ends:
                self.progress(stage.describe())
                self._end(stage)
                self._check_records()
        finally:
            self._release()

    def collected(self, frame: Frame) -> pa.Table:
        """Computes a frame, and brings it to the driver."""
        try:
            table = self.data(frame).toArrow()
            self._check_records()
        finally:
            self._release()
        return table

    def _release(self) -> None:
        for data in self._persisted:
            data.unpersist()
        for broadcast in self._sides.values():
            broadcast.destroy()
        for writer in self._writers.values():
            writer.close()
        self._resources.close()

    def _check_records(self) -> None:
        """Counts the bad records of sources that were read, and fails if a source had no other."""
        while self._unreported:
            self._unreported.pop().report(self.counters)
        self.refused.check()

    def _end(self, stage: Stage) -> None:
        if not isinstance(stage, Write):
            self._data_of(stage).write.format("noop").mode("overwrite").save()
            return
        (frame,) = stage.inputs
        sink, data = stage.node.transform, self.data(frame)
        if isinstance(sink, WriteFiles):
            if stage.added is not None:
                data = with_added(stage.node, data, stage.added, stage.pane)
            sinks.write_files(self.spark, stage.node, data, frame.form, self._check_records)
        elif isinstance(sink, WriteLake):
            writer_of_lake = self._lakes[id(stage)]
            writer_of_lake.begin(None, _arrow_columns(data))
            writer_of_lake.write(data, 0, self._check_records)
        elif isinstance(sink, ForEachArrow):
            sinks.call_for_each_batch(stage.node, data)
        elif isinstance(sink, BatchSink):
            writer, run = self._writers[id(stage)], uuid.uuid4().hex
            if isinstance(writer, RecordWriter):
                writer.begin(run)
                writer.append_all(data)
            else:
                elements = sinks.windowed_values(sinks.collect(data, frame.form, stage.pane))
                self._check_records()
                writer.begin(run)  # after the job: a run that fails leaves the sink as it was
                with recording() as recorder:
                    writer.write(elements, 0)
                if recorder.cells:
                    self.counters.report_metrics(stage.node.label, recorder.cells)
        else:
            raise NotImplementedError(f"no batch form for {sink!r}")

    def data(self, frame: Frame) -> DataFrame:
        """Returns the DataFrame of a frame."""
        data = self._data_of(frame.stage)
        stage = frame.stage
        if isinstance(stage, Read) and BAD in data.columns:
            data = self._counted(stage, data)
            return (
                badrecords.dead_letter_blocks(stage.node.label, data)
                if frame.number == DEAD
                else badrecords.good_rows(data)
            )
        if isinstance(stage, Python) and len(stage.program.outputs) > 1:
            schema = from_arrow_schema(self._programs[id(stage)].outputs[frame.number].schema())
            return data.where(F.col("output") == frame.number).mapInArrow(unnumbered, schema)
        return data

    def _columns(self, frame: Frame) -> pa.Schema | None:
        """Returns the columns of a frame's elements; None if they are Python objects."""
        if not isinstance(frame.form, Columns):
            return None
        return _arrow_columns(self.data(frame))

    def _data_of(self, stage: Stage) -> DataFrame:
        if id(stage) not in self._made:
            data = self._make(stage)
            if self._persisting and stage.readers > 1 and _is_worth_persisting(stage):
                data = data.persist(StorageLevel.MEMORY_AND_DISK)
                self._persisted.append(data)
            self._made[id(stage)] = data
        return self._made[id(stage)]

    def _make(self, stage: Stage) -> DataFrame:
        if (filtered := filtered_source(stage)) is not None:
            read, conditions = filtered
            data = badrecords.fail_on_bad(read.node, sources.read(self.spark, read.node, self._resources, conditions))
            return badrecords.good_rows(self._counted(read, data)) if BAD in data.columns else data
        inputs = [self.data(frame) for frame in stage.inputs]
        match stage:
            case Read(node=node):
                return badrecords.fail_on_bad(node, sources.read(self.spark, node, self._resources))
            case Relational(node=node):
                return relational.apply(node, *inputs)
            case Python():
                program = self._programs[id(stage)] = self._bound(stage, inputs[0])
                return _read_by(program, inputs[0]).mapInArrow(program, from_arrow_schema(program.schema()))
            case Shuffle(order=order):
                if not order:
                    return inputs[0].repartition(self.spark.sparkContext.defaultParallelism)
                return inputs[0].repartition(order[0]).sortWithinPartitions(*order)
            case Union():
                return _union(stage, inputs)
        raise NotImplementedError(f"no batch form for {stage!r}")

    def _counted(self, stage: Read, data: DataFrame) -> DataFrame:
        """Returns the frame of a source, with its bad records counted when it is first read."""
        if id(stage) not in self._observed:
            self._observed[id(stage)] = badrecords.BadRecordObservation(stage.node, data)
            self._unreported.append(self._observed[id(stage)])
        return self._observed[id(stage)].data

    def _bound(self, stage: Python, data: DataFrame) -> Program:
        """Returns the stage's program for this run, with what only a run knows: columns that Spark found, side inputs,
        and where counts go."""
        sides = {id(frame.pc): frame for frame in stage.sides}

        def resolve(side: SideInput) -> SideValue:
            return SideValue.of(side, BroadcastBlocks(self._broadcast(sides[id(side.collection)])))

        outputs = [
            replace(output, element_schema=_rows_of(data))
            if isinstance(output, ToColumns) and output.element_schema is None
            else output
            for output in stage.program.outputs
        ]
        number = next(self._numbers)
        return stage.program.bind(resolve, outputs, counters=self.counters, classes=self._classes, number=number)

    def _broadcast(self, frame: Frame) -> Broadcast[Any]:
        if id(frame) not in self._sides:
            bundles = sinks.collect(self.data(frame), frame.form, NO_PANE)
            self._sides[id(frame)] = self.spark.sparkContext.broadcast([to_block(bundle) for bundle in bundles])
        return self._sides[id(frame)]


def _rows_of(data: DataFrame) -> Schema:
    """Returns the schema of Rows with the columns of a frame."""
    return rows_schema(_arrow_columns(data))


def _arrow_columns(data: DataFrame) -> pa.Schema:
    """Returns the columns of a frame's elements."""
    return to_arrow_schema(data.drop(TIME, START, END).schema, timezone="UTC")


def _read_by(program: Program, data: DataFrame) -> DataFrame:
    """Returns the columns of a frame that a program reads."""
    head = program.head
    read = columns_read(program.readers, head.schema) if isinstance(head, ColumnReader) else None
    return relational.only_columns(data, read)


def filtered_source(stage: Stage) -> tuple[Read, list[Node]] | None:
    """Returns a Parquet source and the conditions on it, if the stage is the last of these conditions.

    They are applied before event times are checked, so that Spark need not read the rows that they drop.
    """
    conditions: list[Node] = []
    while isinstance(stage, Relational) and isinstance(stage.node.transform, Where):
        conditions.insert(0, stage.node)
        stage = stage.inputs[0].stage
        if stage.readers > 1:
            return None
    is_parquet = isinstance(stage, Read) and isinstance(stage.node.transform, ReadParquet)
    return (stage, conditions) if conditions and is_parquet else None  # type: ignore[return-value]


def _is_worth_persisting(stage: Stage) -> bool:
    """Returns whether running the stage twice would cost more than persisting it, or could give another result.

    That is so, too, if it would run a stage twice that is, and that only this one reads.
    """
    if isinstance(stage, Python) or (
        isinstance(stage, Relational) and isinstance(stage.node.transform, Aggregate | TopRows | Join)
    ):
        return True
    if isinstance(stage, Read) and isinstance(stage.node.transform, TableSource):
        return True
    return any(frame.stage.readers == 1 and _is_worth_persisting(frame.stage) for frame in stage.inputs)


def _union(stage: Union, inputs: list[DataFrame]) -> DataFrame:
    if isinstance(stage.inputs[0].form, Columns):
        names = [set(data.columns) for data in inputs]
        if any(other != names[0] for other in names[1:]):
            different = sorted(names[0].union(*names) - names[0].intersection(*names))
            raise PipelineError(
                f"{stage.label!r}: its inputs have different columns ({', '.join(different)}); use Select"
            )
    return reduce(DataFrame.unionByName, inputs)
