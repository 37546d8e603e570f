"""The Python programs of a stream: one after each source and one after each level of exchanges.

They differ from the programs of a batch in what enters and leaves: rows of a source or panes of shards enter, rows in
flight leave, and with them reports of the task's clocks to every shard.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from headrace.engine.catalyst.badrecords import BadRecordReader
from headrace.engine.shard.clocks import WHOLE
from headrace.engine.shard.reports import ShardReport, TaskClocks
from headrace.engine.shard.sourceprogress import SourceProgress
from headrace.engine.shard.wire import FORGET, WIRE, Station, exchange_of, unpack, wire
from headrace.engine.shard.work import Work
from headrace.engine.stream.tapframes import elements_of
from headrace.engine.worker.blame import blame
from headrace.engine.worker.bundles import Bundle
from headrace.engine.worker.columnbundles import ColumnBundle
from headrace.engine.worker.hidden import BAD, LOW, NOW, PART, PUNCTUATION, TIME
from headrace.engine.worker.microbatch import set_current_batch
from headrace.engine.worker.program import Counters, Head, Program, Readers
from headrace.engine.worker.rejectedrows import RejectedRows
from headrace.model.metriccells import current_recorder, merge_cells
from headrace.model.pickling import define_in_script
from headrace.model.times import MIN_TIME
from headrace.model.watermarks import WatermarkPolicy

Watermarks = Literal["given", "from times", "punctuated", "followed", "written"]
"""How a source's watermark is known: from its script, from event times, from a column, from times that functions set,
or from what the writers of a topic say."""


@dataclass
class FromSource:
    """Reads the rows of a source, and observes its watermark. Each collection that is read has a head in `rows`."""

    name: str
    rows: list[Head]
    watermarks: Watermarks
    policy: WatermarkPolicy
    clocks: TaskClocks = field(default_factory=TaskClocks)  # those of the task, which its program sets
    progress: dict[str, SourceProgress] = field(default_factory=dict)  # by partition
    letters: BadRecordReader | None = None  # of its bad records, whose head is the last
    rejected: RejectedRows = field(default_factory=RejectedRows)

    def bundles(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, Bundle | ColumnBundle]]:
        """Yields bundles of elements, each with the number of the head that read it."""
        self._begin()
        for batch in batches:
            if batch.num_rows:
                batch = self.rejected.read(batch)
                now = pc.max(batch.column(NOW)).as_py()
                self.clocks.observe(self.name, None, now)
                for partition, rows in _by_partition(batch):
                    self._observe(rows, partition, now)
                yield from self._bundles(batch, self._elements(batch))
        self._finish()

    def count_records(self, counters: Counters) -> None:
        """Adds how many records were read, and which were bad, to the counters; called once a task."""
        if self.letters is not None:
            self.letters.count(counters)
        self.rejected.count(counters)

    def _begin(self) -> None:
        if self.watermarks == "followed":
            self.clocks.followed[self.name] = self.policy

    def _bundles(
        self, batch: pa.RecordBatch, elements: list[pa.RecordBatch]
    ) -> Iterator[tuple[int, Bundle | ColumnBundle]]:
        """Yields the bundles of a batch: its dead letters, and the elements of each head."""
        if self.letters is not None and (dead := self.letters.read(batch)):
            yield len(self.rows), Bundle(dead)
        for number, (head, rows) in enumerate(zip(self.rows, elements, strict=True)):
            if rows.num_rows:
                yield from ((number, bundle) for bundle in head.bundles(iter([rows])))

    def _elements(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        if len(self.rows) > 1:
            return [elements_of(batch, number) for number in range(len(self.rows))]
        clocks = [name for name in (NOW, LOW, PART, PUNCTUATION, BAD) if name in batch.schema.names]
        elements = batch.drop_columns(clocks)
        lows = batch.column(LOW)  # rows with one are no elements
        return [elements if lows.null_count == len(lows) else elements.filter(pc.is_null(lows))]

    def _observe(self, rows: pa.RecordBatch, partition: str, now: int | None) -> None:
        """Observes the watermark of a partition from its rows."""
        if self.watermarks in ("from times", "punctuated"):
            times = rows.column(TIME if self.watermarks == "from times" else PUNCTUATION).drop_null()
            self.progress.setdefault(partition, SourceProgress(self.policy)).observe(np.asarray(times), now=now)
            return
        greatest = pc.max(rows.column(LOW)).as_py() if LOW in rows.schema.names else None
        low = MIN_TIME if greatest is None else greatest
        if partition != WHOLE or low > MIN_TIME:
            self.clocks.observe(self.name, low, now, partition)

    def _finish(self) -> None:
        """Observes the watermarks of partitions once all is read."""
        for partition, progress in self.progress.items():
            with blame(self.name):
                self.clocks.observe(self.name, progress.low(), None, partition)
            if (sketch := progress.sketch()) is not None:
                self.clocks.disorder.setdefault(self.name, {})[partition] = sketch
            self.clocks.skewed += progress.skewed


def _by_partition(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yields the rows of each partition; those without one are of the whole source."""
    if PART not in batch.schema.names:
        yield WHOLE, batch
        return
    partitions = pc.unique(batch.column(PART)).to_pylist()
    if len(partitions) == 1:
        yield partitions[0] or WHOLE, batch
        return
    for partition in partitions:
        named = batch.column(PART)
        of_partition = pc.is_null(named) if partition is None else pc.equal(named, partition)
        yield WHOLE if partition is None else partition, batch.filter(of_partition)


@dataclass
class FromClocks:
    """Reads rows that only have clocks: watermarks of sources, or the time."""

    clocks: TaskClocks = field(default_factory=TaskClocks)  # those of the task, which its program sets

    def bundles(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Bundle]:
        for batch in batches:
            for row in batch.to_pylist():
                self.clocks.observe(row["source"], row[LOW], row[NOW])
        yield from ()


@dataclass
class ClockedProgram(Program):
    """A program of a stream: what it reads with and all of its outputs share the clocks of the task."""

    head: Head = field(default_factory=FromClocks)
    station: Station = (0, 0)

    def schema(self) -> pa.Schema:
        return WIRE

    def _begin(self) -> TaskClocks:
        """Prepares for a task; returns its clocks."""
        define_in_script(self.classes)
        set_current_batch(_batch())
        clocks = TaskClocks(self.station, _partition())
        for each in self._clocked():
            each.clocks = clocks
        return clocks

    def _clocked(self) -> Iterable[Any]:
        """Returns all that notes or reports clocks."""
        return self.head, *self.outputs


@dataclass
class ClockProgram(ClockedProgram):
    """Callable by mapInArrow over rows that only report clocks, or that tell shards to remove their state."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        self._begin()
        forgotten: list[tuple[int, bytes]] = []
        for _, batch in self._run(self._without_forgotten(batches, forgotten)):
            yield batch
        if forgotten:
            yield wire(forgotten)

    def _without_forgotten(
        self, batches: Iterator[pa.RecordBatch], forgotten: list[tuple[int, bytes]]
    ) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            forgets = pc.equal(batch.column("source"), FORGET)
            forgotten += [(dest, b"") for dest in batch.column(LOW).filter(forgets).to_pylist()]
            yield batch.filter(pc.invert(forgets))


@dataclass
class SourceProgram(ClockedProgram):
    """Callable by mapInArrow over the rows of a source."""

    label: str = field(kw_only=True)
    source: FromSource = field(kw_only=True)
    entries: list[Readers] = field(kw_only=True)
    labels: dict[int, str] = field(kw_only=True)  # by the number of a head, the label that counts its elements

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        clocks = self._begin()
        for _, batch in self._run(batches):
            yield batch
        if clocks.skewed and self.counters is not None:
            self.counters.add(Counter({(self.label, "skewed"): clocks.skewed}))
        if self.counters is not None:
            self.source.count_records(self.counters)

    def _clocked(self) -> Iterable[Any]:
        return self.source, *self.outputs

    def _entries(self) -> Iterable[Readers]:
        return self.entries

    def _entering(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[Bundle | ColumnBundle, Readers]]:
        for number, bundle in self.source.bundles(batches):
            if number in self.labels:
                self._counts[self.labels[number], "out"] += bundle.size
            yield bundle, self.entries[number]


@dataclass(frozen=True)
class Entry:
    """The entry of an exchange's output into a program: its work, and readers by tag."""

    label: str
    work: Work
    readers: dict[str | None, Readers]


@dataclass
class LevelProgram(ClockedProgram):
    """Callable by mapInArrow over the output of a level's shards; rows for other destinations pass."""

    entries: dict[int, Entry] = field(kw_only=True)
    emitted: tuple[int, ShardReport, pa.RecordBatch] | None = None  # by a shard in whose process it runs

    def after_shard(self, dest: int, report: ShardReport, panes: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Runs in the process of a shard, over what that has emitted; once a task."""
        self.emitted = dest, report, panes
        return self(iter(()))

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        self._clocks = self._begin()
        self._passing: list[tuple[int, bytes]] = []
        self._reports: dict[str, ShardReport] = {}
        for _, batch in self._run(batches):
            yield batch
            yield from self._passed()
        yield from self._passed()
        if self._reports and self.counters is not None:
            self.counters.report_shards(self._reports)

    def _passed(self) -> Iterator[pa.RecordBatch]:
        if self._passing:
            yield wire(self._passing)
            self._passing.clear()

    def _entries(self) -> Iterable[Readers]:
        return [readers for entry in self.entries.values() for readers in entry.readers.values()]

    def _entering(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[Bundle | ColumnBundle, Readers]]:
        if self.emitted is not None:
            dest, report, panes = self.emitted
            exchange = exchange_of(dest)
            assert exchange is not None
            yield from self._emitted(self.entries[exchange], report, panes)
        for batch in batches:
            for dest, body in zip(batch.column("dest").to_pylist(), batch.column("body").to_pylist(), strict=True):
                exchange = exchange_of(dest)
                entry = None if exchange is None else self.entries.get(exchange)
                if entry is None:
                    self._passing.append((dest, body))
                    continue
                header, panes = unpack(body)
                yield from self._emitted(entry, ShardReport.load(header), panes)

    def _emitted(
        self, entry: Entry, report: ShardReport, panes: pa.RecordBatch
    ) -> Iterator[tuple[Bundle | ColumnBundle, Readers]]:
        """Reads what a shard has emitted."""
        self._clocks.observe(report.name, report.watermark, report.now)
        self._reports[report.name] = report
        if report.metrics and (recorder := current_recorder()) is not None:
            merge_cells(recorder.cells, report.metrics)
        for tag, bundle in entry.work.bundles(panes):
            self._counts[entry.label, "out"] += bundle.size
            yield bundle, entry.readers[tag]


def _partition() -> int:
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def _batch() -> int | None:
    """Returns the number of the micro-batch, which Spark gives to its tasks."""
    context = TaskContext.get()
    number = None if context is None else context.getLocalProperty("streaming.sql.batchId")
    return None if number is None else int(number)
