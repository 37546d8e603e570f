"""The table of windows a shard holds: a row per key and window, as columns by slot, and how rows are found and merged.

A slot is a place in the columns, used again when its window is gone; nothing outside may depend on which one a window
has. `seq` numbers windows in order of their first element and is never used again.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.engine.accumulators import Accumulators
from headrace.engine.firing import Program
from headrace.engine.retractions import Emitted
from headrace.engine.triggernodes import Mask
from headrace.model.keys import fixed_width
from headrace.model.times import MAX_TIME, Int64Array

NO_HOLD: Final = MAX_TIME
GONE: Final = MAX_TIME + 1  # the end of a free slot: no watermark passes it

NUMBERS: Final = ("start", "end", "deadline", "seq", "count", "fresh", "hold", "index", "on_time_index")
FLAGS: Final = ("finished", "due")


class Table:
    """Rows of windows.

    - start, end: the window's bounds, of time or, for CountWindows, of ordinals
    - deadline: the watermark that ends it
    - count: elements that came, less those taken back; fresh: what came since the last pane
    - hold: the time its next pane would have, or NO_HOLD
    - index, on_time_index: of its next pane, on_time_index counting from the first at or after the deadline
    - finished: its trigger has; due: its on-time pane is, because an element came before the deadline and no pane after
    """

    start: Int64Array
    end: Int64Array
    deadline: Int64Array
    seq: Int64Array
    count: Int64Array
    fresh: Int64Array
    hold: Int64Array
    index: Int64Array
    on_time_index: Int64Array
    finished: Mask
    due: Mask

    def __init__(self, program: Program, values: Accumulators, *, merging: bool, retracting: bool) -> None:
        self.values = values
        self.emitted = Emitted() if retracting else None
        self.merging = merging
        self.held = 0
        self.lost = 0  # elements that waited in windows which merged with finished ones
        self.next_seq = 0
        self.gone: list[int] = []  # sequence numbers of windows gone since the state was last written
        self._program = program
        self._free: list[int] = []
        self._slot_of: dict[bytes, int] = {}
        self._slots_of: dict[bytes, list[int]] = {}
        for name in NUMBERS:
            setattr(self, name, np.zeros(0, np.int64))
        for name in FLAGS:
            setattr(self, name, np.zeros(0, np.bool_))
        self.changed = np.zeros(0, np.bool_)  # since the state was last written
        self.state = program.fresh(0)
        self.key: npt.NDArray[np.object_] = np.zeros(0, object)
        self.spelling: npt.NDArray[np.object_] = np.zeros(0, object)

    def slots(self, *, changed: bool = False) -> Int64Array:
        """All windows held, or those that changed since the state was last written, in order of their first element."""
        held = np.flatnonzero((self.deadline != GONE) & self.changed if changed else self.deadline != GONE)
        return held[np.argsort(self.seq[held])]

    def find(self, names: pa.BinaryArray) -> Int64Array:
        """The slots of windows by name, -1 where there is none."""
        return np.fromiter((self._slot_of.get(name, -1) for name in names.to_pylist()), np.int64, len(names))

    def of_keys(self, keys: list[bytes]) -> tuple[Int64Array, Int64Array]:
        """Of merging windows: the slots of all these keys, and for each the position of its key."""
        found = [(slot, position) for position, key in enumerate(keys) for slot in self._slots_of.get(key, ())]
        slots, positions = np.array(found, np.int64).reshape(-1, 2).T
        return slots, positions

    def open(
        self, keys: pa.BinaryArray, spelling: pa.BinaryArray, start: Int64Array, end: Int64Array, deadline: Int64Array
    ) -> Int64Array:
        """New rows for new windows."""
        if not len(keys):
            return np.zeros(0, np.int64)
        slots = self._take(len(keys))
        self.start[slots], self.end[slots], self.deadline[slots] = start, end, deadline
        self.seq[slots] = np.arange(self.next_seq, self.next_seq + len(slots))
        self.next_seq += len(slots)
        self.hold[slots] = NO_HOLD
        for name in ("count", "fresh", "index", "on_time_index", "finished", "due"):
            getattr(self, name)[slots] = 0
        self.state[:, slots] = self._program.fresh(len(slots))
        self.key[slots] = np.array(keys.to_pylist(), object)
        self.spelling[slots] = np.array(spelling.to_pylist(), object)
        self._register(slots)
        return slots

    def merge(self, slots: Int64Array, starts: Int64Array, *, latest: bool) -> None:
        """Merges runs of slots, each into its first, which also takes over the panes to be taken back."""
        into = slots[starts]
        self.values.merge(slots, starts)
        if self.emitted is not None:
            bounds = [*starts.tolist(), len(slots)]
            for target, first, last in zip(into.tolist(), bounds, bounds[1:], strict=False):
                self.emitted.merge(target, slots[first + 1 : last].tolist())
        for name in ("count", "fresh"):
            getattr(self, name)[into] = np.add.reduceat(getattr(self, name)[slots], starts)
        for name in FLAGS:
            getattr(self, name)[into] = np.logical_or.reduceat(getattr(self, name)[slots], starts)
        hold = self.hold[slots]
        if latest:
            held = np.maximum.reduceat(np.where(hold == NO_HOLD, -NO_HOLD, hold), starts)
            self.hold[into] = np.where(held == -NO_HOLD, NO_HOLD, held)
        else:
            self.hold[into] = np.minimum.reduceat(hold, starts)
        self.state[:, into] = self._program.merged(self.state[:, slots], starts)
        self.close(np.setdiff1d(slots, into))
        # What an open window held when it merged with a finished one goes the way of what still comes.
        joined = into[self.finished[into]]
        self.lost += int(self.fresh[joined].sum())
        self.finish(joined)

    def finish(self, slots: Int64Array) -> None:
        """Their trigger has finished: the windows stay only to refuse what still comes."""
        self.finished[slots] = True
        self.fresh[slots] = 0
        self.hold[slots] = NO_HOLD
        self._clear(slots)

    def close(self, slots: Int64Array) -> None:
        """The windows are gone."""
        if not len(slots):
            return
        if self.merging:
            for key, slot in zip(self.key[slots].tolist(), slots.tolist(), strict=True):
                others = self._slots_of[key]
                others.remove(slot)
                if not others:
                    del self._slots_of[key]
        else:
            for name in self.names(slots).to_pylist():
                del self._slot_of[name]
        self._clear(slots)
        self.deadline[slots] = GONE
        self.hold[slots] = NO_HOLD
        self.state[:, slots] = self._program.fresh(len(slots))
        self.key[slots] = self.spelling[slots] = None
        self.gone += self.seq[slots].tolist()
        self._free += slots.tolist()
        self.held -= len(slots)

    def names(self, slots: Int64Array) -> pa.BinaryArray:
        return names(pa.array(self.key[slots], pa.binary()), self.start[slots], self.end[slots])

    def written(self) -> None:
        """The state was written: nothing has changed since."""
        self.changed[:] = False
        self.gone = []

    def columns(self, slots: Int64Array) -> dict[str, pa.Array]:
        """All there is of these windows, to be stored."""
        columns: dict[str, Any] = {name: getattr(self, name)[slots] for name in (*NUMBERS, *FLAGS)}
        columns |= {f"trigger_{i}": column[slots] for i, column in enumerate(self.state)}
        arrays = {name: pa.array(column) for name, column in columns.items()}
        for name in ("key", "spelling"):
            arrays[name] = pa.array(getattr(self, name)[slots], pa.binary())
        arrays["value"] = self.values.dump(slots)
        if self.emitted is not None:
            arrays["emitted"] = self.emitted.dump(slots)
        return arrays

    def restore(self, rows: pa.Table) -> None:
        """Windows as `columns` gave them, into an empty table."""
        slots = self._take(rows.num_rows)
        for name in (*NUMBERS, *FLAGS, "key", "spelling"):
            getattr(self, name)[slots] = rows.column(name).to_numpy(zero_copy_only=False)
        for i in range(len(self.state)):
            self.state[i, slots] = rows.column(f"trigger_{i}").to_numpy()
        self.values = self.values.load(slots, _one(rows, "value"))
        if self.emitted is not None:
            self.emitted.load(slots, _one(rows, "emitted"))
        self._register(slots)

    def _register(self, slots: Int64Array) -> None:
        self.held += len(slots)
        if not len(slots):
            return
        if self.merging:
            for key, slot in zip(self.key[slots].tolist(), slots.tolist(), strict=True):
                self._slots_of.setdefault(key, []).append(slot)
        else:
            self._slot_of.update(zip(self.names(slots).to_pylist(), slots.tolist(), strict=True))

    def _clear(self, slots: Int64Array) -> None:
        self.values.clear(slots)
        if self.emitted is not None:
            self.emitted.clear(slots)

    def _take(self, count: int) -> Int64Array:
        again, self._free = self._free[:count], self._free[count:]
        used = self.held + len(self._free) + len(again)
        needed = used + count - len(again)
        if needed > len(self.start):
            self._grow(max(needed, 2 * len(self.start)))
        return np.concatenate([np.array(again, np.int64), np.arange(used, needed)])

    def _grow(self, size: int) -> None:
        more = size - len(self.start)
        for name in (*NUMBERS, *FLAGS, "changed"):
            column = getattr(self, name)
            setattr(self, name, np.concatenate([column, np.zeros(more, column.dtype)]))
        self.deadline[-more:] = GONE
        self.hold[-more:] = NO_HOLD
        self.state = np.concatenate([self.state, self._program.fresh(more)], axis=1)
        self.key, self.spelling = (np.concatenate([c, np.full(more, None, object)]) for c in (self.key, self.spelling))
        self.values.reserve(size)
        if self.emitted is not None:
            self.emitted.reserve(size)


def names(keys: pa.BinaryArray, start: Int64Array, end: Int64Array) -> pa.BinaryArray:
    """What windows are found by: the bytes of key and bounds.

    >>> names(pa.array([b"k"]), np.array([0]), np.array([1])).to_pylist()
    [b'k\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00']
    """
    return pc.binary_join_element_wise(keys, fixed_width(b"", start), fixed_width(b"", end), b"")


def runs(codes: Int64Array) -> tuple[Int64Array, Int64Array]:
    """An order that brings rows of the same code together, as they came, and where each run of it starts.

    >>> order, starts = runs(np.array([1, 0, 1]))
    >>> order.tolist(), starts.tolist()
    ([1, 0, 2], [0, 1])
    """
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    new = np.ones(len(codes), np.bool_)
    new[1:] = ordered[1:] != ordered[:-1]
    return order, np.flatnonzero(new)


def _one(rows: pa.Table, name: str) -> pa.BinaryArray:
    return pa.concat_arrays(rows.column(name).chunks) if rows.num_rows else pa.array([], pa.binary())
