"""The shard processor: groups or combines the rows of a shard's keys by window, and fires panes.

It is called once per micro-batch, with rows and clocks, and knows neither Spark nor a wall clock. In a step, processing
time moves; rows are added unless they are late by the watermark before the step; the watermark moves; every window that
got rows, or whose alarm rang, is judged once; windows past their allowed lateness close, and so do sessions whose
trigger has finished. Times are microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.engine.aggregation.accumulators import IncomingRows, RowKind, accumulators
from headrace.engine.columns.arrays import distinct, runs
from headrace.engine.columns.hashing import HASHES
from headrace.engine.shard.clocks import Clocks, output_watermark
from headrace.engine.shard.compiledtriggers import CompiledTrigger
from headrace.engine.shard.localsessions import take_apart
from headrace.engine.shard.placing import COUNT, SlotAssigner, expired
from headrace.engine.shard.reports import WaitingWindow
from headrace.engine.shard.retractions import PANE_FIELDS, PaneArray
from headrace.engine.shard.stateblocks import Removals, ShardState, read_state, write_state
from headrace.engine.shard.triggernodes import Mask, Moment
from headrace.engine.shard.windowtable import GONE, NO_HOLD, WindowTable
from headrace.engine.worker.blame import shorten
from headrace.engine.worker.columnbundles import RETRACTION, TIMINGS
from headrace.engine.worker.hidden import END, START, TIME
from headrace.engine.worker.shuffle import KEY, SPELLING, VALUE
from headrace.model.algebra import CombineFn
from headrace.model.keys import decode_keys, encode_key
from headrace.model.panes import Windowing
from headrace.model.times import MAX_TIME, MIN_TIME, Int64Array, format_duration, format_instant
from headrace.model.windows import Sessions

EARLY, ON_TIME, LATE = (TIMINGS.index(timing) for timing in ("early", "on_time", "late"))

PANES: Final = pa.schema(
    [
        (KEY, pa.binary()),
        (SPELLING, pa.binary()),
        (START, pa.int64()),
        (END, pa.int64()),
        (TIME, pa.int64()),
        (VALUE, pa.binary()),
        ("timing", pa.int8()),
        ("index", pa.int64()),
        ("on_time_index", pa.int64()),
        ("is_first", pa.bool_()),
        ("is_last", pa.bool_()),
        ("retraction", pa.bool_()),
    ]
)
"""The columns of emitted panes. A retraction repeats the pane it takes back, but for the flag."""

_CONTENT: Final = (VALUE, TIME, COUNT, RETRACTION)  # columns of rows that are needed once their windows are known

NO_PANES: Final = pa.record_batch([pa.array([], kind) for kind in PANES.types], schema=PANES)


def _counts(rows: pa.RecordBatch) -> Int64Array:
    """Returns how many elements each row stands for."""
    return np.asarray(rows.column(COUNT)) if COUNT in rows.schema.names else np.ones(rows.num_rows, np.int64)


@dataclass(frozen=True)
class StepResult:
    """The result of a step.

    - panes: by the schema PANES, ordered by end and start of the window and the arrival of its first element; a
      retraction comes right before the pane that replaces it
    - late: the rows that came too late, as they were given
    - refused: how many elements came to windows whose trigger had finished; of sessions, only retractions
    - watermark: the output watermark; what is emitted later and is not late itself is not older
    - held: how many windows have state
    - waiting: the earliest window that has elements it has not fired yet, if there is one and it is known
    - counts: numbers that a task tells about itself
    - again: the processing time at which it wants to be stepped again, even if nothing comes; None if it does not care
    """

    panes: pa.RecordBatch
    late: pa.RecordBatch | None
    refused: int
    watermark: int
    held: int
    waiting: WaitingWindow | None = None
    counts: Mapping[str, float] = field(default_factory=dict)
    again: int | None = None


@dataclass
class StepInput:
    """The windows that got rows in a step, and how many elements each; `placed` has also those that refused theirs."""

    slots: Int64Array = field(default_factory=lambda: np.zeros(0, np.int64))
    arrived: Int64Array = field(default_factory=lambda: np.zeros(0, np.int64))
    placed: Int64Array = field(default_factory=lambda: np.zeros(0, np.int64))
    refused: int = 0
    late: pa.RecordBatch | None = None


class ShardProcessor:
    """One shard of a grouping or, with `fn`, of an aggregation, of rows of one kind.

    Rows are record batches of KEY and SPELLING (see `encode_keys`), TIME, VALUE (cells; of accumulators as `fn.dump`
    gives them), START and END unless windows are global or counted, COUNT if a row stands for several elements,
    SESSION_COLUMNS if it is a session that can be taken apart, and, of signed values, RETRACTION: such a row takes an
    earlier one back, and counts as an arrival itself.

    >>> from headrace.engine.columns.cells import decode_cells, encode_cells
    >>> from headrace.model.triggers import DefaultTrigger
    >>> from headrace.model.windows import FixedWindows
    >>> shard = ShardProcessor(Windowing(FixedWindows("10 us"), DefaultTrigger()))
    >>> rows = pa.record_batch({"key": [b"sk"], "spelling": pa.nulls(1, pa.binary()), "__start": [0], "__end": [10],
    ...                         "__time": [3], "value": encode_cells(["x"])})
    >>> shard.step(rows, Clocks(watermark=5)).panes.num_rows
    0
    >>> print(shard.why("k", (0, 10)))
    waits for the watermark to pass 1970-01-01T00:00:00.00001Z, which is at 1970-01-01T00:00:00.000005Z
    >>> decode_cells(shard.step(None, Clocks(watermark=12)).panes.column("value"))
    [['x']]
    """

    def __init__(
        self,
        windowing: Windowing,
        fn: CombineFn[Any, Any, Any] | None = None,
        rows: RowKind = RowKind.VALUES,
    ) -> None:
        self.windowing = windowing
        self.clocks = Clocks()
        self.watermark = MIN_TIME  # of the output
        self.program = CompiledTrigger(windowing.trigger)
        self.fractions = self.program.fractions
        self.table = WindowTable(
            self.program,
            accumulators(fn, rows),
            merging=windowing.window.merging,
            retracting=windowing.accumulation == "retracting",
        )
        self.placing = SlotAssigner(windowing, self.table)

    def step(self, rows: pa.RecordBatch | None = None, clocks: Clocks | None = None) -> StepResult:
        """Adds rows, moves the clocks on, and fires panes."""
        before, after = self.clocks, self.clocks.moved(clocks or Clocks())
        added = self._add(rows, before) if rows is not None and rows.num_rows else StepInput()
        panes = self._fire(added, before, after)
        self.clocks = after
        self.watermark = output_watermark(self.watermark, after.watermark, self.table.hold[: self.table.used])
        return StepResult(panes, added.late, added.refused, self.watermark, self.table.held, self._waiting())

    def _add(self, rows: pa.RecordBatch, clocks: Clocks) -> StepInput:
        table, watermark, window = self.table, clocks.watermark, self.windowing.window
        if isinstance(window, Sessions):
            rows = take_apart(rows, window.gap, self.placing.lateness, watermark)
        late = self.placing.late(rows, watermark)
        added = StepInput(late=rows.filter(pa.array(late)))
        if late.any():
            rows = rows.filter(pa.array(~late))
        if not rows.num_rows:
            return added
        slots = self.placing.place(rows, clocks)
        accepted = slots >= 0
        added.placed = slots[accepted]
        accepted[accepted] = ~table.finished[added.placed]
        rows = rows.select([name for name in _CONTENT if name in rows.schema.names])
        if not accepted.all():
            added.refused = int(_counts(rows)[~accepted].sum())
            rows, slots = rows.filter(pa.array(accepted)), slots[accepted]
        order, starts = runs(slots)
        rows = rows.take(pa.array(order))
        times, counts = np.asarray(rows.column(TIME)), _counts(rows)
        touched = slots[order[starts]]
        if len(touched):
            back = np.asarray(rows.column(RETRACTION)) if RETRACTION in rows.schema.names else None
            table.values = table.values.add(touched, starts, IncomingRows(rows.column(VALUE), times, back))
            added.slots, added.arrived = touched, np.add.reduceat(counts, starts)
            table.count[touched] += np.add.reduceat(counts if back is None else np.where(back, -counts, counts), starts)
            table.fresh[touched] += added.arrived
            table.due[touched] |= (table.deadline[touched] > watermark) | (self.placing.size is not None)
            self._hold(touched, starts, times, watermark)
        return added

    def _hold(self, slots: Int64Array, starts: Int64Array, times: Int64Array, watermark: int) -> None:
        """Sets watermark holds: the times of windows' next panes, by elements not behind the input watermark.

        The output watermark may be further behind, but it depends on which other keys share the shard.
        """
        table, combiner = self.table, self.windowing.timestamp_combiner
        if self.placing.size is not None:
            # A count window has no last instant, so its latest element stands for it.
            combiner, passable = "earliest" if combiner == "earliest" else "latest", times >= MIN_TIME
        else:
            passable = times >= watermark
        hold = table.hold[slots]
        if combiner == "earliest":
            first = np.minimum.reduceat(np.where(passable, times, NO_HOLD), starts)
            table.hold[slots] = np.minimum(hold, first)
        elif combiner == "latest":
            latest = np.maximum.reduceat(np.where(passable, times, -NO_HOLD), starts)
            latest = np.maximum(latest, np.where(hold == NO_HOLD, -NO_HOLD, hold))
            table.hold[slots] = np.where(latest == -NO_HOLD, NO_HOLD, latest)
        else:
            last = table.end[slots] - 1
            table.hold[slots] = np.where(last >= watermark, last, hold)

    def _fire(self, added: StepInput, before: Clocks, after: Clocks) -> pa.RecordBatch:
        table, root = self.table, self.program.root
        slots = self._candidates(added.placed, before, after)
        if not len(slots):
            return NO_PANES
        arrived = np.zeros(len(slots), np.int64)
        arrived[np.searchsorted(slots, added.slots)] = added.arrived
        moment = Moment(table.deadline[slots], arrived, table.state[:, slots], before, after)
        root.arrive(moment, arrived > 0)
        judged = ((arrived > 0) | root.wakes(moment)) & ~table.finished[slots]
        fired = judged & root.ready(moment)
        done = root.fire(moment, fired)
        table.state[:, slots] = moment.state
        table.touch(slots)
        over = expired(moment.end, self.placing.lateness, after.watermark)
        fresh, always = table.fresh[slots] > 0, self.windowing.closing == "always"
        on_time = fired & moment.ended & table.due[slots]
        closing = over & ~table.finished[slots]
        emitting = (fired & (fresh | on_time | (done & always))) | (closing & (fresh | always))
        panes = self._emit(slots[emitting], (done | over)[emitting], before, after)
        table.finish(slots[done & ~over])
        table.close(slots[over])
        return panes

    def _candidates(self, placed: Int64Array, before: Clocks, after: Clocks) -> Int64Array:
        """Returns the windows to judge: those that got rows, whose alarm may have rung, or whose time is over."""
        table, used = self.table, self.table.used
        deadline, nothing = table.deadline[:used], np.zeros(0, np.int64)
        parts = [placed]
        crossed = self.program.root.crossed(Moment(deadline, nothing, table.state[:, :used], before, after))
        if crossed is not None:
            parts.append(np.flatnonzero(crossed))
        if after.watermark > before.watermark:
            # A free slot's deadline is behind the end of time.
            over = MAX_TIME if after.watermark >= MAX_TIME else after.watermark - self.placing.lateness
            parts.append(np.flatnonzero(deadline <= over))
        return distinct(np.concatenate(parts))

    def _emit(self, slots: Int64Array, last: Mask, before: Clocks, after: Clocks) -> pa.RecordBatch:
        """Emits the panes of these windows, and prepares the windows for their next ones."""
        if not len(slots):
            return NO_PANES
        table, accumulation = self.table, self.windowing.accumulation
        order = np.lexsort((table.seq[slots], table.start[slots], table.end[slots]))
        slots, last = slots[order], last[order]
        early = table.deadline[slots] > after.watermark
        panes = np.zeros(len(slots), PANE_FIELDS)
        panes["start"], panes["end"] = table.start[slots], table.end[slots]
        instant = table.end[slots] - 1 if self.placing.size is None else before.watermark
        panes["time"] = np.where(table.hold[slots] == NO_HOLD, instant, table.hold[slots])
        panes["timing"] = np.where(early, EARLY, np.where(table.due[slots], ON_TIME, LATE))
        panes["index"] = table.index[slots]
        panes["on_time_index"] = np.where(early, -1, table.on_time_index[slots])
        panes["is_last"] = last
        cells = table.values.results(slots)
        batch = self._with_retractions(slots, panes, cells)
        table.index[slots] += 1
        table.on_time_index[slots] += ~early
        table.due[slots] &= early
        table.fresh[slots] = 0
        # Until its on-time pane, a window that accumulates holds the time of elements it will emit again.
        holds = early & (self.program.on_time and accumulation != "discarding")
        table.hold[slots] = np.where(holds, table.hold[slots], NO_HOLD)
        if accumulation == "discarding":
            table.values.clear(slots)
        return batch

    def _with_retractions(self, slots: Int64Array, panes: PaneArray, cells: pa.BinaryArray) -> pa.RecordBatch:
        emitted = self.table.emitted
        retraction, owner = np.zeros(len(slots), np.bool_), np.arange(len(slots))
        if emitted is not None:
            back, taken_back, old_cells = emitted.of(slots)
            emitted.clear(slots)
            # If all of a window's elements were taken back, nothing replaces its pane.
            owner = np.flatnonzero(self.table.count[slots] > 0)
            panes, cells = panes[owner], cells.take(pa.array(owner))
            emitted.replace(slots[owner], panes, cells)
            # A stable sort by owner puts what is taken back before what replaces it.
            order = np.argsort(np.concatenate([back, owner]), kind="stable")
            retraction = (np.arange(len(order)) < len(back))[order]
            owner = np.concatenate([back, owner])[order]
            panes = np.concatenate([taken_back, panes])[order]
            cells = pa.concat_arrays([old_cells, cells]).take(pa.array(order))
        keys, spelling = self.table.keys.take(slots[owner]), self.table.spellings.take(slots[owner])
        numbers = [pa.array(panes[name]) for name in ("start", "end", "time")]
        described = [pa.array(panes[name]) for name in ("index", "on_time_index")]
        flags = [pa.array(flag) for flag in (panes["index"] == 0, panes["is_last"] != 0, retraction)]
        timing = pa.array(panes["timing"].astype(np.int8))
        return pa.record_batch([keys, spelling, *numbers, cells, timing, *described, *flags], schema=PANES)

    def why(self, key: object, window: tuple[int, int]) -> str:
        """Explains in words why a window has not fired."""
        table = self.table
        slots = np.flatnonzero((table.start == window[0]) & (table.end == window[1]))
        names = table.keys.take(slots).to_pylist()
        matches = [slot for slot, name in zip(slots.tolist(), names, strict=True) if name == encode_key(key)]
        if not matches:
            return "holds nothing: no element came, or the window was closed"
        return self._why(matches[0])

    def _why(self, slot: int) -> str:
        table = self.table
        if table.finished[slot]:
            return "its trigger has finished: elements that still come are refused"
        at = np.array([slot])
        if self.placing.size is not None:
            missing = int(table.end[slot]) - self.placing.ordinals.of(table.keys.take(at)[0].as_py())
            return f"needs {missing} more element{'s' * (missing > 1)} to be full"
        moment = Moment(table.deadline[at], np.zeros(1, np.int64), table.state[:, at], self.clocks, self.clocks)
        reason = self.program.root.why(moment)
        if moment.ended[0]:
            closes = int(table.deadline[slot]) + self.placing.lateness
            lateness = format_duration(self.placing.lateness)
            reason += f"; it closes when the watermark passes {format_instant(closes)}, {lateness} after its end"
        return reason

    def _waiting(self) -> WaitingWindow | None:
        table, used = self.table, self.table.used
        deadlines = np.where((table.fresh[:used] > 0) & ~table.finished[:used], table.deadline[:used], GONE)
        earliest = int(deadlines.min(initial=GONE))
        if earliest == GONE:
            return None
        slots = np.flatnonzero(deadlines == earliest)
        slot = int(slots[table.seq[slots].argmin()])
        (key,) = decode_keys(table.keys.take(np.array([slot])), table.spellings.take(np.array([slot])))
        window = self._window(int(table.start[slot]), int(table.end[slot]))
        return WaitingWindow(shorten(key), window, self._why(slot), earliest)

    def _window(self, start: int, end: int) -> str:
        if self.placing.size is not None:
            return f"elements {start} to {end - 1}"
        return "the global window" if self.windowing.is_global else f"{format_instant(start)} to {format_instant(end)}"

    def dump(self) -> list[bytes]:
        """Encodes the whole state, the same blocks for the same state."""
        blocks = self.part(0, HASHES)
        self._written()
        return blocks

    def part(self, low: int, high: int) -> list[bytes]:
        """Encodes the state of windows whose hashes are in a range; all ranges together are what `dump` returns."""
        windows = self.table.columns(self.table.slots(low=low, high=high))
        return self._blocks(windows, Removals(), self.placing.ordinals.counts(low=low, high=high))

    def changes(self) -> list[bytes]:
        """Encodes the state delta since `dump`, `changes` or `load` was last called, to be loaded after those."""
        windows = self.table.columns(self.table.changed())
        blocks = self._blocks(windows, self.table.gone(), self.placing.ordinals.changed())
        self._written()
        return blocks

    def load(self, blocks: list[bytes]) -> None:
        """Restores the state of a processor of the same windowing from its blocks, in order.

        A processor that has state can load the deltas since.
        """
        state = read_state(blocks)
        self.table.load(state.windows, state.gone)
        self.placing.ordinals.load(state.ordinals)
        self.clocks = Clocks(state.numbers["input"], state.numbers["now"], state.percentiles)
        self.watermark, self.table.next_seq = state.numbers["output"], state.numbers["next_seq"]
        self._written()

    def _blocks(self, windows: pa.Table, gone: Removals, ordinals: pa.Table) -> list[bytes]:
        numbers = {
            "input": self.clocks.watermark,
            "output": self.watermark,
            "now": self.clocks.now,
            "next_seq": self.table.next_seq,
        }
        return write_state(ShardState(numbers, windows, dict(self.clocks.percentiles), gone, ordinals))

    def _written(self) -> None:
        self.table.written()
        self.placing.ordinals.written()
