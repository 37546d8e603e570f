"""The DataFrame of a tap, which has all collections that are read from a source, and their elements in a worker."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.engine.catalyst import relational
from headrace.engine.catalyst.skippedrows import skips_failures
from headrace.engine.plan.taps import Reading, Tap
from headrace.engine.worker.hidden import BAD, END, LOW, REJECTED, START, TIME
from headrace.model.keyed import WindowInto
from headrace.model.pipeline import Node, PCollection
from headrace.model.times import MIN_TIME


def frame_of(
    tap: Tap,
    opened: DataFrame,
    note: Callable[[PCollection, DataFrame], None],
    table_of: Callable[[Node], DataFrame | None],
    *,
    timed: bool,
) -> DataFrame:
    """Makes the frame of a tap over its opened source. `timed`: the watermark is by the times of its rows.

    `table_of` gives the table that a node joins with, if it is a join.

    Bad rows of the source are no elements and do not move its watermark; they stay, unless another tap sees all.
    """
    if BAD in opened.columns:
        marked = opened.withColumn(LOW, F.when(F.col(BAD).isNotNull(), MIN_TIME).otherwise(F.col(LOW)))
        opened = marked if tap.sees_all else opened.where(F.col(BAD).isNull()).drop(BAD)
    if len(tap.readings) == 1:
        (reading,) = tap.readings
        skipping = any(map(skips_failures, reading.columns))
        return _columns(reading, opened, note, table_of, marking=timed or BAD in opened.columns or skipping)
    clocks = [name for name in opened.columns if name not in (*relational.element_names(opened), LOW)]
    data = opened.select(F.struct(*relational.element_columns(opened), LOW).alias(relational.SHARED), *clocks)
    counted: set[str] = set()  # labels of transforms that skip failures, each of which one of the readings counts
    for number, reading in enumerate(tap.readings):
        branch = data.select(f"{relational.SHARED}.*", *data.columns)
        branch = _columns(reading, branch, note, table_of, marking=True)
        row = F.struct(*relational.element_columns(branch), *[name for name in (START, END) if name in branch.columns])
        others = [name for name in data.columns if name != REJECTED]
        rejected = []
        if REJECTED in branch.columns:
            known = F.col(REJECTED)["label"].isin(*counted) if counted else F.lit(False)
            rejected = [F.when(~known, F.col(REJECTED)).alias(f"{relational.SHARED}{REJECTED}{number}")]
            counted |= {node.label for node in reading.columns if skips_failures(node)}
        data = branch.select(*others, F.when(F.col(LOW).isNull(), row).alias(element_column(number)), *rejected)
    data = data.withColumn(LOW, F.col(f"{relational.SHARED}.{LOW}")).drop(relational.SHARED)
    several = [name for name in data.columns if REJECTED in name]
    if several:  # a column for each would be carried by every row, and nearly all are null
        failed = reduce(Column.__or__, [F.col(name).isNotNull() for name in several])
        data = data.withColumn(REJECTED, F.when(failed, F.array_compact(F.array(*several)))).drop(*several)
    return data


def elements_of(batch: pa.RecordBatch, number: int) -> pa.RecordBatch:
    """Returns the elements of one of several collections, as columns."""
    rows = batch.column(element_column(number))
    time = batch.column(TIME)
    if rows.null_count:
        there = rows.is_valid()
        rows, time = rows.filter(there), time.filter(there)
    names = [rows.type.field(i).name for i in range(rows.type.num_fields)]
    return pa.RecordBatch.from_arrays([*rows.flatten(), time], names=[*names, TIME])


def _columns(
    reading: Reading,
    data: DataFrame,
    note: Callable[[PCollection, DataFrame], None],
    table_of: Callable[[Node], DataFrame | None],
    *,
    marking: bool,
) -> DataFrame:
    for node in reading.columns:
        data = relational.apply(node, data, table_of(node), marking=marking)
        if not isinstance(node.transform, WindowInto):  # which changes no columns, and may stand elsewhere
            note(node.outputs[0], data.select(*relational.element_columns(data)))
    return data


def element_column(number: int) -> str:
    """Returns the name of the column that has the elements of one of several collections."""
    return f"{relational.SHARED}{number}"
