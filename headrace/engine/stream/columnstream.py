"""Streams that are Catalyst's alone: from a source through column transforms to files, without a row in Python.

`is_columnar` is the rule. The query's frame has the elements of the tap as columns and, beside them, the few rows that
are none but must be counted: bad records. Spark counts while it writes the files, and nothing is read twice. There are
no shards, so nobody waits for watermarks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from functools import partial, reduce
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.engine.catalyst import badrecords, relational
from headrace.engine.catalyst.skippedrows import skips_failures
from headrace.engine.checkpoint.manifest import Manifest, SinkEntry
from headrace.engine.connectors.topicreaders import reader_of
from headrace.engine.plan.line import Line, Outlet
from headrace.engine.plan.taps import Tap
from headrace.engine.shard.senders import ToSink
from headrace.engine.spark.counters import Counters
from headrace.engine.spark.inputrows import rows_read
from headrace.engine.spark.observedrows import ObservedRows
from headrace.engine.spark.persistence import persisted
from headrace.engine.stream.delivery import Delivery
from headrace.engine.stream.programs import Watermarks
from headrace.engine.stream.sources import Sources, policy_of, watermarks_of
from headrace.engine.stream.tapframes import element_column
from headrace.engine.worker.bundles import ToColumns
from headrace.engine.worker.hidden import BAD, LOW, PUNCTUATION, TIME
from headrace.model.pipeline import Node
from headrace.model.sinks import WriteFiles
from headrace.model.sources import ReadParquet
from headrace.model.tablesources import TableSource

_DECIMAL: Final = "decimal(18,0)"
"""A type that has all times before the year 33,658, and that Spark compares as quickly as numbers."""
OUT: Final = "out"
"""The name of the count of elements."""
_SKEWED: Final = "skewed"


def is_columnar(line: Line) -> bool:
    """Returns whether a stream is Catalyst's alone.

    That is so if it reads one source, no topic, and every collection that is read of it goes to files, as columns and
    at once: no function, grouping, window or other sink needs its elements, and nobody reads its dead letters.
    """
    if len(line.taps) != 1 or not line.outlets or line.depth or line.segments:
        return False
    (tap,) = line.taps
    readers = [reading.readers for reading in tap.readings]
    return (
        reader_of(tap.source) is None
        and not any(each.steps for each in (*readers, tap.dead))
        and not tap.dead.outputs
        and all(isinstance(line.outputs[number], ToSink) for each in readers for number in each.outputs)
        and all(isinstance(outlet.node.transform, WriteFiles) for outlet in line.outlets)
        and all(isinstance(outlet.output, ToColumns) and outlet.output.added is None for outlet in line.outlets)
        and all(reading.pc.has_columns and not reading.windows for reading in tap.readings)
        and not any(skips_failures(node) for reading in tap.readings for node in reading.columns)
    )


def counted_frame(tap: Tap, data: DataFrame, watermarks: Watermarks, *, all_rows: bool = False) -> DataFrame:
    """Makes the frame of the query from that of its tap: elements, and beside them what else is counted.

    `all_rows`: those that are no elements stay, to be compared with the clock.
    """
    numbers = range(len(tap.readings))
    elements = reduce(Column.__or__, [_is_element(tap, number) for number in numbers])
    if not all_rows and BAD not in data.columns:
        data = data.where(elements)
    elif not all_rows and reads_rows(tap):
        data = data.where(elements | F.col(BAD).isNotNull())
    # Else all records are counted here: where lines are read, not every one is a record.
    own = [F.col(element_column(n)) for n in numbers] if len(numbers) > 1 else relational.element_columns(data)
    clock = {"from times": [TIME], "punctuated": [PUNCTUATION]}.get(watermarks, [])
    hidden = [name for name in (BAD, LOW) if name in data.columns]
    return data.select(*own, *hidden, *clock)


def without_rows(data: DataFrame, like: DataFrame) -> DataFrame:
    """Returns no rows, with the columns of another frame, from a source that has none but starts batches."""
    # Spark does not know that there are none, so that its progress has the source.
    empty = data.where(F.col("source").isNull())
    return empty.select(*[F.lit(None).cast(field.dataType).alias(field.name) for field in like.schema])


class ColumnDelivery(Delivery):
    """Delivers micro-batches whose rows are columns already."""

    def bind(self, line: Line) -> None:
        super().bind(line)
        (self._tap,) = line.taps
        self._readings = {
            output.number: number
            for number, reading in enumerate(self._tap.readings)
            for output in (line.outputs[at] for at in reading.readers.outputs)
            if isinstance(output, ToSink)
        }

    def begin(
        self, spark: SparkSession, manifest: Manifest, *, known: dict[str, SinkEntry], alone: bool = False
    ) -> None:
        super().begin(spark, manifest, known=known, alone=alone)
        self._spark = spark

    def open(self, node: Node, sources: Sources) -> DataFrame:
        """Opens the source of the query."""
        return sources.open(node)

    def frame(self, tap: Tap, opened: DataFrame, through: Callable[..., DataFrame]) -> DataFrame:
        """Makes the frame of the query; `through` applies the column transforms of its tap to rows of the source."""
        return counted_frame(tap, through(opened, timed=False), watermarks_of(tap.source))

    def _deliver(self, frame: DataFrame, batch_id: int) -> None:
        self._counts = RowCounts(self._tap, frame, self._time_of(batch_id), partial(rows_read, self._spark))
        if len(self._outlets) == 1:
            self._deliver_all(self._counts.data, batch_id)
            return
        with persisted(self._counts.data):
            self._deliver_all(self._counts.data, batch_id)

    def _deliver_all(self, frame: DataFrame, batch_id: int) -> None:
        for outlet in self._outlets.values():
            self._write(outlet, frame, batch_id)

    def _save(self, outlet: Outlet, rows: DataFrame, save: Callable[[DataFrame, bool], None]) -> int:
        number = self._readings[outlet.number]
        save(self._elements(rows, number), False)
        return self._counts.once(self.counters).elements[number]

    def _elements(self, rows: DataFrame, number: int) -> DataFrame:
        """Returns the elements of one of the collections that are read, as they are written."""
        elements = rows.where(_is_element(self._tap, number))
        if len(self._tap.readings) > 1:
            elements = elements.select(f"{element_column(number)}.*")
        return elements.drop(*relational.HIDDEN)


class RowCounts:
    """The counts of a micro-batch, which Spark makes in the job that first reads its frame."""

    def __init__(self, tap: Tap, frame: DataFrame, now: int, rows_read: Callable[[], int]) -> None:
        self._tap, self._frame, self._now, self._rows_read = tap, frame, now, rows_read
        self._observed = ObservedRows(frame, *self._metrics())
        self.data = self._observed.data
        self._reported = False
        self.elements: list[int] = []

    def _metrics(self) -> list[Column]:
        numbers = range(len(self._tap.readings))
        metrics = [F.count_if(_is_element(self._tap, number)).alias(f"{OUT}{number}") for number in numbers]
        if clock := [F.col(name) for name in (TIME, PUNCTUATION) if name in self._frame.columns]:
            # A decimal is not written into the code that Spark generates, which is the same for every batch then.
            (time,), latest = clock, Decimal(self._now + policy_of(self._tap.source).max_skew)
            ahead = F.coalesce(time.try_cast(_DECIMAL) > F.lit(latest).cast(_DECIMAL), F.lit(True))
            metrics.append(F.count_if((time > 0) & ahead).alias(_SKEWED))
        return [*metrics, *(badrecords.observed() if BAD in self._frame.columns else ())]

    def once(self, counters: Counters) -> RowCounts:
        """Adds the counts to the counters, once, after that job; fails if a record is bad that must not be."""
        if self._reported:
            return self
        self._reported = True
        counted, source = self._observed.counted(), self._tap.source
        if BAD in self._frame.columns:
            if reads_rows(self._tap):
                counted[badrecords.RECORDS] = self._rows_read()
            badrecords.report(source, counted, counters)
        self.elements = [counted[f"{OUT}{number}"] for number in range(len(self._tap.readings))]
        counts: Counter[tuple[str, str]] = Counter()
        for number, reading in enumerate(self._tap.readings):
            counts[reading.row_producer(source).label, OUT] += self.elements[number]
        counts[source.label, _SKEWED] += counted.get(_SKEWED, 0)
        counters.add(+counts)
        return self


def reads_rows(tap: Tap) -> bool:
    """Returns whether each row that Spark reads of a source is one of its records."""
    return isinstance(tap.source.transform, ReadParquet | TableSource)


def _is_element(tap: Tap, number: int) -> Column:
    """Returns whether a row is an element of one of the collections that are read."""
    return F.col(LOW).isNull() if len(tap.readings) == 1 else F.col(element_column(number)).isNotNull()
