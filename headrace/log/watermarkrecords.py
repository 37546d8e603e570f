"""Watermark records: by them the writers of a topic say how far they are, in the topic itself.

A watermark record has no value; its key begins with a mark that no key of a user has, and names the writer and its
watermark. No later record of that writer in the partition is older. Who reads records does not see them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.log.values import HEADERS, KEY, VALUE, WATERMARK_KEY


@dataclass(frozen=True)
class WriterWatermark:
    """The watermark of a writer: no later record of it in the partition is older than this time, in microseconds.

    >>> WriterWatermark.read(WriterWatermark("minutes/out", 60_000_000).key())
    WriterWatermark(writer='minutes/out', watermark=60000000)
    """

    writer: str
    watermark: int

    def key(self) -> bytes:
        """Returns the key of the record."""
        return WATERMARK_KEY + json.dumps([self.watermark, self.writer]).encode()

    @classmethod
    def read(cls, key: bytes) -> WriterWatermark:
        """Reads what `key` returned."""
        watermark, writer = json.loads(key[len(WATERMARK_KEY) :])
        return cls(writer, watermark)


def watermark_record(said: WriterWatermark, schema: pa.Schema) -> pa.RecordBatch:
    """Returns the record by which a writer says how far it is, in the schema of a topic; it has no timestamp."""
    columns = {KEY: pa.array([said.key()], pa.binary()), HEADERS: pa.array([[]], schema.field(HEADERS).type)}
    arrays = [columns.get(field.name, pa.nulls(1, field.type)) for field in schema]
    return pa.record_batch(arrays, schema=schema)


def split_watermarks(batch: pa.RecordBatch) -> tuple[list[tuple[int, pa.RecordBatch]], list[WriterWatermark]]:
    """Splits a batch of a topic into its records and what writers say in it.

    Records are in runs without gaps between their offsets, each with its place in the batch.
    """
    values, keys = batch.column(VALUE), batch.column(KEY)
    if not values.null_count or keys.null_count == len(keys):
        return [(0, batch)], []
    said = np.asarray(pc.starts_with(keys, WATERMARK_KEY).fill_null(False)) & np.asarray(values.is_null())
    places = np.flatnonzero(said).tolist()
    starts, ends = [0, *(place + 1 for place in places)], [*places, batch.num_rows]
    runs = [(start, batch.slice(start, end - start)) for start, end in zip(starts, ends, strict=True) if end > start]
    return runs, [WriterWatermark.read(keys[place].as_py()) for place in places]
