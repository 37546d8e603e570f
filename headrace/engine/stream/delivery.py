"""Delivers micro-batches to the sinks of a stream, each once, by its id, even if it is run again.

Files: a batch is a directory `batch-000042` in the sink's, which appears whole or not at all; a batch without elements
has none. `ReadText("out/*")` and its like read them all. In each is a manifest of what was written.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import groupby
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, cast

import pyarrow as pa
from pyspark.accumulators import Accumulator
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery

from headrace.edges.outputs import MANIFEST, seal
from headrace.engine.batch import sinks
from headrace.engine.batch.writers import RecordWriter, writer_of
from headrace.engine.checkpoint.manifest import Manifest, SinkEntry
from headrace.engine.connectors.lakewriter import LakeWriter
from headrace.engine.connectors.topicwriter import TopicWriter
from headrace.engine.plan.line import Line, Outlet
from headrace.engine.shard.reports import ShardReport
from headrace.engine.shard.senders import ToSink
from headrace.engine.shard.stagedbodies import Bodies, remove_staged
from headrace.engine.shard.wire import ROUNDS, sink_dests, sink_of, unpack
from headrace.engine.spark.admission import Admission
from headrace.engine.spark.batchvalue import BatchValue
from headrace.engine.spark.counters import Counters
from headrace.engine.spark.files import Folder
from headrace.engine.spark.persistence import persisted
from headrace.engine.stream import writtenfiles
from headrace.engine.stream.rounds import Rounds
from headrace.engine.worker.blame import blame
from headrace.engine.worker.bundles import FromBlocks, ToColumns
from headrace.engine.worker.hidden import TIME
from headrace.engine.worker.program import Program
from headrace.engine.worker.text import ToText
from headrace.engine.worker.toparquet import ToParquet
from headrace.model.errors import PipelineError
from headrace.model.lakes import WriteLake
from headrace.model.metriccells import Cells, merge_cells, recording
from headrace.model.pipeline import PCollection
from headrace.model.sinks import BatchSink, WindowedValue, WriteFiles
from headrace.model.tables import WriteTable
from headrace.model.times import MAX_TIME, MIN_TIME
from headrace.model.topics import WriteTopic

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

    from headrace.engine.connectors.tablewriter import TableWriter


class Delivery:
    """Delivers a micro-batch to all sinks; callable by foreachBatch.

    Functions in `before` are called before the next batch, when nothing is being written; `after` is called after each
    batch. If `draining`, the stream is `drained` when the input watermark of all shards is at the end of time, and
    takes no batch after that. The `clock` has the time of a batch before its rows are read. `metrics` are those of
    users' functions in batches that all sinks have.
    """

    def __init__(
        self,
        line: Line,
        counters: Counters,
        time_of: Callable[[int], int],
        columns: Callable[[PCollection], pa.Schema | None] = lambda pc: None,
        after: Callable[[], None] = lambda: None,
    ) -> None:
        self.counters, self._time_of, self._after = counters, time_of, after
        self.batches = 0
        self.metrics: Cells = {}
        self.records: Counter[str] = Counter()  # that sources read in the last batch, by label, as far as they count
        self._stream: str | None = None
        self._folders: dict[int, Folder] = {}
        self.before: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.draining = False
        self.drained = threading.Event()
        self.admission: Admission | None = None
        self.clock: BatchValue | None = None
        self.staging: str | None = None  # the directory of output that does not travel
        self.rounds: Rounds | None = None  # of a stream whose shards send to those of the next micro-batch
        self._goes_on = False  # whether the last batch sent something to the next one
        self._names = {name for exchange in line.exchanges for name in exchange.names()}
        self._writers = {
            outlet.number: writer_of(outlet.node, partial(columns, outlet.node.inputs[0]))
            for outlet in line.outlets
            if isinstance(outlet.node.transform, BatchSink)
        }
        self._lakes = {
            outlet.number: LakeWriter(outlet.node)
            for outlet in line.outlets
            if isinstance(outlet.node.transform, WriteLake)
        }
        self.bind(line)

    def bind(self, line: Line) -> None:
        """Uses the outlets of the line that runs, whose columns are known."""
        self._outlets = {outlet.number: outlet for outlet in line.outlets}
        self._files = [outlet for outlet in line.outlets if is_written_by_spark(outlet)]
        for outlet in self._files:
            _check_columns(outlet)
        alone = len(line.outlets) == len(self._files) == 1 and not line.rounds
        # If nothing else is delivered, the last program gives what the files have, and not rows in flight.
        self.direct = self._files[0] if alone and not line.at((line.depth, 1)) else None
        only = line.outlets[0] if len(line.outlets) == len(self._lakes) == 1 and not line.rounds else None
        self._appended = only if only is not None and _adds_rows_only(only) else None

    @property
    def shards(self) -> dict[str, ShardReport]:
        """The last report of each shard, by its name."""
        return self.counters.shard_reports

    def begin(
        self, spark: SparkSession, manifest: Manifest, *, known: dict[str, SinkEntry], alone: bool = False
    ) -> None:
        """Prepares for the first batch; the directories of sinks that are not `known` from before must be new.

        Unless it is `alone` with its checkpoint, another process may still run the stream, which then can write no more
        to topics.
        """
        self._stream = manifest.stream
        for outlet in self._outlets.values():
            sink, label = outlet.node.transform, outlet.node.label
            if outlet.number in self._writers:
                self._writers[outlet.number].begin(manifest.stream)
            elif outlet.number in self._lakes:
                self._lakes[outlet.number].begin(manifest.stream, _element_columns(outlet))
            elif isinstance(sink, WriteFiles) and not manifest.sinks[label].same_target(known.get(label)):
                sinks.check_target(spark, outlet.node, clears=True)
                self._folder(outlet, spark).delete()  # which is there only if it may be replaced
            if isinstance(outlet.output, ToParquet):
                writtenfiles.remove_stale(outlet.output)
        if self.staging is not None:
            remove_staged(self.staging)  # what an earlier run has left
        for writer in self._writers.values():  # last: a start that is refused leaves the other process alone
            if isinstance(writer, TopicWriter) and not alone:
                writer.take_over()

    def started(self, query: StreamingQuery) -> None:
        """Begins back pressure in the running query."""
        if self.admission is not None:
            self.admission.begin(query)

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        if self.drained.is_set():
            raise Drained
        self.catch_up()
        began = time.monotonic()
        self.counters.forget_recorded()  # those of a batch that failed
        before = self.counters.records
        if self.clock is not None:
            self.clock.set(self._time_of(batch_id))
        self._deliver(frame, batch_id)
        self.batches += 1
        self.records = self.counters.records - before
        self.metrics = merge_cells(dict(self.metrics), self.counters.recorded())  # another thread may read it
        self._after()
        if self.admission is not None:
            self.admission.after(time.monotonic() - began)
        if self.draining and not self._goes_on and all(self._ended(name) for name in self._names):
            self.drained.set()

    def _ended(self, shard: str) -> bool:
        report = self.shards.get(shard)
        return report is not None and report.input_watermark >= MAX_TIME

    def close(self) -> None:
        """Closes the writers after the run."""
        for writer in self._writers.values():
            writer.close()

    def catch_up(self) -> None:
        """Calls the functions in `before`."""
        with suppress(Empty):
            while True:
                self.before.get_nowait()()

    def _deliver(self, frame: DataFrame, batch_id: int) -> None:
        if len(self._outlets) == len(self._files) == 1 and self.rounds is None:
            self._write(self._files[0], frame, batch_id)  # one job does it all
        elif self._appended is not None:
            self._to(self._appended, frame, [], batch_id)  # here, too
        elif self._files or self._lakes:
            with persisted(frame):
                self._deal_out(frame, batch_id)
        else:
            self._deal_out(frame, batch_id)

    def _deal_out(self, frame: DataFrame, batch_id: int) -> None:
        """Gives each sink its rows in flight."""
        rows = (self._without_files(frame) if self._files or self._lakes else frame).toArrow()
        by_sink: dict[int, list[bytes]] = {}
        for dest, body in zip(rows.column("dest").to_pylist(), rows.column("body").to_pylist(), strict=True):
            bodies = by_sink.setdefault(sink_of(dest), [])
            if body is not None:  # what Spark writes to files is there, but does not travel
                bodies.append(body)
        if self.rounds is not None:
            sent = by_sink.pop(ROUNDS, [])
            self.rounds.write(sent, batch_id)
            self._goes_on = bool(sent)
        due = [outlet for number, outlet in self._outlets.items() if number in by_sink or says_watermarks(outlet)]
        staged = any(Bodies(bodies).staged for bodies in by_sink.values())
        for database, outlets in groupby(due, _database):
            if database is None:
                for outlet in outlets:
                    self._to(outlet, frame, by_sink.get(outlet.number, []), batch_id)
            else:
                self._to_tables(outlets, by_sink, batch_id)
        if staged and self.staging is not None:
            remove_staged(self.staging)

    def _without_files(self, frame: DataFrame) -> DataFrame:
        """Leaves out the bodies of what goes to files: that stays where it is, only that it is there counts."""
        numbers = [*(each.number for each in self._files), *self._lakes]
        in_files = reduce(Column.__or__, [F.col("dest").between(*sink_dests(number)) for number in numbers])
        return frame.select("dest", F.when(~in_files, F.col("body")).alias("body"))

    def _to(self, outlet: Outlet, frame: DataFrame, bodies: list[bytes], batch_id: int) -> None:
        if isinstance(outlet.output, ToParquet):
            self._place(outlet.output, bodies, batch_id)
            return
        if outlet in self._files:
            self._write(outlet, frame.where(F.col("dest").between(*sink_dests(outlet.number))), batch_id)
            return
        if outlet.number in self._lakes:
            rows = frame.where(F.col("dest").between(*sink_dests(outlet.number)))
            unpacked = rows.mapInArrow(BodyUnpacker(self.counters.written), from_arrow_schema(outlet.output.schema()))
            self._lakes[outlet.number].write(unpacked, batch_id)
            return
        writer = self._writers[outlet.number]
        if isinstance(writer, RecordWriter):
            watermark = self._watermark(outlet) if says_watermarks(outlet) else None
            blocks, many = Blocks(Bodies(bodies)), Bodies(bodies).staged
            writer.append(blocks, batch_id, lambda: self._time_of(batch_id), watermark, many=many)
        else:
            with recording() as recorder:
                writer.write(elements_of(bodies), batch_id)
            if recorder.cells:
                self.counters.report_metrics(outlet.node.label, recorder.cells)

    def _to_tables(self, outlets: Iterable[Outlet], by_sink: dict[int, list[bytes]], batch_id: int) -> None:
        """Gives tables of one database their rows, in one transaction."""
        from headrace.engine.connectors.tablewriter import TableBatch, write_together  # imports SQLAlchemy

        batches = []
        for outlet in outlets:
            elements = partial(pieces_of, Bodies(by_sink.get(outlet.number, [])))
            watermark = self._watermark(outlet) if says_watermarks(outlet) else None
            batches.append(TableBatch(cast("TableWriter", self._writers[outlet.number]), elements, watermark))
        write_together(batches, batch_id)

    def _watermark(self, outlet: Outlet) -> int | None:
        """Returns the watermark of what a sink is given; None as long as it is not known."""
        reports = [self.shards.get(name) for name in outlet.upstream]
        lows = [MIN_TIME if report is None else report.watermark for report in reports]
        return low if (low := min(lows, default=MIN_TIME)) > MIN_TIME else None

    def _place(self, output: ToParquet, bodies: list[bytes], batch_id: int) -> None:
        """Gives the files that workers wrote the directory of the batch, if there is none yet."""
        with blame(output.columns.label):
            writtenfiles.place(output, bodies, self._stream, batch_id)

    def _write(self, outlet: Outlet, rows: DataFrame, batch_id: int) -> None:
        """Writes a batch beside its directory and renames it; if the directory exists, the batch is only computed.

        In an object store, files are written where they are to be; the directory counts once it has a manifest.
        """
        folder, name = self._folder(outlet, rows.sparkSession), f"batch-{batch_id:06d}"
        if folder.exists(name if folder.renames else f"{name}/{MANIFEST}"):
            self._save(outlet, rows, lambda each, append: each.write.format("noop").mode("overwrite").save())
            return
        new = folder.folder(f".{name}.new" if folder.renames else name)
        new.delete()

        def save(each: DataFrame, append: bool) -> None:
            with blame(outlet.node.label):
                sinks.save_files(outlet.node, each, new, text=isinstance(outlet.output, ToText), append=append)

        if count := self._save(outlet, rows, save):
            seal(new, stream=self._stream, sink=outlet.node.label, batch=batch_id, rows=count)
            if folder.renames:
                new.rename(folder.folder(name))
        else:
            new.delete()

    def _folder(self, outlet: Outlet, spark: SparkSession) -> Folder:
        """Returns the directory of a sink of files."""
        if outlet.number not in self._folders:
            assert isinstance(outlet.node.transform, WriteFiles)
            self._folders[outlet.number] = Folder(spark, outlet.node.transform.path)
        return self._folders[outlet.number]

    def _save(self, outlet: Outlet, rows: DataFrame, save: Callable[[DataFrame, bool], None]) -> int:
        """Saves the rows of a batch that a sink of files writes, and returns how many they are.

        `save` writes a frame, as the first one of a batch or beside others.
        """
        before = self.counters.written.value
        if outlet is not self.direct:
            schema = from_arrow_schema(outlet.output.schema())
            rows = rows.mapInArrow(BodyUnpacker(self.counters.written), schema)
        save(rows.drop(TIME), False)
        return self.counters.written.value - before


def is_written_by_spark(outlet: Outlet) -> bool:
    """Returns whether a sink is files that Spark writes."""
    return isinstance(outlet.node.transform, WriteFiles) and not isinstance(outlet.output, ToParquet)


def says_watermarks(outlet: Outlet) -> bool:
    """Returns whether a sink is told the watermark of what it is given."""
    sink = outlet.node.transform
    return (isinstance(sink, WriteTopic) and sink.watermarks) or (isinstance(sink, WriteTable) and sink.ttl is not None)


def _database(outlet: Outlet) -> URL | None:
    """Returns the database that a sink writes to, None if it is no table."""
    sink = outlet.node.transform
    return sink.url if isinstance(sink, WriteTable) else None


def _check_columns(outlet: Outlet) -> None:
    """Refuses columns that cannot be written beside each other, before the first batch."""
    if not (isinstance(outlet.output, ToColumns) and outlet.output.element_schema is None):
        try:
            outlet.output.schema()
        except PipelineError as error:
            raise PipelineError(f"{outlet.node}: {error}") from None


def _adds_rows_only(outlet: Outlet) -> bool:
    """Returns whether a sink is a table of a data lake to which rows are only added."""
    return isinstance(outlet.node.transform, WriteLake) and outlet.node.transform.mode == "append"


def _element_columns(outlet: Outlet) -> pa.Schema:
    """Returns the columns of a sink's elements, without hidden ones."""
    assert isinstance(outlet.output, ToColumns) and outlet.output.element_schema is not None
    schema = outlet.output.element_schema
    return pa.schema(list(zip(schema.names, schema.types, strict=True)))


class Drained(Exception):
    """Raised for a batch after the stream was drained."""


def staged_by_workers(line: Line, staging: str) -> Line:
    """Returns the line with outputs to tables and topics that stage what is too much to travel, in a directory."""
    stages = {outlet.number for outlet in line.outlets if isinstance(outlet.node.transform, WriteTable | WriteTopic)}
    outputs = [
        replace(each, staging=staging) if isinstance(each, ToSink) and each.number in stages else each
        for each in line.outputs
    ]
    return replace(line, outputs=outputs)


def elements_of(bodies: Iterable[bytes]) -> list[WindowedValue]:
    """Decodes the elements of bodies of blocks."""
    batches = (unpack(body)[1] for body in bodies)
    return sinks.windowed_values(list(FromBlocks().bundles(batches)))


def pieces_of(bodies: Bodies) -> Iterator[list[WindowedValue]]:
    """Decodes the elements of bodies: all at once, if they have travelled, and otherwise a few bodies at a time."""
    if not bodies.staged:
        if elements := elements_of(bodies):
            yield elements
        return
    several: list[bytes] = []
    for body in bodies:
        several.append(body)
        if sum(map(len, several)) >= _PIECE_BYTES:
            yield elements_of(several)
            several = []
    if several:
        yield elements_of(several)


_PIECE_BYTES: Final = 2 << 20
"""Of how many bytes elements are decoded at a time: as Python's objects they take ten times as much."""


@dataclass(frozen=True)
class Blocks:
    """The blocks in bodies, which can be read several times."""

    bodies: Bodies

    def __iter__(self) -> Iterator[pa.Buffer]:
        return (cell.as_buffer() for body in self.bodies for cell in unpack(body)[1].column(0))


@dataclass
class BodyUnpacker:
    """Unpacks the batches in the bodies of rows in flight, and counts their rows; callable by mapInArrow.

    With a program, the rows in flight are what the program emits.
    """

    rows: Accumulator[int]
    program: Program | None = None

    def __call__(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in rows if self.program is None else self.program(rows):
            for body in batch.column("body").to_pylist():
                unpacked = unpack(body)[1]
                self.rows.add(unpacked.num_rows)
                yield unpacked
