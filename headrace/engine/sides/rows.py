"""Outputs that send elements of a main input and of side inputs to the shards where they meet, as rows with roles.

The main input is spread over the shards; every shard gets all of a side input. The watermarks of a side input are rows,
too: the output watermark of the shards does not wait for them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.engine.columns.cells import encode_cells
from headrace.engine.shard.reports import ClockReport
from headrace.engine.shard.rows import PANE, pane_text
from headrace.engine.shard.senders import ToShards
from headrace.engine.shard.slots import shards_of
from headrace.engine.shard.windowbounds import global_bounds
from headrace.engine.shard.wire import wire
from headrace.engine.worker.bundles import BufferedOutput, Bundle
from headrace.engine.worker.columnbundles import RETRACTION
from headrace.engine.worker.hidden import END, START, TIME
from headrace.engine.worker.shuffle import KEY, VALUE
from headrace.model.times import Int64Array

ROLE: Final = "role"
MAIN: Final = 0

ROWS: Final = pa.schema(
    [
        (ROLE, pa.int16()),
        (KEY, pa.binary()),
        (START, pa.int64()),
        (END, pa.int64()),
        (TIME, pa.int64()),
        (VALUE, pa.binary()),
        (PANE, pa.string()),
        (RETRACTION, pa.bool_()),
    ]
)
"""Rows of the main input, which is role 0, and of the side inputs from 1. A row without a value is a watermark.

What a step emits has this schema, too: elements of the main input, and the contents of each side window they see.
"""


@dataclass
class ToRole(BufferedOutput):
    """Encodes elements as rows of a role."""

    role: int

    def schema(self) -> pa.Schema:
        return ROWS

    def batch(self, bundle: Bundle) -> pa.RecordBatch:
        count, pane = len(bundle.elements), bundle.pane
        start, end = global_bounds(count) if bundle.starts is None else (bundle.starts, bundle.ends)
        described = pane_text(pane)
        columns = [
            np.full(count, self.role, np.int16),
            pa.nulls(count, pa.binary()),
            start,
            end,
            bundle.all_times(),
            encode_cells(bundle.elements),
            [described if self.role == MAIN else None] * count,
            np.full(count, bundle.retraction),
        ]
        return pa.record_batch([pa.array(column, kind) for column, kind in zip(columns, ROWS.types, strict=True)], ROWS)


@dataclass
class ToSpread(ToShards):
    """Spreads the elements of the main input over the shards, in the same way in every replay."""

    def _shards(self, rows: pa.RecordBatch) -> Int64Array:
        times = np.asarray(rows.column(TIME)).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(40)
        shards = len(self.dests)
        return (shards_of(rows.column(VALUE), shards, by_slot=self.by_slot) + times.astype(np.int64)) % shards


@dataclass
class ToKeyedRole(ToRole):
    """Encodes pairs as rows of a role, with their keys, which are bytes."""

    def batch(self, bundle: Bundle) -> pa.RecordBatch:
        rows = super().batch(bundle)
        keys = pa.array([key for key, _ in bundle.elements], pa.binary())
        return rows.set_column(ROWS.get_field_index(KEY), ROWS.field(KEY), keys)


@dataclass
class ToEveryShard(ToShards):
    """Sends every shard all elements of a side input, and its clocks."""

    def finish(self) -> Iterator[pa.RecordBatch]:
        self.buffer += self.rows.finish()
        report = self._report()
        if report.lows or self.buffer:
            assert isinstance(self.rows, ToRole)
            self.buffer.append(clock_rows(self.rows.role, report))
            yield wire([(dest, self._body(rows)) for dest, rows in self._by_shard()])

    def _by_shard(self) -> Iterator[tuple[int, pa.RecordBatch | None]]:
        rows = pa.concat_batches(self.buffer)
        self.buffer = []
        return ((dest, rows) for dest in self.dests)


def clock_rows(role: int, report: ClockReport) -> pa.RecordBatch:
    """Encodes a report of a side input's clocks as rows. Sketches of disorder take the place of panes."""
    rows: list[tuple[str, str, int | None, str | None]]
    rows = [(name, partition, low, None) for name, partition, low in report.watermarks()]
    rows += [(name, partition, None, json.dumps(sketch)) for name, partition, sketch in report.sketches()]
    count = len(rows)
    return pa.record_batch(
        {
            **{name: pa.nulls(count, ROWS.field(name).type) for name in ROWS.names},
            ROLE: pa.array([role] * count, pa.int16()),
            KEY: pa.array([json.dumps([name, part]).encode() for name, part, _, _ in rows], pa.binary()),
            TIME: pa.array([low for _, _, low, _ in rows], pa.int64()),
            PANE: pa.array([disorder for _, _, _, disorder in rows], pa.string()),
        },
        schema=ROWS,
    )


def content_rows(contents: Sequence[tuple[int, int, int, bytes]]) -> pa.RecordBatch:
    """Encodes contents of side inputs as rows: the role, the window, and a cell with the list of its elements."""
    columns = dict(zip((ROLE, START, END, VALUE), zip(*contents, strict=True) if contents else ((),) * 4, strict=True))
    arrays = [
        pa.array(columns[name], kind) if name in columns else pa.nulls(len(contents), kind)
        for name, kind in zip(ROWS.names, ROWS.types, strict=True)
    ]
    return pa.record_batch(arrays, ROWS)
