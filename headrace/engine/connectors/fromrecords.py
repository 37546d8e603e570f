"""The records of a topic as columns, straight from its segments: what is read of them, and how. Nothing of Spark."""

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
from headrace.engine.worker.blame import blame
from headrace.engine.worker.bundles import BATCH_SIZE, BUNDLE_SIZE, Bundle
from headrace.engine.worker.hidden import BAD, BAD_TYPE, TIME
from headrace.log.partitions import TIMESTAMP
from headrace.log.values import VALUE, Values, parse_json
from headrace.model.badrecords import ABSURD_TIME, NO_TIME, YEAR_1, YEAR_10000
from headrace.model.times import SECOND

OFFSET: Final = "__offset"
"""The column of records' offsets."""
PLACE: Final = "__place"
"""The column of partition and offset in one number, since Spark makes rows of all columns it is given."""
OFFSET_BITS: Final = 44

Kind = Literal["rows", "json", "bytes"]


def kind_of(values: str) -> Kind:
    """The kind of values that a topic with this setting has."""
    return values if values in ("json", "bytes") else "rows"  # type: ignore[return-value]


def columns_of(values: str) -> pa.Schema:
    """The columns that a topic's values have: those of rows, or one of bytes."""
    kind = Values(values).type()
    return pa.schema(list(kind)) if pa.types.is_struct(kind) else pa.schema([(VALUE, kind)])


@dataclass(frozen=True)
class Records:
    """Reads columns of a topic's values, and TIME: that of the column `event_time` or else of the records themselves.

    With `placed`, also PLACE, which says where a record is; with `event_time`, also BAD.
    """

    log: str
    topic: str
    columns: pa.Schema
    event_time: str | None = None
    placed: bool = False

    def schema(self) -> pa.Schema:
        place = [(PLACE, pa.int64())] if self.placed else []
        bad = [] if self.event_time is None else [(BAD, BAD_TYPE)]
        return pa.schema([*self.columns, (TIME, pa.int64()), *bad, *place])

    def read(self, ranges: Iterable[Range]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Batches of the records in these ranges, each with its partition."""
        topic = topic_at(self.log, self.topic)
        for each in ranges:
            batches = topic.partition(each.partition).read(each.first, each.until)
            for batch in gathered(self._batch(each.partition, first, batch) for first, batch in batches):
                yield each.partition, batch

    def _batch(self, partition: int, first: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = [_column(batch, field) for field in self.columns]
        columns.append(self._times(batch))
        if self.event_time is not None:
            columns.append(self._bad(f"{self.topic}/{partition}", first, batch, columns[-1]))
        if self.placed:
            place = (partition << OFFSET_BITS) + first
            columns.append(pa.array(np.arange(place, place + batch.num_rows)))
        return pa.record_batch(columns, schema=self.schema())

    def _times(self, batch: pa.RecordBatch) -> pa.Array:
        if self.event_time is None:
            return batch.column(TIMESTAMP)
        index = batch.schema.field(VALUE).type.get_field_index(self.event_time)
        return checked_times(_column(batch, batch.schema.field(VALUE).type.field(index)))

    def _bad(self, place: str, first: int, batch: pa.RecordBatch, times: pa.Array) -> pa.Array:
        """What is wrong with the records that have no event time."""
        if not times.null_count:
            return pa.nulls(batch.num_rows, BAD_TYPE)
        wrong: list[dict[str, str] | None] = [None] * batch.num_rows
        for at in np.flatnonzero(np.asarray(times.is_null())).tolist():
            value = batch.column(VALUE)[at].as_py() or {}
            said, about = value.get(self.event_time), f"the event time {self.event_time!r} is"
            absurd = f"{about} {said}, which is not in the years 1 to 9999"
            wrong[at] = {
                "reason": NO_TIME if said is None else ABSURD_TIME,
                "message": f"{about} missing" if said is None else absurd,
                "position": f"{place}@{first + at}",
                "record": json.dumps(value, default=str),
            }
        return pa.array(wrong, BAD_TYPE)


def checked_times(column: pa.Array) -> pa.Array:
    """Microseconds from a column of timestamps or of whole seconds; null if they are not in the years 1 to 9999."""
    unit = 1 if pa.types.is_timestamp(column.type) else SECOND
    if unit == 1:
        column = column.cast(pa.timestamp("us", column.type.tz)).view(pa.int64())
    within = pc.min_max(column).as_py()
    if within["min"] is not None and not YEAR_1 // unit <= within["min"] <= within["max"] < YEAR_10000 // unit:
        known = pc.and_(pc.greater_equal(column, YEAR_1 // unit), pc.less(column, YEAR_10000 // unit))
        column = pc.if_else(known, column, None)
    return column if unit == 1 else pc.multiply(column.cast(pa.int64()), SECOND)


def has_times(kind: pa.DataType) -> bool:
    """Whether `checked_times` knows such a column."""
    return bool(pa.types.is_timestamp(kind) or pa.types.is_integer(kind))


def gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in batches worth a call: small ones, as from a producer that flushes often, become one.

    >>> [batch.num_rows for batch in gathered(pa.record_batch({"x": [i, i]}) for i in range(25_000))]
    [20000, 20000, 10000]
    """
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        held.append(batch)
        count += batch.num_rows
        if count >= BATCH_SIZE:
            yield held[0] if len(held) == 1 else pa.concat_batches(held)
            held, count = [], 0
    if held:
        yield held[0] if len(held) == 1 else pa.concat_batches(held)


@dataclass(frozen=True)
class FromJson:
    """Reads values that are JSON as Python objects."""

    label: str

    def bundles(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Bundle]:
        for batch in batches:
            for at in range(0, batch.num_rows, BUNDLE_SIZE):
                part = batch.slice(at, BUNDLE_SIZE)
                yield Bundle(self._read(part.column(VALUE)), np.asarray(part.column(TIME)))

    def _read(self, values: pa.Array) -> list[Any]:
        # Nearly all are UTF-8, which json.loads would find out of each; of others, and of what is wrong, it tells more.
        with suppress(Exception):
            return list(map(parse_json, values.cast(pa.string()).to_pylist()))
        texts = values.to_pylist()
        cursor = iter(texts)
        with blame(self.label, texts, cursor):
            return list(map(json.loads, cursor))


def _column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    """A column of the values; of a wider type than the topic's, if that is asked for."""
    values = batch.column(VALUE)
    if not pa.types.is_struct(values.type):
        return values
    index = values.type.get_field_index(field.name)
    column = values.flatten()[index] if values.null_count else values.field(index)
    return column if column.type == field.type else column.cast(field.type)
