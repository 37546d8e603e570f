"""Decides which column transforms of a tap its program computes, on Arrow, and which are Catalyst's.

`column_steps` is the rule: `Select` and `Where` right behind a source, if every expression in them is on the list of
`engine/catalyst/arrowexpressions.py`. Catalyst analyzes them in any case, so that names, types and refusals are its
own. A row that an expression fails on, or may, ends the query, and the stream goes on with Catalyst, which knows.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from headrace.engine.catalyst import arrowexpressions, relational
from headrace.engine.worker.computedcolumns import ColumnStep, SelectStep, WhereStep, needed
from headrace.engine.worker.hidden import TIME
from headrace.model.columns import Select, Where
from headrace.model.pipeline import Node, PCollection

_log: Final = logging.getLogger("headrace.stream")


@dataclass(frozen=True)
class ColumnSteps:
    """Transforms of a source's columns that its program does. `frames` have no rows, and the columns of collections."""

    steps: tuple[ColumnStep, ...]
    reads: set[str] | None  # of the source's columns; None if all
    frames: tuple[tuple[PCollection, DataFrame], ...]
    columns: DataFrame

    @property
    def schema(self) -> pa.Schema:
        """The columns that come out."""
        return to_arrow_schema(self.columns.drop(*relational.HIDDEN).schema, timezone="UTC")


def without_rows(spark: SparkSession, schema: pa.Schema) -> DataFrame:
    """Makes the frame of a source without rows: its columns, and TIME."""
    return spark.createDataFrame([], from_arrow_schema(schema.append(pa.field(TIME, pa.int64()))))


def column_steps(nodes: tuple[Node, ...], frame: DataFrame, wanted: set[str] | None) -> ColumnSteps | None:
    """Translates column transforms of a source with this frame; None if one of them is Catalyst's, and so all are.

    `wanted` are the columns that are read of what comes out; None if all are. Who computes them is logged.
    """
    try:
        steps = _translated(nodes, frame, wanted)
    except arrowexpressions.Untranslated as reason:
        _log.info("columns: %s are computed by Catalyst, since there is no translation: %s", _named(nodes), reason)
        return None
    if nodes:
        _log.info("columns: %s are computed by the program that reads their rows", _named(nodes))
    return steps


def _translated(nodes: tuple[Node, ...], frame: DataFrame, wanted: set[str] | None) -> ColumnSteps:
    frames: list[tuple[PCollection, DataFrame]] = []
    steps: list[ColumnStep] = []
    for node in nodes:
        if not isinstance(node.transform, Select | Where):
            raise arrowexpressions.Untranslated(node.label)
        after = relational.apply(node, frame)
        steps.append(_step(node, frame, after))
        frames.append((node.outputs[0], after))
        frame = after
    if not nodes:
        return ColumnSteps((), wanted, (), frame)
    reads, pruned = needed(tuple(steps), set(frame.columns) if wanted is None else wanted)
    return ColumnSteps(pruned, reads, tuple(frames), frame)


def _step(node: Node, before: DataFrame, after: DataFrame) -> ColumnStep:
    if isinstance(node.transform, Where):
        return WhereStep(arrowexpressions.condition(before, after))
    return SelectStep(tuple(arrowexpressions.selected(before, after).items()))


def _named(nodes: tuple[Node, ...]) -> str:
    return " · ".join(node.label for node in nodes)
