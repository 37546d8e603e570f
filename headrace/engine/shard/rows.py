"""Outputs that turn pairs into the rows of a shard: a row for each pair, or accumulators with their counts.

Unlike the rows of a batch's shuffle they always have times, and may be retractions.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.engine.aggregation.arrayaccumulators import encode_accumulators
from headrace.engine.columns.cells import encode_cells
from headrace.engine.shard.localsessions import no_details
from headrace.engine.shard.placing import COUNT
from headrace.engine.worker.bundles import Bundle
from headrace.engine.worker.columnbundles import RETRACTION
from headrace.engine.worker.hidden import END, TIME
from headrace.engine.worker.shuffle import ToAccumulators, ToRows, shuffle_schema
from headrace.model.algebra import CombineFn
from headrace.model.panes import PaneInfo, Windowing
from headrace.model.windows import GLOBAL_WINDOW, CountWindows, Sessions

PANE: Final = "pane"
"""The column of the pane that a row came in."""
ELEMENT: Final = "element"
"""The column of the whole element that a row was made of, as a cell, for groupings with a late output."""


def has_bounds(windowing: Windowing) -> bool:
    """Returns whether rows have the bounds of their windows; otherwise the processor knows them."""
    return not windowing.is_global and not isinstance(windowing.window, CountWindows)


def to_pairs(
    label: str, windowing: Windowing, *, retractable: bool, panes: bool = False, elements: bool = False
) -> ToPairs:
    """Makes the output that sends each pair as a row; with `panes` and `elements`, rows have PANE and ELEMENT."""
    return ToPairs(label, shuffle_schema(windowed=has_bounds(windowing), timed=True), retractable, panes, elements)


def pane_text(pane: PaneInfo) -> str:
    """Encodes a pane as JSON, for columns and headers.

    >>> pane_text(PaneInfo("late", 3, 1, False, True)), pane_of('["late", 3, 1, false, true]').index
    ('["late", 3, 1, false, true]', 3)
    """
    return json.dumps([pane.timing, pane.index, pane.on_time_index, pane.is_first, pane.is_last])


def pane_of(text: str | bytes) -> PaneInfo:
    """Decodes what `pane_text` returned."""
    return PaneInfo(*json.loads(text))


def panes_of(column: pa.BinaryArray) -> list[PaneInfo]:
    """Decodes the column PANE of rows."""
    encoded = column.dictionary_encode()
    distinct = list(map(pane_of, encoded.dictionary.to_pylist()))
    return [distinct[code] for code in encoded.indices.to_pylist()]


def to_partials(label: str, windowing: Windowing, fn: CombineFn[Any, Any, Any]) -> ToPartials:
    """Makes the output that combines pairs before it sends them."""
    sessions = isinstance(windowing.window, Sessions)
    return ToPartials(label, fn, shuffle_schema(windowed=has_bounds(windowing), timed=False), sessions=sessions)


@dataclass
class ToPairs(ToRows):
    """Sends each pair as a row; with `elements`, values of pairs are (value, element)."""

    retractable: bool
    panes: bool = False
    elements: bool = False

    def batch(self, bundle: Bundle) -> pa.RecordBatch:
        if self.elements:
            cells = encode_cells([element for _, (_, element) in bundle.elements])
            bundle = bundle.with_elements([(key, value) for key, (value, _) in bundle.elements])
            return super().batch(bundle).append_column(ELEMENT, cells)
        rows = super().batch(bundle)
        if self.retractable:
            rows = rows.append_column(RETRACTION, pa.array(np.full(rows.num_rows, bundle.retraction)))
        if self.panes:
            pane = pa.scalar(pane_text(bundle.pane).encode(), pa.binary())
            rows = rows.append_column(PANE, pa.repeat(pane, rows.num_rows))
        return rows


@dataclass
class ToPartials(ToAccumulators):
    """Sends accumulators of a task's pairs, by key and window, with the number of their elements."""

    counts: Counter[Any] = field(default_factory=Counter)
    sessions: bool = False  # whether rows have SESSION_COLUMNS

    def _combine(self, bundle: Bundle) -> None:
        super()._combine(bundle)
        keys = map(itemgetter(0), bundle.elements)
        if bundle.starts is None or bundle.ends is None:
            self.counts.update(keys)
        else:
            self.counts.update(zip(keys, bundle.starts.tolist(), bundle.ends.tolist(), strict=True))

    def finish(self) -> Iterator[pa.RecordBatch]:
        counts = [self.counts[key] for key in self.by_key]
        self.counts.clear()
        for rows in super().finish():
            rows = rows.append_column(TIME, last_instants(rows)).append_column(COUNT, pa.array(counts, pa.int64()))
            for name, column in no_details(rows.num_rows).items() if self.sessions else ():
                rows = rows.append_column(name, column)
            yield rows

    def encode(self, accs: list[Any]) -> pa.BinaryArray:
        return encode_accumulators(self.fn, accs)


def last_instants(rows: pa.RecordBatch) -> pa.Array:
    """Returns the times of accumulators, which are the last instants of their windows."""
    ends = rows.column(END) if END in rows.schema.names else None
    return pa.array((np.full(rows.num_rows, GLOBAL_WINDOW.end) if ends is None else np.asarray(ends)) - 1)
