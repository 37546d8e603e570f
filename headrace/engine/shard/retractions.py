"""Panes that windows have emitted and would have to retract, as columns by slot.

A window has its last pane here; a merged window, those of all its parts. Used with accumulation="retracting" only.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.engine.columns.bytecolumn import ByteColumn
from headrace.engine.columns.cells import decode_cells, encode_cells
from headrace.engine.shard.stateblocks import one_array
from headrace.model.times import Int64Array

# A pane, but for its key and its value, as numbers.
PANE_FIELDS: Final = np.dtype(
    [
        ("start", "<i8"),
        ("end", "<i8"),
        ("time", "<i8"),
        ("timing", "<i8"),
        ("index", "<i8"),
        ("on_time_index", "<i8"),
        ("is_last", "<i8"),
    ]
)
PaneArray = npt.NDArray[np.void]
Entry: TypeAlias = tuple[tuple[int, ...], bytes]
"""A pane and its cell."""


class EmittedPanes:
    """The panes to retract. Most windows have one; `more` has the others of merged windows.

    >>> emitted = EmittedPanes()
    >>> emitted.reserve(1)
    >>> emitted.replace(np.array([0]), np.zeros(1, PANE_FIELDS), encode_cells([5]))
    >>> owner, panes, cells = emitted.of(np.array([0]))
    >>> owner.tolist(), decode_cells(cells)
    ([0], [5])
    """

    def __init__(self) -> None:
        self._pane: PaneArray = np.zeros(0, PANE_FIELDS)
        self._cell = ByteColumn()  # null where there is no pane
        self._more: dict[int, list[Entry]] = {}

    def reserve(self, slots: int) -> None:
        more = max(slots - len(self._pane), 0)
        self._pane = np.concatenate([self._pane, np.zeros(more, PANE_FIELDS)])
        self._cell.reserve(slots)

    def replace(self, slots: Int64Array, panes: PaneArray, cells: pa.BinaryArray) -> None:
        """Sets the panes that slots would retract."""
        self.clear(slots)
        self._pane[slots] = panes
        self._cell.put(slots, cells)

    def clear(self, slots: Int64Array) -> None:
        self._pane[slots] = np.zeros((), PANE_FIELDS)
        self._cell.clear(slots)
        if self._more:
            for slot in slots.tolist():
                self._more.pop(slot, None)

    def merge(self, slots: Int64Array, starts: Int64Array) -> None:
        """Merges runs of slots: the first slot of each run gets the panes of all."""
        every, entries = slots.tolist(), self._entries(slots)
        for first, last in pairwise([*starts.tolist(), len(every)]):
            merged = [entry for of_slot in entries[first:last] for entry in of_slot]
            if last - first > 1 and merged:
                (pane, cell), *rest = merged
                self.replace(slots[first : first + 1], np.array([pane], PANE_FIELDS), pa.array([cell], pa.binary()))
                if rest:
                    self._more[every[first]] = rest

    def of(self, slots: Int64Array) -> tuple[Int64Array, PaneArray, pa.BinaryArray]:
        """Returns the panes to retract: the position of each pane's owner in `slots`, the panes and their cells."""
        cells = self._cell.take(slots)
        owner = np.flatnonzero(np.asarray(cells.is_valid()))
        panes, cells = self._pane[slots[owner]], cells.drop_null()
        merged = (
            [(i, entry) for i, slot in enumerate(slots.tolist()) for entry in self._more.get(slot, ())]
            if self._more
            else []
        )
        if merged:
            owner = np.concatenate([owner, [i for i, _ in merged]])
            panes = np.concatenate([panes, np.array([pane for _, (pane, _) in merged], PANE_FIELDS)])
            cells = pa.concat_arrays([cells, pa.array([cell for _, (_, cell) in merged], pa.binary())])
            order = np.lexsort((panes["end"], panes["start"], owner))
            owner, panes, cells = owner[order], panes[order], cells.take(pa.array(order))
        return owner, panes, cells

    def columns(self, slots: Int64Array) -> dict[str, pa.Array]:
        """Returns columns of these slots, to be stored."""
        panes = pa.py_buffer(np.ascontiguousarray(self._pane[slots]))
        more = [self._more.get(slot) for slot in slots.tolist()] if self._more else []
        return {
            "emitted": self._cell.take(slots),
            "emitted_pane": pa.Array.from_buffers(pa.binary(PANE_FIELDS.itemsize), len(slots), [None, panes]),
            "emitted_more": encode_cells(more) if any(more) else pa.nulls(len(slots), pa.binary()),
        }

    def load(self, slots: Int64Array, rows: pa.Table) -> None:
        """Restores what `columns` returned."""
        panes = one_array(rows, "emitted_pane")
        numbers = np.frombuffer(panes.buffers()[1], PANE_FIELDS)[panes.offset : panes.offset + len(panes)]
        self.replace(slots, numbers, one_array(rows, "emitted"))
        more = one_array(rows, "emitted_more")
        having = slots[np.asarray(more.is_valid())].tolist()  # blocks of windows with one pane at most have nulls
        self._more |= {
            slot: entries for slot, entries in zip(having, decode_cells(more.drop_null()), strict=True) if entries
        }

    def _entries(self, slots: Int64Array) -> list[list[Entry]]:
        panes, cells = self._pane[slots].tolist(), self._cell.take(slots).to_pylist()
        return [
            [] if cell is None else [(pane, cell), *self._more.get(slot, ())]
            for slot, pane, cell in zip(slots.tolist(), panes, cells, strict=True)
        ]
