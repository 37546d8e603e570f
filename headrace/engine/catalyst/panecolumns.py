"""Adds the window and the pane of elements to their columns, as files have them."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.engine.catalyst import relational
from headrace.engine.worker.addedcolumns import OPS, AddedColumns, BoundsKind
from headrace.engine.worker.hidden import END, START
from headrace.model.errors import PipelineError
from headrace.model.panes import OP, PANE, TIMING, WINDOW_BOUNDS, PaneInfo
from headrace.model.pipeline import Node
from headrace.model.times import MAX_TIME, MIN_TIME

_INSTANT_TEXT: Final = (
    f"CASE WHEN {{0}} <= {MIN_TIME} THEN '-inf' WHEN {{0}} >= {MAX_TIME} THEN '+inf' ELSE concat(ltrim('+', replace("
    "CAST(timestampadd(MICROSECOND, {0}, TIMESTAMP_NTZ'1970-01-01 00:00:00') AS STRING), ' ', 'T')), 'Z') END"
)
"""The instant of a column of microseconds, as `format_instant` writes it; it does not depend on the session's zone."""


def with_added(node: Node, data: DataFrame, added: AddedColumns, pane: PaneInfo) -> DataFrame:
    """Returns a frame with the columns that a sink adds; in a batch all elements are of one pane, or of none."""
    try:
        names = added.besides(relational.element_names(data)).names
    except PipelineError as error:
        raise PipelineError(f"{node}: {error}") from None
    columns = {
        PANE: F.lit(pane.index).cast("long"),
        TIMING: F.lit(pane.timing),
        OP: F.lit(OPS[0]),
    }
    for name, bound in zip(WINDOW_BOUNDS, (START, END), strict=True):
        if name in names:
            columns[name] = _bound(bound, added.bounds)
    return data.withColumns({name: columns[name] for name in names})


def _bound(name: str, kind: BoundsKind) -> Column:
    if kind == "ordinal":
        return F.col(name)
    return F.timestamp_micros(F.col(name)) if kind == "timestamp" else F.expr(_INSTANT_TEXT.format(name))
