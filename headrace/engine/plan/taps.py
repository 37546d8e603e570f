"""Taps: a source is opened once, and its frame holds, beside the clocks, every collection that is read of it.

One collection is plain columns. Where there are several, each is a struct column, null in rows that are no elements of
it. Rows that only a condition dropped still tell how far the source has come.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace.engine.catalyst import relational
from headrace.engine.plan.translation import operator, step_of
from headrace.engine.worker.bundles import BAD, END, LOW, START, TIME
from headrace.engine.worker.program import Readers
from headrace.model.keyed import WindowInto
from headrace.model.pipeline import Node, PCollection
from headrace.model.times import MIN_TIME
from headrace.model.windows import CountWindows, FixedWindows, GlobalWindows, SlidingWindows


@dataclass(eq=False)
class Reading:
    """A collection that enters Python: transforms of its source's columns that Catalyst does, and who reads it."""

    columns: tuple[Node, ...]
    pc: PCollection
    readers: Readers = field(default_factory=Readers)

    def given_by(self, source: Node) -> Node | None:
        """What gives as many elements as there are rows: its source, or a transform of the columns, before windows."""
        nodes = [source, *self.columns]
        while isinstance(window := nodes[-1].transform, WindowInto):
            if isinstance(window.windowing.window, SlidingWindows):  # rows are of a window each
                return None
            nodes.pop()
        return nodes[-1]


@dataclass(eq=False)
class Tap:
    """Where elements enter: a source, and all that is read of it."""

    name: str
    source: Node
    readings: list[Reading] = field(default_factory=list)
    dead: Readers = field(default_factory=Readers)  # of bad records
    level: ClassVar[int] = 0  # there is no exchange before it

    def names(self) -> tuple[str, ...]:
        """Those whose watermarks it sends on."""
        return (self.name,)

    @property
    def sees_all(self) -> bool:
        """Whether all rows of the source come to it: explode has none for those that are no elements."""
        return all(shareable(reading.columns) for reading in self.readings)


def shareable(columns: tuple[Node, ...]) -> bool:
    """Whether others can be read beside it: Catalyst repeats no rows, or only for windows that Python can assign."""
    windows = columns[_repeating(columns) :]
    return all(isinstance(node.transform, WindowInto) and not _by_key(node.transform) for node in windows)


def separated(reading: Reading) -> Reading:
    """The reading, but windows that would repeat rows are assigned in Python."""
    at = _repeating(reading.columns)
    readers = reading.readers
    for node in reversed(reading.columns[at:]):
        step = step_of(node, operator(node, _no_side))
        step.readers[None] = readers
        readers = Readers([step])
    pc = reading.pc if at == len(reading.columns) else reading.columns[at].inputs[0]
    return Reading(reading.columns[:at], pc, readers)


def frame_of(tap: Tap, opened: DataFrame, note: Callable[[PCollection, DataFrame], None], *, timed: bool) -> DataFrame:
    """The frame of a tap over its opened source. `timed`: the times of its rows are its watermark.

    Bad rows of the source are no elements, tell nothing, and stay, unless another tap sees all.
    """
    if BAD in opened.columns:
        marked = opened.withColumn(LOW, F.when(F.col(BAD).isNotNull(), MIN_TIME).otherwise(F.col(LOW)))
        opened = marked if tap.sees_all else opened.where(F.col(BAD).isNull()).drop(BAD)
    if len(tap.readings) == 1:
        (reading,) = tap.readings
        return _columns(reading, opened, note, marking=timed or BAD in opened.columns)
    clocks = [name for name in opened.columns if name not in (*relational.own(opened), LOW)]
    data = opened.select(F.struct(*relational.columns(opened), LOW).alias(relational.SHARED), *clocks)
    for number, reading in enumerate(tap.readings):
        branch = data.select(f"{relational.SHARED}.*", *data.columns)
        branch = _columns(reading, branch, note, marking=True)
        row = F.struct(*relational.columns(branch), *[name for name in (START, END) if name in branch.columns])
        data = branch.select(*data.columns, F.when(F.col(LOW).isNull(), row).alias(_name(number)))
    return data.withColumn(LOW, F.col(f"{relational.SHARED}.{LOW}")).drop(relational.SHARED)


def elements_of(batch: pa.RecordBatch, number: int) -> pa.RecordBatch:
    """The elements of one of several collections, as columns."""
    rows = batch.column(_name(number))
    time = batch.column(TIME)
    if rows.null_count:
        there = rows.is_valid()
        rows, time = rows.filter(there), time.filter(there)
    names = [rows.type.field(i).name for i in range(rows.type.num_fields)]
    return pa.RecordBatch.from_arrays([*rows.flatten(), time], names=[*names, TIME])


def _columns(
    reading: Reading, data: DataFrame, note: Callable[[PCollection, DataFrame], None], *, marking: bool
) -> DataFrame:
    for node in reading.columns:
        data = relational.apply(node, data, marking=marking)
        note(node.outputs[0], data.select(*relational.columns(data)))
    return data


def _repeating(columns: tuple[Node, ...]) -> int:
    """The first that may make several rows of one: windows that are no plain expression of a row's time, or explode."""
    for number, node in enumerate(columns):
        transform = node.transform
        window = transform.windowing.window if isinstance(transform, WindowInto) else None
        if relational.generates(node) or not isinstance(window, FixedWindows | GlobalWindows | None):
            return number
    return len(columns)


def _by_key(transform: WindowInto) -> bool:
    window = transform.windowing.window
    return window.keyed and not isinstance(window, CountWindows)


def _name(number: int) -> str:
    return f"{relational.SHARED}{number}"


def _no_side(pc: PCollection) -> None:
    raise AssertionError(f"windows have no side inputs: {pc}")
