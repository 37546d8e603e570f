"""The table of a shard's windows: a row per key and window, as columns by slot.

A slot is a place in the columns, used again when its window was removed; nothing outside may depend on which slot a
window has. `seq` numbers windows in order of their first element; no number is used twice.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.engine.aggregation.accumulators import Accumulators
from headrace.engine.columns.arrays import distinct
from headrace.engine.columns.bytecolumn import ByteColumn
from headrace.engine.columns.hashing import HASHES, Hashes, hash_bytes, mixed
from headrace.engine.shard.clocks import Clocks
from headrace.engine.shard.compiledtriggers import CompiledTrigger
from headrace.engine.shard.keyslots import KeySlots
from headrace.engine.shard.retractions import EmittedPanes
from headrace.engine.shard.stateblocks import Removals, one_array
from headrace.engine.shard.triggernodes import Mask
from headrace.model.times import MAX_TIME, Int64Array

NO_HOLD: Final = MAX_TIME
GONE: Final = MAX_TIME + 1  # the end of a free slot: no watermark passes it

NUMBERS: Final = ("start", "end", "deadline", "seq", "count", "fresh", "hold", "index", "on_time_index")
FLAGS: Final = ("finished", "due")


class WindowTable:
    """The windows of a shard, by key and bounds.

    - start, end: the window's bounds, of time or, for CountWindows, of ordinals
    - deadline: the watermark that ends it
    - count: elements that came, less those taken back; fresh: what came since the last pane
    - hold: its watermark hold, the time its next pane would have, or NO_HOLD
    - index, on_time_index: of its next pane, on_time_index counting from the first at or after the deadline
    - finished: its trigger has, and it refuses elements; windows that merge are removed then
    - due: its on-time pane is, because an element came before the deadline and no pane after
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

    def __init__(self, program: CompiledTrigger, values: Accumulators, *, merging: bool, retracting: bool) -> None:
        self.values = values
        self.emitted = EmittedPanes() if retracting else None
        self.merging = merging
        self.held = 0
        self.next_seq = 0
        self.used = 0  # slots from here on were never used
        self._program = program
        self._by_key = KeySlots()  # by key and bounds; if windows merge, by key
        self.keys, self.spellings = self._by_key.keys, ByteColumn()
        self._free: list[Int64Array] = []
        self._touched: list[Int64Array] = []  # what has changed since the state was last written,
        self._gone: list[tuple[Int64Array, Hashes]] = []  # and what was removed
        for name in NUMBERS:
            setattr(self, name, np.zeros(0, np.int64))
        for name in FLAGS:
            setattr(self, name, np.zeros(0, np.bool_))
        self.state = program.fresh(0)

    def touch(self, slots: Int64Array) -> None:
        """Notes that these windows change."""
        self._touched.append(slots)

    def slots(self, *, low: int = 0, high: int = HASHES) -> Int64Array:
        """Returns the windows whose hashes are in a range, in order of their first element."""
        there = (self.deadline[: self.used] != GONE) & self._by_key.between(low, high, self.used)
        return self._ordered(np.flatnonzero(there))

    def changed(self) -> Int64Array:
        """Returns the windows that changed since the state was last written, in order of their first element."""
        touched = distinct(_joined(self._touched))
        return self._ordered(touched[self.deadline[touched] != GONE])

    def gone(self) -> Removals:
        """Returns the windows that were closed since the state was last written."""
        seq = _joined([seq for seq, _ in self._gone])
        hashes = np.concatenate([np.zeros(0, np.uint64), *(hashes for _, hashes in self._gone)])
        order = np.argsort(seq)
        return Removals(seq[order], hashes[order])

    def find(self, keys: pa.BinaryArray, start: Int64Array, end: Int64Array) -> Int64Array:
        """Returns the slots of windows that do not merge, -1 where there is none."""
        at, slots = self._by_key.index.pairs(self._hashes(keys, start, end))
        same = (self.start[slots] == start[at]) & (self.end[slots] == end[at])
        at, slots = self._by_key.with_key(keys, at[same], slots[same])
        found = np.full(len(keys), -1, np.int64)
        found[at] = slots
        return found

    def of_keys(self, keys: pa.BinaryArray) -> tuple[Int64Array, Int64Array]:
        """Returns, for merging windows, the slots of all these keys, and for each the position of its key."""
        at, slots = self._by_key.find(keys, self._hashes(keys, self.start, self.end))
        order = np.lexsort((self.seq[slots], at))
        return slots[order], at[order]

    def _hashes(self, keys: pa.BinaryArray, start: Int64Array, end: Int64Array) -> Hashes:
        return mixed(hash_bytes(keys)) if self.merging else mixed(hash_bytes(keys), start, end)

    def open(
        self, keys: pa.BinaryArray, spelling: pa.BinaryArray, start: Int64Array, end: Int64Array, deadline: Int64Array
    ) -> Int64Array:
        """Opens windows; returns their slots."""
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
        self._register(slots, keys, spelling, self._hashes(keys, start, end))
        return slots

    def merge_triggers(self, slots: Int64Array, starts: Int64Array, end: Int64Array, clocks: Clocks) -> None:
        """Sets the trigger state of the first slot of each run, a window that grows or is merged, and its new end."""
        self.state[:, slots[starts]] = self._program.merged(self.state[:, slots], starts, end, clocks)

    def merge(self, slots: Int64Array, starts: Int64Array, *, latest: bool) -> None:
        """Merges runs of slots, all but their triggers, each into its first, which also gets the panes to retract."""
        into = slots[starts]
        self.values.merge(slots, starts)
        if self.emitted is not None:
            self.emitted.merge(slots, starts)
        for name in ("count", "fresh"):
            getattr(self, name)[into] = np.add.reduceat(getattr(self, name)[slots], starts)
        self.due[into] = np.logical_or.reduceat(self.due[slots], starts)
        hold = self.hold[slots]
        if latest:
            latest_hold = np.maximum.reduceat(np.where(hold == NO_HOLD, -NO_HOLD, hold), starts)
            self.hold[into] = np.where(latest_hold == -NO_HOLD, NO_HOLD, latest_hold)
        else:
            self.hold[into] = np.minimum.reduceat(hold, starts)
        self.close(np.setdiff1d(slots, into))

    def finish(self, slots: Int64Array) -> None:
        """Ends windows whose trigger has finished: those that do not merge stay, only to refuse further elements."""
        if self.merging:
            self.close(slots)
            return
        self.finished[slots] = True
        self.fresh[slots] = 0
        self.hold[slots] = NO_HOLD
        self._clear(slots)

    def close(self, slots: Int64Array) -> None:
        """Removes windows."""
        if not len(slots):
            return
        self._gone.append((self.seq[slots], self._by_key.index.hashes[slots]))
        self._by_key.remove(slots)
        self._clear(slots)
        self.deadline[slots] = GONE
        self.hold[slots] = NO_HOLD
        self.state[:, slots] = self._program.fresh(len(slots))
        self.spellings.clear(slots)
        self._free.append(slots)
        self.held -= len(slots)

    def written(self) -> None:
        """Notes that the state was written."""
        self._touched, self._gone = [], []

    def columns(self, slots: Int64Array) -> pa.Table:
        """Returns columns of these windows, to be stored."""
        columns: dict[str, Any] = {name: getattr(self, name)[slots] for name in (*NUMBERS, *FLAGS)}
        columns |= {f"trigger_{i}": column[slots] for i, column in enumerate(self.state)}
        arrays = {name: pa.array(column) for name, column in columns.items()}
        arrays["key"], arrays["spelling"] = self.keys.take(slots), self.spellings.take(slots)
        arrays["value"] = self.values.dump(slots)
        if self.emitted is not None:
            arrays |= self.emitted.columns(slots)
        return pa.table(arrays)

    def load(self, rows: pa.Table, gone: Removals) -> None:
        """Restores windows that `columns` returned, in place of those it has, and removes others."""
        closed = self._by_seq(gone.hashes, gone.seq)
        self.close(closed[closed >= 0])
        if rows.num_rows and self.merging:  # earlier versions kept finished sessions
            rows = rows.filter(pc.invert(rows.column("finished")))
        if rows.num_rows:
            self._load(rows)
        self.written()

    def _load(self, rows: pa.Table) -> None:
        keys, (seq, start, end) = one_array(rows, "key"), (rows.column(n).to_numpy() for n in ("seq", "start", "end"))
        hashes = self._hashes(keys, start, end)
        slots = self._by_seq(hashes, seq)
        new = slots < 0
        slots[new] = opened = self._take(int(np.count_nonzero(new)))
        for name in (*NUMBERS, *FLAGS):
            getattr(self, name)[slots] = rows.column(name).to_numpy()
        for i in range(len(self.state)):
            self.state[i, slots] = rows.column(f"trigger_{i}").to_numpy()
        where = pa.array(new)
        self._register(opened, keys.filter(where), one_array(rows, "spelling").filter(where), hashes[new])
        self.values = self.values.load(slots, one_array(rows, "value"))
        if self.emitted is not None:
            self.emitted.load(slots, rows)

    def _by_seq(self, hashes: Hashes, seq: Int64Array) -> Int64Array:
        """Returns the slots of windows by number, -1 where there is none."""
        found = np.full(len(seq), -1, np.int64)
        if self.held:
            at, slots = self._by_key.index.pairs(hashes)
            same = self.seq[slots] == seq[at]
            found[at[same]] = slots[same]
        return found

    def _register(self, slots: Int64Array, keys: pa.BinaryArray, spelling: pa.BinaryArray, hashes: Hashes) -> None:
        self.held += len(slots)
        self._by_key.put(slots, keys, hashes)
        self.spellings.put(slots, spelling)

    def _ordered(self, slots: Int64Array) -> Int64Array:
        return slots[np.argsort(self.seq[slots])]

    def _clear(self, slots: Int64Array) -> None:
        self.values.clear(slots)
        if self.emitted is not None:
            self.emitted.clear(slots)

    def _take(self, count: int) -> Int64Array:
        """Allocates slots for new windows, free ones first."""
        parts: list[Int64Array] = []
        while count and self._free:
            free = self._free.pop()
            parts.append(free[:count])
            if len(free) > count:
                self._free.append(free[count:])
            count -= len(parts[-1])
        parts.append(np.arange(self.used, self.used + count))
        self.used += count
        if self.used > len(self.start):
            self._grow(max(self.used, 2 * len(self.start)))
        return np.concatenate(parts)

    def _grow(self, size: int) -> None:
        more = size - len(self.start)
        for name in (*NUMBERS, *FLAGS):
            column = getattr(self, name)
            setattr(self, name, np.concatenate([column, np.zeros(more, column.dtype)]))
        self.deadline[-more:] = GONE
        self.hold[-more:] = NO_HOLD
        self.state = np.concatenate([self.state, self._program.fresh(more)], axis=1)
        for part in (self._by_key, self.spellings, self.values, self.emitted):
            if part is not None:
                part.reserve(size)


def _joined(parts: list[Int64Array]) -> Int64Array:
    return np.concatenate([np.zeros(0, np.int64), *parts])
