"""The processor of a join of two streams: rows wait in the shard of their key until nothing can match them any more.

A step: rows that are not late meet those of the other side that wait, and each other; a match is emitted at once, and
only once. Then the watermark moves, and rows are removed whose time is over; those that nothing matched are emitted
with nulls, if the join keeps them. Triggers play no part.

The state is the rows that wait. What was removed follows from the watermark, and which rows had a match follows from
who waits in the same window; so neither is stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.engine.columns.arrowbytes import arrow_bytes
from headrace.engine.columns.codes import Codes
from headrace.engine.columns.hashing import HASHES
from headrace.engine.columns.joinkeys import comparable, encode_join_keys, equal_pairs, near_pairs
from headrace.engine.shard.clocks import Clocks, output_watermark
from headrace.engine.shard.joinbuffer import JoinBuffer, no_rows
from headrace.engine.shard.joinslots import JoinSlots
from headrace.engine.shard.placing import expired
from headrace.engine.shard.processor import StepResult
from headrace.engine.shard.stateblocks import blocks_of, one_array, tables_in
from headrace.engine.shard.triggernodes import Mask
from headrace.engine.shard.windowbounds import bounds_of, window_names
from headrace.engine.worker.hidden import END, START, TIME
from headrace.model.times import MAX_TIME, MIN_TIME, Int64Array

LEFT, RIGHT = 0, 1
SIDE: Final = "side"
ARRIVALS: Final = pa.schema([(SIDE, pa.int8()), ("rows", pa.binary())])
"""The schema of what is sent to a shard: batches of rows of one side, each as an Arrow stream in one cell."""

STORED_SIDES: Final = ("left", "right")
"""The kinds of blocks with rows of either side."""
STORED_SEQ, STORED_UNTIL = "__seq", "__until"
"""Columns of rows in stored state, beside their own."""


@dataclass(frozen=True)
class JoinSide:
    """One side of a join: the columns of its rows, those of the key, and whether rows without a match are kept."""

    schema: pa.Schema
    keys: tuple[str, ...]
    keeps: bool = False


@dataclass(frozen=True)
class JoinSpec:
    """The specification of a join.

    - columns: of the result: its name, its side and its name there
    - within: how much later than the left row a right one may be, from and to; None if only keys and windows count
    - lateness: how long after the end of its window a row may come, or, with `late_by_time`, after its own time
    """

    sides: tuple[JoinSide, JoinSide]
    columns: tuple[tuple[str, int, str], ...]
    lateness: int = 0
    within: tuple[int, int] | None = None
    late_by_time: bool = False

    @property
    def hidden(self) -> tuple[str, ...]:
        """The hidden columns of rows and of the result."""
        return tuple(name for name in (TIME, START, END) if name in self.sides[LEFT].schema.names)

    @property
    def holds(self) -> tuple[bool, bool]:
        """Whether the rows of each side hold the output watermark: their times may be those of results to come."""
        left, right = self.sides
        windowed = START in left.schema.names
        return left.keeps or (windowed and self.within is None), right.keeps

    def last_match(self, side: int, times: Int64Array) -> Int64Array:
        """Returns the watermarks from which on nothing can come any more that matches rows of these times."""
        assert self.within is not None
        lower, upper = self.within
        return np.minimum(times + (upper if side == LEFT else -lower) + (self.lateness + 1), MAX_TIME)

    def last_use(self, side: int, times: Int64Array) -> Int64Array:
        """Returns the watermarks from which on rows of these times are not needed.

        A row that others would be kept without stays until the last of those that it matches is judged.
        """
        assert self.within is not None
        matched = self.last_match(side, times)
        if not self.sides[1 - side].keeps:
            return matched
        lower, upper = self.within
        return np.maximum(matched, np.minimum(times + (upper - lower) + (self.lateness + 1), MAX_TIME))


@dataclass(frozen=True)
class Arrivals:
    """Rows of one side that came in a step, with the numbers that a buffer stores."""

    rows: pa.RecordBatch
    numbers: dict[str, Int64Array]


class JoinProcessor:
    """The processor of a join's shard.

    >>> sides = [JoinSide(pa.schema({key: pa.int64(), value: pa.string(), TIME: pa.int64()}), (key,))
    ...          for key, value in (("id", "name"), ("seller", "item"))]
    >>> shard = JoinProcessor(JoinSpec(tuple(sides), (("name", LEFT, "name"), ("item", RIGHT, "item"))))
    >>> people = pa.record_batch({"id": [7], "name": ["amy"], TIME: [3]})
    >>> auctions = pa.record_batch({"seller": [7, 8], "item": ["book", "pen"], TIME: [4, 5]})
    >>> shard.step(arrivals(LEFT, people)).panes.num_rows
    0
    >>> shard.step(arrivals(RIGHT, auctions)).panes.to_pylist()
    [{'name': 'amy', 'item': 'book', '__time': 3}]
    """

    def __init__(self, spec: JoinSpec) -> None:
        self.spec = spec
        self.clocks = Clocks()
        self.fractions: set[float] = set()
        self.watermark = MIN_TIME  # of the output
        self.slots = JoinSlots()
        self.waiting = tuple(JoinBuffer(side.schema) for side in spec.sides)
        self.next_seq = self._written = 0

    def step(self, rows: pa.RecordBatch | None = None, clocks: Clocks | None = None) -> StepResult:
        """Adds rows, emits their matches, moves the clocks on, and removes rows whose time is over."""
        before, after, first = self.clocks, self.clocks.moved(clocks or Clocks()), self.next_seq
        late: list[pa.Array] = []
        came = [self._arrivals(side, batch, before.watermark, late) for side, batch in _by_side(rows, self.spec)]
        emitted = list(self._matches(*came))
        for side, arrived in enumerate(came):
            self._append(side, arrived)
        emitted += self._closed(before.watermark, after.watermark, first)
        self._remove(after.watermark)
        self.clocks = after
        self.watermark = output_watermark(self.watermark, after.watermark, self._holds(after.watermark))
        too_late = pa.record_batch([pa.concat_arrays(late)], [TIME]) if late else None
        results = pa.concat_batches(emitted) if emitted else self._no_results()
        return StepResult(results, too_late, 0, self.watermark, self.slots.held)

    def _arrivals(self, side: int, rows: pa.RecordBatch, watermark: int, late: list[pa.Array]) -> Arrivals:
        times = np.asarray(rows.column(TIME))
        over = expired(times + 1 if self.spec.late_by_time else bounds_of(rows)[1], self.spec.lateness, watermark)
        if over.any():
            late.append(rows.column(TIME).filter(pa.array(over)))
            rows = rows.filter(pa.array(~over))
        seq = np.arange(self.next_seq, self.next_seq + rows.num_rows)
        self.next_seq += rows.num_rows
        return self._placed(side, rows, seq, self._until(side, rows))

    def _until(self, side: int, rows: pa.RecordBatch) -> Int64Array:
        """Returns the watermarks from which on rows are not needed."""
        until = np.minimum(bounds_of(rows)[1] + self.spec.lateness, MAX_TIME)
        if self.spec.within is None:
            return until
        return np.minimum(self.spec.last_use(side, np.asarray(rows.column(TIME))), until)

    def _placed(self, side: int, rows: pa.RecordBatch, seq: Int64Array, until: Int64Array) -> Arrivals:
        """Finds the slots of rows, through those of them that differ in key or window."""
        keys = self.spec.sides[side].keys
        windowed = START in rows.schema.names
        start, end = bounds_of(rows)
        columns = [comparable(rows.column(key)) for key in keys]
        codes = Codes.of_columns([*columns, *((pa.array(start), pa.array(end)) if windowed else ())], len(seq))
        firsts = codes.first_rows()
        names = encode_join_keys([column.take(pa.array(firsts)) for column in columns])
        if windowed:
            names = window_names(names, start[firsts], end[firsts])
        slots = self.slots.of(names)[codes.numbers]
        times = np.asarray(rows.column(TIME))
        return Arrivals(rows, {"seq": seq, "slot": slots, "time": times, "end": end, "until": until})

    def _append(self, side: int, arrived: Arrivals) -> None:
        if arrived.rows.num_rows:
            self.waiting[side].append(arrived.rows, arrived.numbers)
            self.slots.add(side, arrived.numbers["slot"], +1)

    def _matches(self, left: Arrivals, right: Arrivals) -> Iterator[pa.RecordBatch]:
        """Joins rows that came with those that wait and with each other."""
        yield from self._joined(left, self._met(RIGHT, left.numbers["slot"]))
        yield from self._joined(self._met(LEFT, right.numbers["slot"]), right)
        yield from self._joined(left, right)

    def _met(self, side: int, slots: Int64Array) -> Arrivals:
        """Returns the rows of a side that wait in one of these slots."""
        positions = self._in_slots(side, slots)
        return Arrivals(self.waiting[side].take(positions), self._numbers(side, positions))

    def _in_slots(self, side: int, slots: Int64Array) -> Int64Array:
        """Returns the positions of the rows of a side that wait in one of these slots."""
        touched = np.zeros(self.slots.used + 1, np.bool_)
        touched[slots] = True
        touched[-1] = False  # the slot of keys with a null
        return np.flatnonzero(touched[self.waiting[side]["slot"]])

    def _numbers(self, side: int, positions: Int64Array) -> dict[str, Int64Array]:
        """Returns what decides whether rows that wait match others."""
        return {name: self.waiting[side][name][positions] for name in ("slot", "time")}

    def _joined(self, left: Arrivals, right: Arrivals) -> Iterator[pa.RecordBatch]:
        at_left, at_right = self._pairs(left.numbers, right.numbers)
        if len(at_left):
            yield self._results(left.rows.take(pa.array(at_left)), right.rows.take(pa.array(at_right)))

    def _pairs(self, left: dict[str, Int64Array], right: dict[str, Int64Array]) -> tuple[Int64Array, Int64Array]:
        """Returns the positions of all pairs of rows that match."""
        ours, theirs = left["slot"], right["slot"]
        if (ours < 0).any():
            ours = np.where(ours < 0, -2, ours)  # a null is not the same as another
        if self.spec.within is None:
            return equal_pairs(ours, theirs)
        return near_pairs(ours, theirs, left["time"], right["time"], self.spec.within)

    def _results(self, left: pa.RecordBatch | None, right: pa.RecordBatch | None) -> pa.RecordBatch:
        """Makes rows of the result, of left and right ones in pairs, or of those of one side that nothing matched."""
        sides = (left, right)
        present, rows = (LEFT, left) if left is not None else (RIGHT, right)
        assert rows is not None
        ours, theirs = (side.keys for side in self.spec.sides)
        columns: dict[str, pa.Array] = {}
        for name, side, column in self.spec.columns:
            batch = sides[side]
            if batch is not None:
                columns[name] = batch.column(column)
            elif present == RIGHT and column in ours:
                columns[name] = rows.column(theirs[ours.index(column)])
            else:
                columns[name] = pa.nulls(rows.num_rows, self.spec.sides[side].schema.field(column).type)
        columns |= {name: rows.column(name) for name in self.spec.hidden}
        if self.spec.within is not None and left is not None and right is not None:
            columns[TIME] = pa.array(np.maximum(np.asarray(left.column(TIME)), np.asarray(right.column(TIME))))
        return pa.record_batch(columns)

    def _no_results(self) -> pa.RecordBatch:
        return self._results(*(no_rows(side.schema) for side in self.spec.sides))

    def _closed(self, before: int, after: int, first: int) -> Iterator[pa.RecordBatch]:
        """Yields the rows that are kept and that nothing can match any more now that the watermark moves.

        `first` is the number of the first row of this step.
        """
        for side, buffer in enumerate(self.waiting):
            if not self.spec.sides[side].keeps:
                continue
            if self.spec.within is None:
                alone = np.append(self.slots.count[1 - side, : self.slots.used] == 0, True)[buffer["slot"]]
                positions = np.flatnonzero((buffer["until"] <= after) & alone)
            else:
                judged = self.spec.last_match(side, buffer["time"])
                over = (judged <= after) & ((judged > before) | (buffer["seq"] >= first))
                positions = self._alone(side, np.flatnonzero(over))
            if len(positions):
                rows = buffer.take(positions)
                yield self._results(*((rows, None) if side == LEFT else (None, rows)))

    def _alone(self, side: int, positions: Int64Array) -> Int64Array:
        """Returns the positions of those rows that match none that waits on the other side."""
        own = self._numbers(side, positions)
        met = self._numbers(1 - side, self._in_slots(1 - side, own["slot"]))
        matched = self._pairs(own, met)[LEFT] if side == LEFT else self._pairs(met, own)[RIGHT]
        return np.delete(positions, matched)

    def _remove(self, watermark: int) -> None:
        """Removes rows whose time is over."""
        gone = []
        for side, buffer in enumerate(self.waiting):
            over = self._over(side, watermark)
            if over.any():
                gone.append(buffer["slot"][over])
                self.slots.add(side, gone[-1], -1)
                buffer.keep(~over)
        if gone:
            self.slots.release(np.concatenate(gone))

    def _over(self, side: int, watermark: int) -> Mask:
        """Judges which rows of a side are not needed any more."""
        return self.waiting[side]["until"] <= watermark

    def _holds(self, watermark: int) -> Int64Array:
        """Returns the times of rows that may still be those of results, other than of late rows."""
        times = []
        for side, (buffer, holds) in enumerate(zip(self.waiting, self.spec.holds, strict=True)):
            if holds and self.spec.within is not None:
                times.append(buffer["time"][self.spec.last_match(side, buffer["time"]) > watermark])
            elif holds:
                keeps = self.spec.sides[side].keeps
                times.append(buffer["time"] if keeps else buffer["time"][buffer["end"] > watermark])
        return np.concatenate(times) if times else np.zeros(0, np.int64)

    def dump(self) -> list[bytes]:
        """Encodes the whole state, the same blocks for the same state."""
        blocks = self.part(0, HASHES)
        self._written = self.next_seq
        return blocks

    def part(self, low: int, high: int) -> list[bytes]:
        """Encodes the rows whose keys and windows have a hash in a range."""
        within = np.append(self.slots.names.between(low, high, self.slots.used), low == 0)
        return self._blocks([np.flatnonzero(within[buffer["slot"]]) for buffer in self.waiting])

    def changes(self) -> list[bytes]:
        """Encodes the state delta since `dump`, `changes` or `load` was last called, to be loaded after those."""
        new = [np.arange(np.searchsorted(buffer["seq"], self._written), buffer.size) for buffer in self.waiting]
        self._written = self.next_seq
        return self._blocks(new)

    def _blocks(self, positions: list[Int64Array]) -> list[bytes]:
        clocks = self.clocks
        numbers = {"input": clocks.watermark, "output": self.watermark, "now": clocks.now, "next_seq": self.next_seq}
        blocks = blocks_of("numbers", pa.table({name: pa.array([each], pa.int64()) for name, each in numbers.items()}))
        for kind, buffer, at in zip(STORED_SIDES, self.waiting, positions, strict=True):
            rows = pa.Table.from_batches([buffer.take(at)])
            for name, column in ((STORED_SEQ, buffer["seq"]), (STORED_UNTIL, buffer["until"])):
                rows = rows.append_column(name, pa.array(column[at]))
            blocks += blocks_of(kind, rows)
        return blocks

    def load(self, blocks: list[bytes]) -> None:
        """Restores the state of a processor of the same join from its blocks, in order.

        A processor that has state can load the deltas since.
        """
        tables = tables_in(blocks)
        numbers = tables["numbers"][-1].to_pylist()[0]
        for side, kind in enumerate(STORED_SIDES):
            if kind in tables:
                self._load_rows(side, pa.concat_tables(tables[kind]))
        self.clocks = Clocks(numbers["input"], numbers["now"])
        self.watermark = numbers["output"]
        self.next_seq = self._written = numbers["next_seq"]
        self._remove(self.clocks.watermark)  # their results were emitted when they went

    def _load_rows(self, side: int, table: pa.Table) -> None:
        schema = self.spec.sides[side].schema
        own = table.select([name for name in table.schema.names if name not in (STORED_SEQ, STORED_UNTIL)])
        if not own.schema.equals(schema):
            raise ValueError(
                f"the rows on the {STORED_SIDES[side]} that wait in the checkpoint have the columns "
                f"({_named(own.schema)}), and now they would have ({_named(schema)}); go on with the columns as "
                "they were, or begin with an empty checkpoint"
            )
        seq, until = one_array(table, STORED_SEQ).to_numpy(), one_array(table, STORED_UNTIL).to_numpy()
        once, first = np.unique(seq, return_index=True)
        first = first[once >= self.next_seq]
        if len(first):
            rows = own.combine_chunks().to_batches()[0].take(pa.array(first))
            self._append(side, self._placed(side, rows, seq[first], until[first]))


def arrivals(side: int, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Packs rows of one side as they are sent to a shard."""
    return pa.record_batch([pa.array([side], pa.int8()), pa.array([arrow_bytes(rows)], pa.binary())], schema=ARRIVALS)


def _by_side(packed: pa.RecordBatch | None, spec: JoinSpec) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yields the rows of each side. Where both have the same columns, rows may also come as they are, with SIDE."""
    if packed is not None and "rows" not in packed.schema.names:
        sides = np.asarray(packed.column(SIDE))
        rows = packed.drop_columns([SIDE])
        yield from ((side, rows.filter(pa.array(sides == side))) for side in (LEFT, RIGHT))
        return
    batches: tuple[list[pa.RecordBatch], ...] = ([], [])
    if packed is not None:
        for side, cell in zip(packed.column(SIDE).to_pylist(), packed.column("rows"), strict=True):
            batches[side].append(pa.ipc.open_stream(cell.as_buffer()).read_next_batch())
    for side, parts in enumerate(batches):
        yield side, pa.concat_batches(parts) if parts else no_rows(spec.sides[side].schema)


def _named(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema if not field.name.startswith("__"))
