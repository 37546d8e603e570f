"""Stateful DoFns in a stream: the processor of their shards, and the work that makes such processors.

A step: elements that are not late, in the order of their event times and of arrival; then the timers that are due;
then windows whose lateness is used up close, and states whose time is over are emptied. State is plain Python objects
that stay in memory; what changed is stored once per step, as columns.
"""

from __future__ import annotations

import heapq
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.engine.bundles import END, START, TIME, Bundle, from_block, to_block
from headrace.engine.cells import decode_cells
from headrace.engine.clocks import Clocks, output_watermark
from headrace.engine.keptstate import EMPTY, Record, dump_states, load_states
from headrace.engine.ops import Tagged
from headrace.engine.placing import expired
from headrace.engine.shard import Step
from headrace.engine.shardrows import PANE, panes_of
from headrace.engine.shuffle import KEY, SPELLING, VALUE
from headrace.engine.stateblocks import Gone, State, read_state, write_state
from headrace.engine.stateful import StatefulOp
from headrace.engine.statefulcalls import Calls
from headrace.engine.timers import NEVER
from headrace.model.keys import decode_keys, fixed_width
from headrace.model.panes import NO_PANE
from headrace.model.state import TimerSpec
from headrace.model.times import MAX_TIME, MIN_TIME, Int64Array
from headrace.model.windows import GLOBAL_WINDOW, Window

GIVEN: Final = pa.schema([("tag", pa.string()), ("block", pa.binary())])
"""What a step gives: packed bundles, by tag."""


class StatefulShard:
    """One shard of a stateful DoFn. Rows are those of a shard that groups: KEY, SPELLING, TIME, VALUE, START and END.

    >>> import headrace as hr
    >>> from headrace.engine.ops import Call, WindowOp
    >>> from headrace.engine.shuffle import row_batch, shuffle_schema
    >>> from headrace.model.panes import GLOBAL
    >>> class Number(hr.DoFn):
    ...     seen = hr.CombiningState("seen", sum)
    ...     def process(self, pair, seen=hr.DoFn.StateParam(seen)):
    ...         seen.add(1)
    ...         yield pair, seen.read()
    >>> fn = Number()
    >>> op = StatefulOp("number", Call(fn.process), fn=fn, window=WindowOp("number", GLOBAL.window), windowing=GLOBAL)
    >>> shard = Stateful(op).processor()
    >>> rows = row_batch(shuffle_schema(windowed=False, timed=True), ["k", "k"], [7, 8], Bundle([None] * 2))
    >>> [bundle.elements for _, bundle in Stateful(op).bundles(shard.step(rows).panes)]
    [[(('k', 7), 1), (('k', 8), 2)]]
    """

    def __init__(self, op: StatefulOp) -> None:
        self.op, self.calls = op, Calls(op)
        self.clocks = Clocks()
        self.watermark = MIN_TIME  # of the output
        self.fractions: set[float] = set()
        self.records: dict[bytes, Record] = {}  # in order of seq
        self._ends: dict[int, dict[int, Record]] = {}  # those that end with a window, by deadline
        self._deadlines: list[int] = []
        self._next_seq = self._stored = 0  # records from `_stored` on were never written
        self._gone: list[int] = []

    def step(self, rows: pa.RecordBatch | None = None, clocks: Clocks | None = None) -> Step:
        """Takes rows in, moves the clocks on, and fires timers."""
        before, after = self.clocks, self.clocks.moved(clocks or Clocks())
        self.clocks = after
        late = None
        if rows is not None and rows.num_rows:
            over = expired(self._bounds(rows)[1], self.op.windowing.allowed_lateness, before.watermark)
            if over.any():
                late, rows = rows.filter(pa.array(over)), rows.filter(pa.array(~over))
        given: list[Tagged] = []
        if (rows is not None and rows.num_rows) or self._something_due(after):
            at = self.calls.at
            at.now, at.watermark, at.low = after.now, before.watermark, self.watermark
            self.calls.renew()
            given = list(self.op.framed(self._worked(rows, after), Bundle([])))
        calls = self.calls
        hold = min(calls.event.first(), calls.holds.first())
        self.watermark = output_watermark(self.watermark, after.watermark, np.array([hold]))
        tags, blocks = [tag for tag, _ in given], [to_block(bundle) for _, bundle in given]
        body = pa.record_batch([pa.array(tags, pa.string()), pa.array(blocks, pa.binary())], schema=GIVEN)
        return Step(body, late, 0, self.watermark, len(self.records))

    def _something_due(self, clocks: Clocks) -> bool:
        calls = self.calls
        by_event = min(calls.event.first(), calls.expiring.first(), self._deadlines[0] if self._deadlines else NEVER)
        ended = clocks.watermark >= MAX_TIME and bool(self.records)
        return by_event <= clocks.watermark or calls.processing.first() <= clocks.now or ended

    def _worked(self, rows: pa.RecordBatch | None, clocks: Clocks) -> Iterator[Tagged]:
        calls = self.calls
        with calls.blamed():
            if rows is not None and rows.num_rows:
                self._process(rows)
            calls.ring(clocks.watermark, clocks.now)
            self._close(clocks.watermark)
        while (end := calls.expiring.pop(clocks.watermark)) is not None:
            record, place, _ = end
            record.states[calls.layout.state_at[place]] = EMPTY
            calls.changed[record.seq] = record
        for record in [each for each in calls.changed.values() if _blank(each)]:
            self._drop(record)
        yield from calls.outputs.rest()

    def _process(self, rows: pa.RecordBatch) -> None:
        times = np.asarray(rows.column(TIME))
        if (times[1:] < times[:-1]).any():
            order = np.argsort(times, kind="stable")
            rows, times = rows.take(pa.array(order)), times[order]
        records = self._records_of(rows)
        element = self.calls.element
        values = decode_cells(rows.column(VALUE))
        panes = panes_of(rows.column(PANE)) if PANE in rows.schema.names else repeat(NO_PANE)
        for record, value, time, pane in zip(records, values, times.tolist(), panes, strict=False):
            element(record, (record.key, value), time, pane)

    def _records_of(self, rows: pa.RecordBatch) -> list[Record]:
        """The record of each row, opened if it is not there."""
        start, end = self._bounds(rows)
        windowed = not self.op.windowing.is_global
        keys = rows.column(KEY)
        found = (names(keys, start, end) if windowed else keys).to_pylist()
        records = self.records
        missing = [i for i, name in enumerate(found) if name not in records]
        if missing:
            at = pa.array(missing)
            spelling = rows.column(SPELLING).take(at)
            new = zip(missing, decode_keys(keys.take(at), spelling), spelling.to_pylist(), strict=True)
            for position, key, spelled in new:
                name = found[position]
                if name in records:  # opened by a row before
                    continue
                window = Window(int(start[position]), int(end[position])) if windowed else GLOBAL_WINDOW
                record = self.calls.record(self._next_seq, name, key, spelled, window)
                self._next_seq += 1
                self._keep(record)
                self.calls.changed[record.seq] = record
        return [records[name] for name in found]

    def _bounds(self, rows: pa.RecordBatch) -> tuple[Int64Array, Int64Array]:
        if self.op.windowing.is_global:
            start, end = (np.full(rows.num_rows, edge, np.int64) for edge in GLOBAL_WINDOW)
            return start, end
        return np.asarray(rows.column(START)), np.asarray(rows.column(END))

    def _keep(self, record: Record) -> None:
        self.records[record.name] = record
        if record.deadline < MAX_TIME:
            if record.deadline not in self._ends:
                self._ends[record.deadline] = {}
                heapq.heappush(self._deadlines, record.deadline)
            self._ends[record.deadline][record.seq] = record

    def _close(self, watermark: int) -> None:
        """Ends the records whose time is over."""
        while self._deadlines and self._deadlines[0] <= watermark:
            for record in list(self._ends[self._deadlines[0]].values()):
                self.calls.close(record)
                self._drop(record)
            del self._ends[heapq.heappop(self._deadlines)]
        if watermark >= MAX_TIME:
            for record in list(self.records.values()):
                self.calls.close(record)
                self._drop(record)

    def _drop(self, record: Record) -> None:
        record.due[:] = [NEVER] * len(record.due)
        del self.records[record.name]
        if record.deadline < MAX_TIME:
            del self._ends[record.deadline][record.seq]
        self.calls.changed.pop(record.seq, None)
        if record.seq < self._stored:
            self._gone.append(record.seq)

    def dump(self) -> list[bytes]:
        """The whole state, the same blocks for the same state."""
        return self._written(list(self.records.values()), [])

    def changes(self) -> list[bytes]:
        """What has changed since `dump`, `changes` or `load` was called last, to be loaded after what they gave."""
        return self._written([record for _, record in sorted(self.calls.changed.items())], self._gone)

    def _written(self, records: list[Record], gone: list[int]) -> list[bytes]:
        numbers = {
            "input": self.clocks.watermark,
            "output": self.watermark,
            "now": self.clocks.now,
            "next_seq": self._next_seq,
        }
        over = Gone(np.array(gone, np.int64), np.zeros(len(gone), np.uint64))
        blocks = write_state(State(numbers, pa.table(self._columns(records)), gone=over))
        self.calls.changed.clear()
        self._gone = []
        self._stored = self._next_seq
        return blocks

    def _columns(self, records: list[Record]) -> dict[str, pa.Array]:
        windows = np.array([record.window for record in records], np.int64).reshape(-1, 2)
        columns = {
            "seq": pa.array([record.seq for record in records], pa.int64()),
            "name": pa.array([record.name for record in records], pa.binary()),
            "spelling": pa.array([record.spelling for record in records], pa.binary()),
            "start": pa.array(windows[:, 0]),
            "end": pa.array(windows[:, 1]),
        }
        for index, name in enumerate(self.calls.layout.names()):
            columns[f"time {name}"] = pa.array([record.due[index] for record in records], pa.int64())
        for index, (spec, handle) in enumerate(zip(self.calls.layout.states, self.calls.states, strict=True)):
            columns[f"state {spec.name}"] = dump_states(handle, [record.states[index] for record in records])
        return columns

    def load(self, blocks: list[bytes]) -> None:
        """Takes over, when new, the state of a processor of the same DoFn from its blocks, in order."""
        state, calls = read_state(blocks), self.calls
        rows = pa.table(state.windows if state.windows.num_rows else self._columns([])).sort_by("seq").combine_chunks()
        self.clocks = Clocks(state.numbers["input"], state.numbers["now"])
        self.watermark = state.numbers["output"]
        self._next_seq = self._stored = state.numbers["next_seq"]
        found, spelling = (_column(rows, name) for name in ("name", "spelling"))
        global_ = self.op.windowing.is_global
        keys = [name if global_ else name[:-16] for name in found.to_pylist()]
        identity = (_column(rows, name).to_pylist() for name in ("seq", "name", "spelling", "start", "end"))
        decoded = decode_keys(pa.array(keys, pa.binary()), spelling)
        records = [
            calls.record(seq, name, key, spelled, GLOBAL_WINDOW if global_ else Window(start, end))
            for key, seq, name, spelled, start, end in zip(decoded, *identity, strict=True)
        ]
        for index, (spec, handle) in enumerate(zip(calls.layout.states, calls.states, strict=True)):
            for record, content in zip(records, load_states(handle, _column(rows, f"state {spec.name}")), strict=True):
                record.states[index] = content
        for index, name in enumerate(calls.layout.names()):
            for record, time in zip(records, _column(rows, f"time {name}").to_pylist(), strict=True):
                record.due[index] = time
        for record in records:
            self._keep(record)
            self._note_times(record)

    def _note_times(self, record: Record) -> None:
        calls = self.calls
        for index, time in enumerate(record.due):
            if time == NEVER:
                continue
            if index in calls.layout.state_at:
                calls.expiring.note(record, index)
            elif index >= len(calls.layout.timers):
                if time >= self.watermark:
                    calls.holds.note(record, index)
            elif index in calls.layout.hold_of:
                calls.processing.note(record, index)
            elif time <= record.deadline:
                calls.event.note(record, index)


def _blank(record: Record) -> bool:
    """Whether there is nothing to be kept."""
    for state in record.states:
        if state is not EMPTY:
            return False
    return all(time == NEVER for time in record.due)


def names(keys: pa.BinaryArray, start: Int64Array, end: Int64Array) -> pa.BinaryArray:
    """What records are found by: the bytes of key and bounds."""
    return pc.binary_join_element_wise(keys, fixed_width(b"", start), fixed_width(b"", end), b"")


def _column(rows: pa.Table, name: str) -> pa.Array:
    column = rows.column(name)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


@dataclass(frozen=True)
class Stateful:
    """Runs a DoFn with state."""

    op: StatefulOp

    @property
    def needs_time(self) -> bool:
        return any(isinstance(spec, TimerSpec) and spec.domain == "processing" for spec in self.op.fn.specs())

    @property
    def retracts(self) -> bool:
        return False

    def processor(self) -> StatefulShard:
        if not self.op.opened:
            self.op.open()
            # As good as it gets: when no shard here uses the function any more, or the worker ends in peace.
            weakref.finalize(self.op, self.op.fn.teardown)
        return StatefulShard(self.op)

    def bundles(self, given: pa.RecordBatch) -> Iterator[tuple[str | None, Bundle]]:
        for tag, block in zip(given.column("tag").to_pylist(), given.column("block").to_pylist(), strict=True):
            yield tag, from_block(block)

    def describe(self) -> str:
        return f"{self.op.windowing!r}, with {', '.join(map(repr, self.op.fn.specs()))}"
