"""Programs before and after the column segments of a stream, and the Catalyst transforms between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import astuple, dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace.engine.catalyst import relational
from headrace.engine.catalyst.skippedrows import skips_failures, with_rejected
from headrace.engine.plan.columnsegments import BODY, DEST, Segment
from headrace.engine.shard.rows import pane_of
from headrace.engine.shard.wire import pack, unpack
from headrace.engine.stream.programs import LevelProgram
from headrace.engine.worker.bundles import Bundle
from headrace.engine.worker.columnbundles import PANE_COLUMNS, TIMINGS, ColumnBundle
from headrace.engine.worker.hidden import REJECTED
from headrace.engine.worker.program import Program, Readers
from headrace.engine.worker.rejectedrows import RejectedRows
from headrace.model.panes import NO_PANE
from headrace.model.pipeline import Node
from headrace.model.schema import Schema
from headrace.model.watermarks import WatermarkPolicy


@dataclass
class SegmentOpener:
    """Runs a program, and lays out what it sends to the segments behind it as columns; callable by mapInArrow."""

    program: Program
    columns: dict[int, pa.Schema]
    names: dict[int, str]

    def schema(self) -> pa.Schema:
        structs = [(self.names[dest], pa.struct(list(schema))) for dest, schema in self.columns.items()]
        return pa.schema([(DEST, pa.int64()), (BODY, pa.binary()), *structs])

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        segments = pa.array(self.columns, pa.int64())
        for batch in self.program(batches):
            for_segments = pc.is_in(batch.column("dest"), segments)
            passing = batch.filter(pc.invert(for_segments))
            if passing.num_rows:
                yield self._laid_out(passing.column("dest"), passing.column("body"))
            opened = batch.filter(for_segments)
            for dest, body in zip(opened.column("dest").to_pylist(), opened.column("body").to_pylist(), strict=True):
                yield from self._opened(dest, body)

    def _opened(self, dest: int, body: bytes) -> Iterator[pa.RecordBatch]:
        header, rows = unpack(body)
        yield self._laid_out(pa.array([dest], pa.int64()), pa.array([pack(header)], pa.binary()))
        count = rows.num_rows
        struct = pa.StructArray.from_arrays(rows.columns, fields=list(self.columns[dest]))
        yield self._laid_out(pa.array(np.full(count, dest)), pa.nulls(count, pa.binary()), dest, struct)

    def _laid_out(
        self, dests: pa.Array, bodies: pa.Array, segment: int | None = None, struct: pa.Array | None = None
    ) -> pa.RecordBatch:
        schema = self.schema()
        columns = [
            struct if dest == segment else pa.nulls(len(dests), schema.field(self.names[dest]).type)
            for dest in self.columns
        ]
        return pa.record_batch([dests, bodies, *columns], schema=schema)


def opening(program: Program, segments: Iterable[Segment]) -> SegmentOpener:
    """Wraps a program, with the segments right behind it."""
    each = list(segments)
    columns = {segment.dest: segment.output.schema() for segment in each}
    return SegmentOpener(program, columns, {segment.dest: segment.column for segment in each})


def transformed(
    segments: Iterable[Segment], data: DataFrame, table_of: Callable[[Node], DataFrame | None]
) -> DataFrame:
    """Applies the transforms of these segments to a frame; each sees its own rows only.

    `table_of` gives the table that a node joins with, if it is a join.
    """
    segments = list(segments)
    skipping = any(skips_failures(node) for segment in segments for node in segment.nodes)
    data = with_rejected(data) if skipping else data
    for segment in segments:
        carried = tuple(name for name in data.columns if name != segment.column)
        condition = (F.col(DEST) == segment.dest) & F.col(BODY).isNull()
        if skipping:  # a row that one transform failed on is none for the next
            condition &= F.col(REJECTED).isNull()
        rows = data.select(*carried, f"{segment.column}.*")
        for node in segment.nodes:
            rows = relational.apply(node, rows, table_of(node), subset=relational.RowSubset(condition, carried))
        own = [F.col(f"`{name}`") for name in rows.columns if name not in carried]
        data = rows.select(*carried, F.struct(*own).alias(segment.column))
    return data


@dataclass(frozen=True)
class SegmentExit:
    """The exit of a segment, where its rows enter Python again: its column, schema and readers."""

    column: str
    schema: Schema | None
    readers: Readers


_NOTHING: Final[dict[str, Any]] = {}


@dataclass
class SegmentProgram(LevelProgram):
    """Callable by mapInArrow over the output of segments; rows for other destinations pass."""

    leaving: dict[int, SegmentExit] = field(kw_only=True)
    policies: dict[str, WatermarkPolicy] = field(kw_only=True)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        self._rejected = RejectedRows()
        yield from super().__call__(batches)
        if self.counters is not None:
            self._rejected.count(self.counters)
        if self._clocks.skewed and self.counters is not None:
            self.counters.add(Counter({(name, "skewed"): self._clocks.skewed for name in self._clocks.followed}))

    def _entries(self) -> Iterable[Readers]:
        return [leaving.readers for leaving in self.leaving.values()]

    def _entering(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[Bundle | ColumnBundle, Readers]]:
        header = _NOTHING
        for batch in batches:
            batch = self._without_rejected(batch)
            dests, bodies = batch.column(DEST).to_pylist(), batch.column(BODY)
            in_flight = np.flatnonzero(np.asarray(bodies.is_valid())).tolist()
            begin = 0
            for end in [*in_flight, batch.num_rows]:
                if begin < end:
                    leaving = self.leaving[dests[begin]]
                    rows = pa.RecordBatch.from_struct_array(batch.column(leaving.column).slice(begin, end - begin))
                    yield ColumnBundle(rows, leaving.schema, _panes(header, rows.num_rows)), leaving.readers
                if end < batch.num_rows:
                    body = bodies[end].as_py()
                    if dests[end] in self.leaving:
                        header, _ = unpack(body)
                        self._follow(header["followed"])
                    else:
                        self._passing.append((dests[end], body))
                begin = end + 1

    def _without_rejected(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the rows of a batch that no transform failed on; counts the others."""
        if REJECTED not in batch.schema.names:
            return batch
        fine = batch.column(REJECTED).is_null()
        rest = self._rejected.read(batch)
        return rest if pc.all(fine).as_py() is not False else rest.filter(fine)

    def _follow(self, names: list[str]) -> None:
        """Notes that the watermarks of these sources follow the times of rows that come this way."""
        for name in names:
            self._clocks.followed[name] = self.policies[name]
            self._clocks.observe(name, None, None)


def _panes(header: dict[str, Any], rows: int) -> pa.RecordBatch | None:
    """Returns the pane of a header as columns of so many rows; None if the rows are in no pane."""
    pane = pane_of(header["pane"])
    if pane == NO_PANE and not header["retraction"]:
        return None
    _, *numbers = astuple(pane)
    kind = (header["retraction"], TIMINGS.index(pane.timing), *numbers)
    columns = [pa.array(np.full(rows, value)) for value in kind]
    return pa.record_batch(columns, names=list(PANE_COLUMNS))


def after(segments: list[Segment], policies: dict[str, WatermarkPolicy]) -> SegmentProgram:
    """Makes the program behind these segments of one station. `policies` are those of the sources."""
    leaving = {each.dest: SegmentExit(each.column, each.leaves.schema, each.readers) for each in segments}
    station = segments[0].station
    return SegmentProgram(station=station, entries={}, leaving=leaving, policies=policies)
