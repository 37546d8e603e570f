"""Reads a source in a stream's own program, from ranges of a topic or of files: records never pass through the JVM.

This is possible where the program can compute all columns (`engine/stream/columnsteps.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from headrace.engine.connectors.directread import RangeReader
from headrace.engine.connectors.fromrecords import FromJson
from headrace.engine.plan.taps import Reading
from headrace.engine.shard.clocks import WHOLE
from headrace.engine.stream.programs import FromSource
from headrace.engine.worker.blame import blame
from headrace.engine.worker.bundles import Bundle
from headrace.engine.worker.columnbundles import ColumnBundle, ColumnReader
from headrace.engine.worker.computedcolumns import ColumnStep, ComputingReader
from headrace.engine.worker.hidden import BAD, LOW, NOW
from headrace.engine.worker.program import Counters, Head


def head_of(reading: Reading, label: str, steps: tuple[ColumnStep, ...]) -> Head:
    """Returns the head of a program that reads a collection of a source directly, perhaps in other windows."""
    if not reading.pc.has_columns:
        return FromJson(label)
    reader = ColumnReader(reading.pc.schema, reading.window_operators())
    return ComputingReader(steps, reader) if steps else reader


@dataclass
class FromRanges(FromSource):
    """Reads the records of ranges, and observes the watermark of each partition. What it reads, it counts."""

    label: str = field(kw_only=True)
    records: RangeReader = field(kw_only=True)
    count: int = 0

    def bundles(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, Bundle | ColumnBundle]]:
        self._begin()
        for ranges in batches:
            now = pc.max(ranges.column(NOW)).as_py()
            for partition, rows in self._read(ranges):
                if LOW in rows.schema.names:  # what a writer says, which other policies do not follow
                    if self.watermarks == "written":
                        self._observe(rows, partition or WHOLE, now)
                elif rows.num_rows:
                    self.count += rows.num_rows
                    self.clocks.observe(self.name, None, now)
                    self._observe(rows, WHOLE if partition is None else partition, now)
                    yield from self._bundles(rows, [_good(rows)] * len(self.rows))
        self._finish()

    def _read(self, ranges: pa.RecordBatch) -> Iterator[tuple[str | None, pa.RecordBatch]]:
        with blame(self.label):
            yield from self.records.read_ranges(ranges)

    def count_records(self, counters: Counters) -> None:
        if self.letters is None:
            counters.add_records(Counter({self.label: self.count}))
        super().count_records(counters)


def _good(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Returns the rows that are elements."""
    if BAD not in rows.schema.names:
        return rows
    bad, elements = rows.column(BAD), rows.drop_columns([BAD])
    return elements if bad.null_count == len(bad) else elements.filter(bad.is_null())
