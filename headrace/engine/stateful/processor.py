"""Stateful DoFns in a stream: the processor of their shards, and the work that makes such processors.

A step: elements that are not late, in the order of their event times and of arrival; then the timers that are due;
then windows whose lateness is used up close, and states whose time is over are emptied. State is plain Python objects
that stay in memory; what changed is stored once per step, as columns.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat

import numpy as np
import pyarrow as pa

from headrace.engine.columns.cells import decode_cells
from headrace.engine.columns.hashing import HASHES
from headrace.engine.shard.clocks import Clocks, output_watermark
from headrace.engine.shard.identity import Identity, identity_of
from headrace.engine.shard.placing import expired
from headrace.engine.shard.processor import StepResult
from headrace.engine.shard.rows import PANE, panes_of
from headrace.engine.shard.stateblocks import Removals, ShardState, read_state, write_state
from headrace.engine.shard.taggedbundles import pack_bundles, unpack_bundles
from headrace.engine.shard.windowbounds import bounds_of
from headrace.engine.stateful.calls import Calls
from headrace.engine.stateful.records import EMPTY, Record
from headrace.engine.stateful.recordtable import RecordTable
from headrace.engine.stateful.statefulfn import StatefulFn
from headrace.engine.stateful.timers import NEVER
from headrace.engine.worker.bundles import Bundle
from headrace.engine.worker.hidden import TIME
from headrace.engine.worker.operators import Tagged
from headrace.engine.worker.shuffle import VALUE
from headrace.model.panes import NO_PANE, Windowing
from headrace.model.state import TimerSpec
from headrace.model.times import MIN_TIME


class DoFnProcessor:
    """The processor of a stateful DoFn's shard. Rows have KEY, SPELLING, TIME, VALUE and perhaps START, END and PANE.

    >>> import headrace as hr
    >>> from headrace.engine.worker.operators import Call
    >>> from headrace.engine.worker.shuffle import row_batch, shuffle_schema
    >>> from headrace.model.panes import GLOBAL
    >>> class Number(hr.DoFn):
    ...     seen = hr.CombiningState("seen", sum)
    ...     def process(self, pair, seen=hr.DoFn.StateParam(seen)):
    ...         seen.add(1)
    ...         yield pair, seen.read()
    >>> number = Number()
    >>> fn = StatefulFn("number", Call(number.process), number, GLOBAL)
    >>> shard = StatefulWork(fn).processor()
    >>> rows = row_batch(shuffle_schema(windowed=False, timed=True), ["k", "k"], [7, 8], Bundle([None] * 2))
    >>> [bundle.elements for _, bundle in StatefulWork(fn).bundles(shard.step(rows).panes)]
    [[(('k', 7), 1), (('k', 8), 2)]]
    """

    def __init__(self, fn: StatefulFn) -> None:
        self.fn, self.calls = fn, Calls(fn)
        self.table = RecordTable(self.calls, global_windows=fn.windowing.is_global)
        self.clocks = Clocks()
        self.watermark = MIN_TIME  # of the output
        self.fractions: set[float] = set()

    def step(self, rows: pa.RecordBatch | None = None, clocks: Clocks | None = None) -> StepResult:
        """Processes rows, moves the clocks on, and fires timers."""
        before, after = self.clocks, self.clocks.moved(clocks or Clocks())
        late = None
        if rows is not None and rows.num_rows:
            over = expired(bounds_of(rows)[1], self.fn.windowing.allowed_lateness, before.watermark)
            if over.any():
                late, rows = rows.filter(pa.array(over)), rows.filter(pa.array(~over))
        outputs: list[Tagged] = []
        if (rows is not None and rows.num_rows) or self._something_due(after):
            at = self.calls.at
            at.now, at.watermark, at.low = after.now, before.watermark, self.watermark
            self.calls.renew()
            outputs = list(self.fn.life.framed(self._work(rows, after), Bundle([])))
        self.clocks = after
        hold = min(self.calls.event.first(), self.calls.holds.first())
        self.watermark = output_watermark(self.watermark, after.watermark, np.array([hold]))
        return StepResult(pack_bundles(outputs), late, 0, self.watermark, self.table.held)

    def _something_due(self, clocks: Clocks) -> bool:
        calls = self.calls
        by_event = min(calls.event.first(), calls.expiring.first(), self.table.first_end())
        return by_event <= clocks.watermark or calls.processing.first() <= clocks.now

    def _work(self, rows: pa.RecordBatch | None, clocks: Clocks) -> Iterator[Tagged]:
        calls, table = self.calls, self.table
        with calls.blamed():
            if rows is not None and rows.num_rows:
                self._process(rows)
            calls.ring(clocks.watermark, clocks.now)
            for record in table.ended(clocks.watermark):
                calls.close(record)
                table.drop(record)
        calls.expire(clocks.watermark)
        for record in [record for record in calls.changed.values() if _is_blank(record)]:
            table.drop(record)
        yield from calls.outputs.rest()

    def _process(self, rows: pa.RecordBatch) -> None:
        times = np.asarray(rows.column(TIME))
        if (times[1:] < times[:-1]).any():
            order = np.argsort(times, kind="stable")
            rows, times = rows.take(pa.array(order)), times[order]
        records, values = self.table.of_rows(rows), decode_cells(rows.column(VALUE))
        panes = panes_of(rows.column(PANE)) if PANE in rows.schema.names else repeat(NO_PANE)
        element = self.calls.element
        for record, value, time, pane in zip(records, values, times.tolist(), panes, strict=False):
            element(record, (record.key, value), time, pane)

    def dump(self) -> list[bytes]:
        """Encodes the whole state, the same blocks for the same state."""
        blocks = self.part(0, HASHES)
        self.table.written()
        return blocks

    def part(self, low: int, high: int) -> list[bytes]:
        """Encodes the state of records whose hashes are in a range; all ranges together are what `dump` returns."""
        return self._blocks(self.table.between(low, high), Removals())

    def changes(self) -> list[bytes]:
        """Encodes the state delta since `dump`, `changes` or `load` was last called, to be loaded after those."""
        blocks = self._blocks(self.table.changed(), self.table.gone())
        self.table.written()
        return blocks

    def load(self, blocks: list[bytes]) -> None:
        """Restores the state of a processor of the same DoFn from its blocks, in order.

        A processor that has state can load the deltas since.
        """
        state = read_state(blocks)
        self.clocks = Clocks(state.numbers["input"], state.numbers["now"])
        self.watermark = self.calls.at.low = state.numbers["output"]
        self.table.next_seq = state.numbers["next_seq"]
        self.table.load(state.windows, state.gone)

    def _blocks(self, records: list[Record], gone: Removals) -> list[bytes]:
        numbers = {
            "input": self.clocks.watermark,
            "output": self.watermark,
            "now": self.clocks.now,
            "next_seq": self.table.next_seq,
        }
        return write_state(ShardState(numbers, self.table.columns(records), gone=gone))


def _is_blank(record: Record) -> bool:
    """Returns whether a record has neither state nor timers."""
    for state in record.states:
        if state is not EMPTY:
            return False
    return all(time == NEVER for time in record.due)


@dataclass(frozen=True)
class StatefulWork:
    """The work of a DoFn with state or timers."""

    fn: StatefulFn

    @property
    def windowing(self) -> Windowing:
        return self.fn.windowing

    @property
    def needs_time(self) -> bool:
        return any(isinstance(spec, TimerSpec) and spec.domain == "processing" for spec in self.fn.dofn.specs())

    @property
    def retracts(self) -> bool:
        return False

    def processor(self, shard: int = 0) -> DoFnProcessor:
        if not self.fn.opened:
            self.fn.open()
            # Called when no shard in this worker uses the function any more, or when the worker ends normally.
            weakref.finalize(self.fn, self.fn.dofn.teardown)
        return DoFnProcessor(self.fn)

    def bundles(self, emitted: pa.RecordBatch) -> Iterator[tuple[str | None, Bundle]]:
        return unpack_bundles(emitted)

    def identity(self) -> Identity:
        return {
            "kind": "stateful",
            "window": identity_of(self.windowing.window),
            "specs": [identity_of(spec) for spec in self.fn.dofn.specs()],
        }

    def describe(self) -> str:
        return f"{self.windowing.window!r}, with {', '.join(map(repr, self.fn.dofn.specs()))}"
