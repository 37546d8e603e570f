"""Columns that sinks of files add to elements: the bounds of windows, the pane, and which are retractions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import pyarrow as pa

from headrace.engine.worker.hidden import END, PANE_INDEX, SIGN, START
from headrace.model.errors import PipelineError
from headrace.model.grouping import in_panes, may_retract
from headrace.model.panes import OP, PANE, TIMING, WINDOW_BOUNDS
from headrace.model.pipeline import Graph, Node
from headrace.model.sinks import WriteFiles, WriteText
from headrace.model.tables import TableSink
from headrace.model.times import Int64Array, format_instant
from headrace.model.windows import CountWindows

if TYPE_CHECKING:
    from headrace.engine.worker.bundles import Bundle
    from headrace.engine.worker.columnbundles import ColumnBundle

BoundsKind = Literal["timestamp", "text", "ordinal"]
OPS: Final = ("insert", "retract")
"""The values of the column `op`: of an element, and of one that takes an earlier one back."""

_TYPES: Final[dict[str, pa.DataType]] = {
    PANE: pa.int64(),
    TIMING: pa.string(),
    OP: pa.string(),
    SIGN: pa.int64(),
    PANE_INDEX: pa.int64(),
}
_BOUNDS_TYPES: Final[dict[BoundsKind, pa.DataType]] = {
    "timestamp": pa.timestamp("us", tz="UTC"),
    "text": pa.string(),
    "ordinal": pa.int64(),
}


@dataclass(frozen=True)
class AddedColumns:
    """The columns that a sink adds, and how it writes bounds: timestamps, ISO 8601 text, or ordinals of count windows.

    >>> from headrace.engine.worker.bundles import Bundle
    >>> bundle = Bundle(["a"], starts=np.array([0]), ends=np.array([60_000_000]))
    >>> AddedColumns(("window_start", "window_end"), "text").texts(bundle)
    [('1970-01-01T00:00:00Z', '1970-01-01T00:01:00Z')]
    """

    names: tuple[str, ...]
    bounds: BoundsKind

    def besides(self, own: Sequence[str]) -> AddedColumns:
        """Returns those that elements have no columns of their own for."""
        names = {name.lower() for name in own}  # Spark does not tell them apart by case
        if OP in self.names and OP in names:
            raise PipelineError(
                f"elements have a column {OP!r}, which marks retractions in files; rename it with Select"
            )
        return replace(self, names=tuple(name for name in self.names if name not in names))

    def fields(self) -> list[pa.Field]:
        return [pa.field(name, _TYPES.get(name, _BOUNDS_TYPES[self.bounds])) for name in self.names]

    def of_elements(self, bundle: Bundle) -> list[pa.Array]:
        """Makes the columns of a bundle of elements, which are all of one pane."""
        size, pane = bundle.size, bundle.pane
        values: dict[str, Callable[[], Any]] = {
            WINDOW_BOUNDS[0]: lambda: self._bounds(bundle.starts),
            WINDOW_BOUNDS[1]: lambda: self._bounds(bundle.ends),
            PANE: lambda: np.full(size, pane.index),
            TIMING: lambda: [pane.timing] * size,
            OP: lambda: [OPS[bundle.retraction]] * size,
            SIGN: lambda: np.full(size, -1 if bundle.retraction else 1),
            PANE_INDEX: lambda: np.full(size, pane.index),
        }
        return [pa.array(values[field.name](), field.type) for field in self.fields()]

    def of_columns(self, bundle: ColumnBundle) -> list[pa.Array]:
        """Makes the columns of a bundle of columns, whose rows may be of several panes."""
        from headrace.engine.worker.columnbundles import RETRACTION, TIMINGS  # which imports ToColumns

        rows, panes = bundle.rows, bundle.panes

        def of_pane(name: str, without: int) -> Int64Array:
            return np.full(bundle.size, without) if panes is None else np.asarray(panes.column(name)).astype(np.int64)

        values: dict[str, Callable[[], Any]] = {
            WINDOW_BOUNDS[0]: lambda: self._bounds(np.asarray(rows.column(START))),
            WINDOW_BOUNDS[1]: lambda: self._bounds(np.asarray(rows.column(END))),
            PANE: lambda: of_pane("index", bundle.pane.index),
            TIMING: lambda: np.array(TIMINGS, object)[of_pane("timing", TIMINGS.index(bundle.pane.timing))],
            OP: lambda: np.array(OPS, object)[of_pane(RETRACTION, 0)],
            SIGN: lambda: 1 - 2 * of_pane(RETRACTION, 0),
            PANE_INDEX: lambda: of_pane("index", bundle.pane.index),
        }
        return [pa.array(values[field.name](), field.type) for field in self.fields()]

    def texts(self, bundle: Bundle) -> list[tuple[Any, ...]]:
        """Returns the values for each element of a bundle, by the order of the names."""
        return list(zip(*(column.to_pylist() for column in self.of_elements(bundle)), strict=True))

    def _bounds(self, times: Int64Array | None) -> Any:
        assert times is not None, "only the global window has no bounds"
        if self.bounds != "text":
            return times
        distinct, positions = np.unique(times, return_inverse=True)  # few windows, many elements
        return np.array([format_instant(time) for time in distinct.tolist()], object)[positions]


def added_columns(graph: Graph, node: Node) -> AddedColumns | None:
    """Returns the columns that a sink of files adds to its elements; None if there are none."""
    sink, (pc,) = node.transform, node.inputs
    assert isinstance(sink, WriteFiles)
    windowing = pc.windowing
    names: list[str] = []
    if sink.window or (sink.window is None and not windowing.is_global):
        names += [] if windowing.is_global else WINDOW_BOUNDS
        names += [PANE, TIMING] if in_panes(graph, pc) else []
    if may_retract(graph, pc):
        names.append(OP)
    if not names:
        return None
    ordinals = isinstance(windowing.window, CountWindows)
    added = AddedColumns(tuple(names), "ordinal" if ordinals else "timestamp" if sink.typed else "text")
    if pc.schema is not None and not isinstance(sink, WriteText):
        try:
            added.besides(pc.schema.names)
        except PipelineError as error:
            raise PipelineError(f"{node}: {error}") from None
    return added


def change_columns(graph: Graph, node: Node) -> AddedColumns | None:
    """Returns the hidden columns that say what elements do to the rows of a table; None if all add one."""
    sink, (pc,) = node.transform, node.inputs
    assert isinstance(sink, TableSink)
    names = [SIGN] if may_retract(graph, pc) else []
    names += [PANE_INDEX] if sink.mode == "upsert" and in_panes(graph, pc) else []
    return AddedColumns(tuple(names), "timestamp") if names else None
