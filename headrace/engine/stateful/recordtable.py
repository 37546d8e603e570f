"""The records of a stateful DoFn's shard: how rows find them, when they end, and how they are stored.

They are in buckets by the hashes of their names, so that a part of them can be stored by itself; those of a window also
by the time at which it ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import repeat
from operator import attrgetter
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.engine.columns.hashing import HASHES, hash_bytes
from headrace.engine.shard.stateblocks import Removals, one_array
from headrace.engine.shard.windowbounds import bounds_of, window_names
from headrace.engine.stateful.calls import Calls
from headrace.engine.stateful.records import Record, dump_states, load_states
from headrace.engine.stateful.timers import NEVER
from headrace.engine.worker.shuffle import KEY, SPELLING
from headrace.model.keys import decode_keys
from headrace.model.times import MAX_TIME
from headrace.model.windows import GLOBAL_WINDOW, Window

_BUCKETS: Final = 256
_WIDTH: Final = HASHES // _BUCKETS
"""The beginning of a bucket counts as the hash of all records in it."""


class RecordTable:
    """Records by name and by deadline."""

    def __init__(self, calls: Calls, *, global_windows: bool) -> None:
        self.held = 0
        self.next_seq = 0
        self._calls, self._global = calls, global_windows
        self._buckets: list[dict[bytes, Record]] = [{} for _ in range(_BUCKETS)]
        self._ends: dict[int, dict[int, Record]] = {}  # those that end with a window, by deadline
        self._deadlines: list[int] = []
        self._stored = 0  # records from this number on were never written
        self._gone: list[Record] = []  # since the state was last written

    def of_rows(self, rows: pa.RecordBatch) -> list[Record]:
        """Returns the record of each row; opens those that do not exist."""
        start, end = bounds_of(rows)
        keys = rows.column(KEY)
        encoded = keys if self._global else window_names(keys, start, end)
        numbers, names, buckets = _bucket_of(encoded), encoded.to_pylist(), self._buckets
        missing = [i for i, name in enumerate(names) if name not in buckets[numbers[i]]]
        if missing:
            at = pa.array(missing)
            spelling = rows.column(SPELLING).take(at)
            new = zip(missing, decode_keys(keys.take(at), spelling), spelling.to_pylist(), strict=True)
            for position, key, spelled in new:
                name, number = names[position], numbers[position]
                if name in buckets[number]:  # opened by a row before
                    continue
                window = GLOBAL_WINDOW if self._global else Window(int(start[position]), int(end[position]))
                record = self._calls.record(key, window, self.next_seq, number, name, spelled)
                self.next_seq += 1
                self._add(record)
                self._calls.changed[record.seq] = record
        return [buckets[number][name] for number, name in zip(numbers, names, strict=True)]

    def first_end(self) -> int:
        """Returns the watermark that ends the next record, NEVER if there is none."""
        return self._deadlines[0] if self._deadlines else MAX_TIME if self.held else NEVER

    def ended(self, watermark: int) -> Iterator[Record]:
        """Yields the records that have ended, by deadline and age; the caller drops each."""
        while self._deadlines and self._deadlines[0] <= watermark:
            yield from [record for _, record in sorted(self._ends[self._deadlines[0]].items())]
            del self._ends[heappop(self._deadlines)]
        if watermark >= MAX_TIME:
            yield from self.between()

    def drop(self, record: Record) -> None:
        """Removes a record with all its timers."""
        record.due[:] = [NEVER] * len(record.due)
        del self._buckets[record.bucket][record.name]
        self.held -= 1
        if record.deadline < MAX_TIME:
            del self._ends[record.deadline][record.seq]
        self._calls.changed.pop(record.seq, None)
        if record.seq < self._stored:
            self._gone.append(record)

    def between(self, low: int = 0, high: int = HASHES) -> list[Record]:
        """Returns the records whose hashes are in a range, by age."""
        buckets = self._buckets[-(-low // _WIDTH) : -(-high // _WIDTH)]
        return sorted((record for bucket in buckets for record in bucket.values()), key=attrgetter("seq"))

    def changed(self) -> list[Record]:
        """Returns the records that changed since the state was last written, by age."""
        return [record for _, record in sorted(self._calls.changed.items())]

    def gone(self) -> Removals:
        """Returns the records that were stored and have been removed."""
        hashes = np.array([record.bucket * _WIDTH for record in self._gone], np.uint64)
        return Removals(np.array([record.seq for record in self._gone], np.int64), hashes)

    def written(self) -> None:
        """Notes that the state was written."""
        self._calls.changed.clear()
        self._gone = []
        self._stored = self.next_seq

    def columns(self, records: list[Record]) -> pa.Table:
        """Returns columns of these records, to be stored."""
        layout, states = self._calls.layout, self._calls.states
        windows = np.array([record.window for record in records], np.int64).reshape(-1, 2)
        columns = {
            "seq": pa.array([record.seq for record in records], pa.int64()),
            "name": pa.array([record.name for record in records], pa.binary()),
            "spelling": pa.array([record.spelling for record in records], pa.binary()),
            "start": pa.array(windows[:, 0]),
            "end": pa.array(windows[:, 1]),
        }
        for index, name in enumerate(layout.names()):
            columns[f"time {name}"] = pa.array([record.due[index] for record in records], pa.int64())
        for index, (spec, handle) in enumerate(zip(layout.states, states, strict=True)):
            columns[f"state {spec.name}"] = dump_states(handle, [record.states[index] for record in records])
        return pa.table(columns)

    def load(self, rows: pa.Table, gone: Removals) -> None:
        """Restores records that `columns` returned, in place of those it has, after removing those that are gone."""
        over = set(gone.seq.tolist())
        for number in np.unique(gone.hashes // np.uint64(_WIDTH)).tolist():
            for record in [record for record in self._buckets[number].values() if record.seq in over]:
                self.drop(record)
        for record in self._loaded(rows) if rows.num_rows else ():
            before = self._buckets[record.bucket].get(record.name)
            if before is not None:
                self.drop(before)
            self._add(record)
            self._calls.note(record)
        self.written()

    def _loaded(self, rows: pa.Table) -> list[Record]:
        layout, states = self._calls.layout, self._calls.states
        encoded, spelling = one_array(rows, "name"), one_array(rows, "spelling")
        names = encoded.to_pylist()
        keys = encoded if self._global else pa.array([name[:-16] for name in names], pa.binary())
        start, end, seq = (one_array(rows, name).to_pylist() for name in ("start", "end", "seq"))
        windows = repeat(GLOBAL_WINDOW, len(names)) if self._global else map(Window, start, end)
        fields = (decode_keys(keys, spelling), windows, seq, _bucket_of(encoded), names, spelling.to_pylist())
        records = list(map(self._calls.record, *fields))
        for index, (spec, handle) in enumerate(zip(layout.states, states, strict=True)):
            contents = load_states(handle, one_array(rows, f"state {spec.name}"))
            for record, content in zip(records, contents, strict=True):
                record.states[index] = content
        for index, name in enumerate(layout.names()):
            for record, time in zip(records, one_array(rows, f"time {name}").to_pylist(), strict=True):
                record.due[index] = time
        return records

    def _add(self, record: Record) -> None:
        self._buckets[record.bucket][record.name] = record
        self.held += 1
        if record.deadline < MAX_TIME:
            if record.deadline not in self._ends:
                self._ends[record.deadline] = {}
                heappush(self._deadlines, record.deadline)
            self._ends[record.deadline][record.seq] = record


def _bucket_of(names: pa.BinaryArray) -> list[int]:
    """Returns the bucket of each name."""
    return (hash_bytes(names) // np.uint64(_WIDTH)).tolist()  # type: ignore[no-any-return]
