"""Segments of columns within a stream: Python lays its elements out as columns, for Catalyst, and reads them again.

A stream must not branch, so rows in flight that go elsewhere pass beside the columns:

    Python -> (dest, body, columns of segment 1, of segment 2, ...) -> Catalyst -> Python

A segment's rows have no body. Before them comes a row with one: a header, which says what pane they are of. Nothing
between the two programs reorders rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from headrace.engine.shard.reports import TaskClocks
from headrace.engine.shard.rows import pane_text
from headrace.engine.shard.wire import Station, pack, segment_dest, wire
from headrace.engine.worker.bundles import BufferedOutput, Bundle, ToColumns
from headrace.engine.worker.columnbundles import ColumnBundle, split_panes
from headrace.engine.worker.program import Readers
from headrace.model.panes import NO_PANE, PaneInfo
from headrace.model.pipeline import Node, PCollection

DEST, BODY = "__dest", "__body"
"""The destination and the body of rows in flight, beside columns."""


@dataclass(eq=False)
class Segment:
    """Consecutive column transforms: their input, the readers of their output, and their station in the line."""

    number: int
    station: Station
    nodes: tuple[Node, ...]
    output: ToSegment
    readers: Readers = field(default_factory=Readers)

    @property
    def enters(self) -> PCollection:
        return self.nodes[0].inputs[0]

    @property
    def leaves(self) -> PCollection:
        return self.nodes[-1].outputs[0]

    @property
    def dest(self) -> int:
        return segment_dest(self.number)

    @property
    def column(self) -> str:
        """The name of the struct column that has all columns of the segment."""
        return f"__segment{self.number}"


def segment(number: int, station: Station, nodes: tuple[Node, ...]) -> Segment:
    """Makes the segment of these transforms."""
    entering = nodes[0].inputs[0]
    columns = ToColumns(entering.label, entering.schema, windowed=not entering.windowing.is_global)
    return Segment(number, station, nodes, ToSegment(columns, segment_dest(number)))


@dataclass
class ToSegment(BufferedOutput):
    """Sends elements to a segment."""

    columns: ToColumns
    dest: int
    clocks: TaskClocks = field(default_factory=TaskClocks)  # those of the task, which its program sets

    def schema(self) -> pa.Schema:
        return self.columns.schema()

    def batch(self, bundle: Bundle) -> pa.RecordBatch:
        return self._packed(self.columns.batch(bundle), bundle.pane, retraction=bundle.retraction)

    def add_columns(self, bundle: ColumnBundle) -> Iterator[pa.RecordBatch]:
        """Sends columns as they are."""
        yield from self.finish()
        bundle = bundle.placed()
        by_pane = [(NO_PANE, False, bundle.rows)] if bundle.panes is None else split_panes(bundle.rows, bundle.panes)
        for pane, retraction, rows in by_pane:
            for batch in self.columns.add_columns(ColumnBundle(rows, bundle.schema)):
                yield self._packed(batch, pane, retraction=retraction)

    def _packed(self, rows: pa.RecordBatch, pane: PaneInfo, *, retraction: bool) -> pa.RecordBatch:
        """Packs columns of one pane as rows in flight."""
        header = {
            "pane": pane_text(pane),
            "retraction": retraction,
            "followed": sorted(self.clocks.followed),
        }
        return wire([(self.dest, pack(header, rows))])
