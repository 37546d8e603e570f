"""Retractions: the panes windows have emitted and would have to take back, as columns by slot.

A window remembers its last pane; a merged one those of all its parts. Kept only where panes retract.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.engine.cells import decode_cells, encode_cells
from headrace.model.times import Int64Array

# What a pane says besides its key and its value, as numbers.
PANE: Final = np.dtype(
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


class Emitted:
    """The panes to be taken back. Most windows have one; `more` holds what merging brought together.

    >>> emitted = Emitted()
    >>> emitted.reserve(1)
    >>> emitted.replace(np.array([0]), np.zeros(1, PANE), encode_cells([5]))
    >>> owner, panes, cells = emitted.of(np.array([0]))
    >>> owner.tolist(), decode_cells(cells)
    ([0], [5])
    """

    def __init__(self) -> None:
        self._pane: PaneArray = np.zeros(0, PANE)
        self._cell: npt.NDArray[np.object_] = np.zeros(0, object)  # None where there is no pane
        self._more: dict[int, list[tuple[tuple[int, ...], bytes]]] = {}

    def reserve(self, slots: int) -> None:
        more = max(slots - len(self._pane), 0)
        self._pane = np.concatenate([self._pane, np.zeros(more, PANE)])
        self._cell = np.concatenate([self._cell, np.full(more, None, object)])

    def replace(self, slots: Int64Array, panes: PaneArray, cells: pa.BinaryArray) -> None:
        """These panes are now what the slots would take back."""
        self.clear(slots)
        self._pane[slots] = panes
        self._cell[slots] = np.array(cells.to_pylist(), object)

    def clear(self, slots: Int64Array) -> None:
        self._cell[slots] = None
        if self._more:
            for slot in slots.tolist():
                self._more.pop(slot, None)

    def merge(self, target: int, others: list[int]) -> None:
        """What the other slots would take back, `target` does from now on."""
        self._put(target, [entry for slot in (target, *others) for entry in self._entries(slot)])

    def of(self, slots: Int64Array) -> tuple[Int64Array, PaneArray, pa.BinaryArray]:
        """What the slots take back: the position in `slots` of each pane's owner, the panes and their cells."""
        owner = np.flatnonzero(self._cell[slots] != np.array(None))
        panes, cells = self._pane[slots[owner]], self._cell[slots[owner]].tolist()
        merged = (
            [(i, entry) for i, slot in enumerate(slots.tolist()) for entry in self._more.get(slot, ())]
            if self._more
            else []
        )
        if merged:
            owner = np.concatenate([owner, [i for i, _ in merged]])
            panes = np.concatenate([panes, np.array([pane for _, (pane, _) in merged], PANE)])
            cells += [cell for _, (_, cell) in merged]
            order = np.lexsort((panes["end"], panes["start"], owner))
            owner, panes, cells = owner[order], panes[order], [cells[i] for i in order.tolist()]
        return owner, panes, pa.array(cells, pa.binary())

    def dump(self, slots: Int64Array) -> pa.BinaryArray:
        return encode_cells([self._entries(slot) for slot in slots.tolist()])

    def load(self, slots: Int64Array, cells: pa.BinaryArray) -> None:
        for slot, entries in zip(slots.tolist(), decode_cells(cells), strict=True):
            self._put(slot, entries)

    def _entries(self, slot: int) -> list[tuple[Any, bytes]]:
        if self._cell[slot] is None:
            return []
        return [(self._pane[slot].item(), self._cell[slot]), *self._more.get(slot, ())]

    def _put(self, slot: int, entries: list[tuple[Any, bytes]]) -> None:
        self._more.pop(slot, None)
        self._cell[slot] = None
        if entries:
            self._pane[slot], self._cell[slot] = entries[0]
            if len(entries) > 1:
                self._more[slot] = entries[1:]
