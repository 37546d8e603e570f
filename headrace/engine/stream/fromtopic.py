"""Reads a topic in a stream's own program, from ranges of offsets: records never pass through the JVM.

This is possible where Catalyst has nothing to compute: no Select and no Where, event times that are times or whole
seconds, and no window whose bounds are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from headrace.edges.topicranges import Range
from headrace.engine.connectors.fromrecords import FromJson, Records
from headrace.engine.plan.taps import Reading
from headrace.engine.stream.programs import FromSource
from headrace.engine.worker.blame import blame
from headrace.engine.worker.bundles import Bundle
from headrace.engine.worker.columnbundles import ColumnBundle, ColumnReader
from headrace.engine.worker.hidden import BAD, LOW, NOW, PART
from headrace.engine.worker.program import Head


def head_of(reading: Reading, label: str) -> Head:
    """Returns the head of a program that reads a collection of a topic, perhaps in other windows."""
    if not reading.pc.has_columns:
        return FromJson(label)
    return ColumnReader(reading.pc.schema, reading.window_operators())


@dataclass
class FromTopic(FromSource):
    """Reads the records of ranges of offsets, and observes the watermark of each partition."""

    label: str = field(kw_only=True)
    records: Records = field(kw_only=True)

    def bundles(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, Bundle | ColumnBundle]]:
        return super().bundles(batch for ranges in batches for batch in self._read(ranges))

    def _read(self, ranges: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for row in ranges.to_pylist():
            wanted = [Range(row["partition"], row["first"], row["until"])]
            with blame(self.label):
                for partition, batch in self.records.read(wanted):
                    yield _clocked(batch, row[NOW], str(partition))

    def _elements(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        elements = batch.drop_columns([NOW, LOW, PART])
        if BAD in elements.schema.names:
            bad, elements = elements.column(BAD), elements.drop_columns([BAD])
            elements = elements if bad.null_count == len(bad) else elements.filter(bad.is_null())
        return [elements] * len(self.rows)


def _clocked(batch: pa.RecordBatch, now: int | None, partition: str) -> pa.RecordBatch:
    """Returns a batch with the columns of clocks, which every source has."""
    rows = batch.num_rows
    clocks = {
        NOW: pa.repeat(pa.scalar(now, pa.int64()), rows),
        LOW: pa.nulls(rows, pa.int64()),
        PART: pa.repeat(partition, rows),
    }
    return pa.RecordBatch.from_arrays([*batch.columns, *clocks.values()], names=[*batch.schema.names, *clocks])
