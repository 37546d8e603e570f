"""Reads the records of an embedded topic as columns, straight from its segments. No Spark."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.edges.topicranges import Range, topic_at
from headrace.engine.shard.clocks import written_part
from headrace.engine.worker.blame import blame
from headrace.engine.worker.bundles import BATCH_SIZE, BUNDLE_SIZE, Bundle
from headrace.engine.worker.hidden import BAD, BAD_TYPE, LOW, TIME
from headrace.log.partitions import TIMESTAMP
from headrace.log.values import VALUE, Values, parse_json
from headrace.log.watermarkrecords import WriterWatermark, split_watermarks
from headrace.model.badrecords import ABSURD_TIME, NO_TIME, YEAR_1, YEAR_10000
from headrace.model.times import SECOND

OFFSET: Final = "__offset"
"""The column of records' offsets."""
PLACE: Final = "__place"
"""The column of partition and offset in one number, since each column that Spark copies costs time."""
OFFSET_BITS: Final = 44
WRITER: Final = "__writer"
"""The column of the names of writers, in rows of what they say."""

Kind = Literal["rows", "json", "bytes"]


def value_kind(values: str) -> Kind:
    """Returns the kind of values that a topic with this setting has."""
    return values if values in ("json", "bytes") else "rows"  # type: ignore[return-value]


def value_columns(values: str) -> pa.Schema:
    """Returns the columns of a topic's values: those of rows, or one of bytes."""
    kind = Values(values).type()
    return pa.schema(list(kind)) if pa.types.is_struct(kind) else pa.schema([(VALUE, kind)])


@dataclass(frozen=True)
class Records:
    """Reads columns of a topic's values, and TIME: from the column `event_time`, or else the records' timestamps.

    With `placed`, also PLACE, the position of each record; with `event_time`, also BAD. Without `timed`, no TIME. With
    `watermarks`, what writers say are rows, too, which have LOW and WRITER only, and PLACE.
    """

    log: str
    topic: str
    columns: pa.Schema
    event_time: str | None = None
    placed: bool = False
    timed: bool = True
    watermarks: bool = False

    def schema(self) -> pa.Schema:
        time = [(TIME, pa.int64())] if self.timed else []
        place = [(PLACE, pa.int64())] if self.placed else []
        bad = [] if self.event_time is None else [(BAD, BAD_TYPE)]
        low = [(LOW, pa.int64()), (WRITER, pa.string())] if self.watermarks else []
        return pa.schema([*self.columns, *time, *bad, *place, *low])

    def read(self, ranges: Iterable[Range]) -> Iterator[pa.RecordBatch]:
        """Yields the records in these ranges in batches."""
        for span in ranges:
            said: list[WriterWatermark] = []
            yield from merged_batches(self._records(span, said))
            if self.watermarks and said:
                yield self._said(span.partition, said)

    def read_ranges(self, ranges: pa.RecordBatch) -> Iterator[tuple[str | None, pa.RecordBatch]]:
        """Yields the records in rows of ranges in batches, each with the name of its partition.

        What writers say are batches of LOW alone, each with the names of partition and writer.
        """
        for row in ranges.to_pylist():
            said: list[WriterWatermark] = []
            span = Range(row["partition"], row["first"], row["until"])
            yield from ((str(span.partition), batch) for batch in merged_batches(self._records(span, said)))
            for each in said:
                low = pa.record_batch({LOW: pa.array([each.watermark], pa.int64())})
                yield written_part(str(span.partition), each.writer), low

    def _records(self, span: Range, said: list[WriterWatermark]) -> Iterator[pa.RecordBatch]:
        """Yields the records of a range; adds what writers say in it to `said`."""
        for first, batch in topic_at(self.log, self.topic).partition(span.partition).read(span.first, span.until):
            runs, watermarks = split_watermarks(batch)
            said += watermarks
            yield from (self._batch(span.partition, first + at, run) for at, run in runs)

    def _said(self, partition: int, said: list[WriterWatermark]) -> pa.RecordBatch:
        """Returns rows of what writers say."""
        known = {
            LOW: [each.watermark for each in said],
            WRITER: [each.writer for each in said],
            PLACE: [partition << OFFSET_BITS] * len(said),
        }
        columns = [pa.array(known.get(field.name, [None] * len(said)), field.type) for field in self.schema()]
        return pa.record_batch(columns, schema=self.schema())

    def _batch(self, partition: int, first: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = [_column(batch, field) for field in self.columns]
        if self.timed:
            columns.append(self._times(batch))
        if self.event_time is not None:
            columns.append(self._bad(f"{self.topic}/{partition}", first, batch, columns[-1]))
        if self.placed:
            place = (partition << OFFSET_BITS) + first
            columns.append(pa.array(np.arange(place, place + batch.num_rows)))
        if self.watermarks:
            columns += [pa.nulls(batch.num_rows, pa.int64()), pa.nulls(batch.num_rows, pa.string())]
        return pa.record_batch(columns, schema=self.schema())

    def _times(self, batch: pa.RecordBatch) -> pa.Array:
        if self.event_time is None:
            return batch.column(TIMESTAMP)
        index = batch.schema.field(VALUE).type.get_field_index(self.event_time)
        return checked_times(_column(batch, batch.schema.field(VALUE).type.field(index)))

    def _bad(self, place: str, first: int, batch: pa.RecordBatch, times: pa.Array) -> pa.Array:
        """Returns the column BAD, which describes the records without an event time."""
        if not times.null_count:
            return pa.nulls(batch.num_rows, BAD_TYPE)
        wrong: list[dict[str, str] | None] = [None] * batch.num_rows
        for at in np.flatnonzero(np.asarray(times.is_null())).tolist():
            value = batch.column(VALUE)[at].as_py() or {}
            time, subject = value.get(self.event_time), f"the event time {self.event_time!r} is"
            absurd = f"{subject} {time}, which is not in the years 1 to 9999"
            wrong[at] = {
                "reason": NO_TIME if time is None else ABSURD_TIME,
                "message": f"{subject} missing" if time is None else absurd,
                "position": f"{place}@{first + at}",
                "record": json.dumps(value, default=str),
            }
        return pa.array(wrong, BAD_TYPE)


def checked_times(column: pa.Array) -> pa.Array:
    """Converts timestamps, or whole seconds, to microseconds; those outside the years 1 to 9999 become null."""
    unit = 1 if pa.types.is_timestamp(column.type) else SECOND
    if unit == 1:
        column = column.cast(pa.timestamp("us", column.type.tz)).view(pa.int64())
    within = pc.min_max(column).as_py()
    if within["min"] is not None and not YEAR_1 // unit <= within["min"] <= within["max"] < YEAR_10000 // unit:
        known = pc.and_(pc.greater_equal(column, YEAR_1 // unit), pc.less(column, YEAR_10000 // unit))
        column = pc.if_else(known, column, None)
    return column if unit == 1 else pc.multiply(column.cast(pa.int64()), SECOND)


def has_times(kind: pa.DataType) -> bool:
    """Tells whether `checked_times` converts columns of this type."""
    return bool(pa.types.is_timestamp(kind) or pa.types.is_integer(kind))


def merged_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields the same rows in larger batches: small ones, as from a producer that flushes often, are merged.

    >>> [batch.num_rows for batch in merged_batches(pa.record_batch({"x": [i, i]}) for i in range(25_000))]
    [20000, 20000, 10000]
    """
    waiting: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        waiting.append(batch)
        count += batch.num_rows
        if count >= BATCH_SIZE:
            yield waiting[0] if len(waiting) == 1 else pa.concat_batches(waiting)
            waiting, count = [], 0
    if waiting:
        yield waiting[0] if len(waiting) == 1 else pa.concat_batches(waiting)


@dataclass(frozen=True)
class FromJson:
    """Parses values that are JSON to Python objects."""

    label: str

    def bundles(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Bundle]:
        for batch in batches:
            for at in range(0, batch.num_rows, BUNDLE_SIZE):
                part = batch.slice(at, BUNDLE_SIZE)
                yield Bundle(self._read(part.column(VALUE)), np.asarray(part.column(TIME)))

    def _read(self, values: pa.Array) -> list[Any]:
        # Nearly all values are UTF-8, which json.loads would detect for each; it reads others, and explains errors.
        with suppress(Exception):
            return list(map(parse_json, values.cast(pa.string()).to_pylist()))
        texts = values.to_pylist()
        cursor = iter(texts)
        with blame(self.label, texts, cursor):
            return list(map(json.loads, cursor))


def _column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    """Returns a column of the values, cast if `field` has a wider type than the topic."""
    values = batch.column(VALUE)
    if not pa.types.is_struct(values.type):
        return values
    index = values.type.get_field_index(field.name)
    column = values.flatten()[index] if values.null_count else values.field(index)
    return column if column.type == field.type else column.cast(field.type)
