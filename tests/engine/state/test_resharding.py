"""Any sequence of changes of the number of shards between micro-batches changes no pane, for every kind of work."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.engine.shard.clocks import Clocks, Upstream
from headrace.engine.shard.identity import identity_of
from headrace.engine.shard.joinprocessor import LEFT, RIGHT, JoinProcessor, arrivals
from headrace.engine.shard.processor import StepResult
from headrace.engine.shard.reports import ClockReport
from headrace.engine.shard.slots import SLOTS, shards_in, shards_of, slots_of
from headrace.engine.shard.work import Grouping
from headrace.engine.sides.processor import SideInputWork
from headrace.engine.sides.rows import MAIN, ROLE, clock_rows
from headrace.engine.sides.sideviews import SideView
from headrace.engine.state.layouts import layout_of
from headrace.engine.state.resharding import Resharding, ShardPiece
from headrace.engine.state.shardcounts import ShardCounts
from headrace.engine.stateful.processor import StatefulWork
from headrace.engine.worker.hidden import TIME
from headrace.engine.worker.shuffle import KEY
from headrace.engine.worker.sidevalues import ShownCells, SideValue
from headrace.model.algebra import CombineFn, MeanFn, SumFn, TopFn
from headrace.model.errors import PipelineError
from headrace.model.panes import GLOBAL, Windowing
from headrace.model.times import MAX_TIME, MIN_TIME, SECOND
from headrace.model.windows import CountWindows
from tests.engine.shard import test_joinprocessor as joins
from tests.engine.shard import test_processor_properties as panes
from tests.engine.sides import test_processor as sides
from tests.engine.stateful import test_processor as stateful
from tests.reference_panes import Element
from tests.scale import examples

Deal = Callable[[pa.RecordBatch, int, bool], Iterator[pa.RecordBatch | None]]

counts = st.lists(st.none() | st.tuples(st.sampled_from([1, 2, 3, 4, 11]), st.booleans()), min_size=8, max_size=8)
"""Before which steps the number of shards changes, to what, and whether from blocks or from blocks and deltas."""


def by_key(rows: pa.RecordBatch, shards: int, by_slot: bool) -> Iterator[pa.RecordBatch | None]:
    numbers = shards_of(rows.column(KEY), shards, by_slot=by_slot)
    return (rows.filter(pa.array(numbers == shard)) for shard in range(shards))


class ShardSet:
    """All shards of an exchange, of which the first stream had two, by slot or by remainder."""

    def __init__(self, make: Callable[[], Any], identity: Any, deal: Deal, *, by_slot: bool) -> None:
        self.make, self.deal, self.by_slot = make, deal, by_slot
        self.layout = layout_of("x", json.loads(json.dumps(identity)))
        self.shards = [make() for _ in range(2)]
        self.blocks = [shard.dump() for shard in self.shards]

    def step(self, rows: pa.RecordBatch | None, clocks: Clocks) -> list[StepResult]:
        dealt = [None] * len(self.shards) if rows is None else self.deal(rows, len(self.shards), self.by_slot)
        steps = [shard.step(each, clocks) for shard, each in zip(self.shards, dealt, strict=True)]
        for blocks, shard in zip(self.blocks, self.shards, strict=True):
            blocks += shard.changes()
        return steps

    def rescale(self, shards: int, *, from_deltas: bool) -> None:
        before, after = len(self.shards), shards
        resharding = Resharding(self.layout, before, after, self.by_slot)
        names = ShardCounts({0: before}, {0: after})
        header = {
            "upstream": Upstream({}).dump().decode(),
            "delays": [],
            "late": 1,
            "refused": 0,
            "copies": {"used": 1},
        }
        pieces: dict[int, list[ShardPiece]] = {}
        for number, (shard, blocks) in enumerate(zip(self.shards, self.blocks, strict=True)):
            whole = ShardPiece(header, blocks if from_deltas else shard.dump())
            for target, piece in resharding.split(number, whole):
                pieces.setdefault(target, []).append(piece)
        assert sorted(pieces) == list(range(after))
        merged = [resharding.merge(pieces[target], names, ()) for target in range(after)]
        assert sum(each.header["late"] for each in merged) == before
        self.by_slot = True
        self.shards, self.blocks = [self.make() for _ in merged], [each.blocks for each in merged]
        for shard, blocks in zip(self.shards, self.blocks, strict=True):
            shard.load(blocks)


def check(
    one: Any, many: ShardSet, steps: list[tuple[Any, Clocks]], changes: list[Any], emitted: Callable[[StepResult], Any],
    *, watermarks: bool = True,
) -> None:  # fmt: skip
    for (rows, clocks), change in zip(steps, [*changes, *[None] * len(steps)], strict=False):
        if change is not None:
            many.rescale(change[0], from_deltas=change[1])
        expected, results = one.step(rows, clocks), many.step(rows, clocks)
        assert sum((Counter(map(repr, emitted(each))) for each in results), Counter()) == Counter(
            map(repr, emitted(expected))
        )
        if watermarks:
            assert min(each.watermark for each in results) == expected.watermark
        assert sum(each.refused for each in results) == expected.refused


@pytest.mark.slow("hundreds of scripts, with processors made anew")
@examples(200)
@given(
    windowing=panes.windowings | panes.merging_windowings,
    script=panes.moves | panes.crowded_moves,
    fn=st.sampled_from([None, SumFn(), MeanFn(), TopFn(2)]),
    changes=counts,
    by_slot=st.booleans(),
)
def test_groupings(
    windowing: Windowing, script: list[Any], fn: CombineFn[Any, Any, Any] | None, changes: list[Any], by_slot: bool
) -> None:
    work = Grouping(windowing, fn)
    steps = [
        (panes.rows_of(elements, windowing.window), clocks)
        for elements, clocks, _, _ in panes.reference_steps(windowing, script)
    ]
    many = ShardSet(work.processor, work.identity(), by_key, by_slot=by_slot)
    # A count window may hold a time that the watermark has passed: only then does it matter who shares its shard.
    counted = isinstance(windowing.window, CountWindows)
    check(work.processor(), many, steps, changes, panes.emissions, watermarks=not counted)


class Remembering(hr.DoFn):
    """State and timers of every kind: gives what it has after a while of event time, and of processing time."""

    numbers = hr.ListState("numbers")
    total = hr.CombiningState("total", sum)
    due = hr.TimerSpec("due")
    idle = hr.TimerSpec("idle", "processing")

    def process(
        self,
        pair: Any,
        numbers: Any = hr.DoFn.StateParam(numbers),
        total: Any = hr.DoFn.StateParam(total),
        due: Any = hr.DoFn.TimerParam(due),
        idle: Any = hr.DoFn.TimerParam(idle),
    ) -> Iterator[Any]:
        numbers.add(pair[1])
        total.add(pair[1])
        due.after(7)
        idle.after(5)
        yield pair, len(numbers.read()), total.read()

    @hr.on_timer(due)
    def ring(self, key: Any = hr.DoFn.ElementParam, numbers: Any = hr.DoFn.StateParam(numbers)) -> Iterator[Any]:
        yield key, numbers.read()
        numbers.clear()

    @hr.on_timer(idle)
    def rest(self, key: Any = hr.DoFn.ElementParam, total: Any = hr.DoFn.StateParam(total)) -> Iterator[Any]:
        yield key, "idle", total.read()


@examples(100)
@given(
    st.sampled_from([GLOBAL, Windowing(hr.FixedWindows(10), allowed_lateness=5)]), panes.moves, counts, st.booleans()
)
def test_stateful_dofns(windowing: Windowing, script: list[Any], changes: list[Any], by_slot: bool) -> None:
    work: StatefulWork = stateful.work_of(Remembering(), windowing=windowing)
    steps, watermark, now, number = [], 0, 0, 0
    for move in script:
        watermark, now = min(watermark + move.watermark * SECOND, MAX_TIME), now + move.now * SECOND
        elements = [(f"k{key}", number + at, second) for at, (key, second) in enumerate(move.elements)]
        number += len(elements)
        rows = stateful.rows_of(*elements, windowing=windowing) if elements else None
        steps.append((rows, Clocks(watermark, now)))

    def emitted(step: StepResult) -> list[Any]:
        bundles = (bundle for _, bundle in work.bundles(step.panes))
        return [each for bundle in bundles for each in zip(bundle.elements, bundle.all_times(), strict=True)]

    many = ShardSet(work.processor, work.identity(), by_key, by_slot=by_slot)
    # Which keys share a shard decides what a late element can hold back.
    check(work.processor(), many, steps, changes, emitted, watermarks=False)


def dealt_by(pairs: Any) -> Deal:
    from headrace.engine.columns.joinkeys import encode_join_keys
    from headrace.engine.shard.joinprocessor import _by_side

    def deal(rows: pa.RecordBatch, shards: int, by_slot: bool) -> Iterator[pa.RecordBatch | None]:
        split = dict(_by_side(rows, joins.spec(pairs, "inner", 0)))
        numbers = {
            side: shards_of(
                encode_join_keys([split[side].column(name[side]) for name in pairs]), shards, by_slot=by_slot
            )
            for side in (LEFT, RIGHT)
        }
        for shard in range(shards):
            parts = [arrivals(side, split[side].filter(pa.array(numbers[side] == shard))) for side in (LEFT, RIGHT)]
            yield pa.concat_batches(parts)

    return deal


@pytest.mark.slow("many sequences of rescales, in plain Python")
@examples(200)
@given(
    joins.moves, st.sampled_from(joins.PAIRS), st.sampled_from(joins.HOWS), st.sampled_from([0, 7]), counts,
    st.booleans(),
)  # fmt: skip
def test_joins(moves: list[Any], pairs: Any, how: str, lateness: int, changes: list[Any], by_slot: bool) -> None:
    spec = joins.spec(pairs, how, lateness)
    many = ShardSet(
        lambda: JoinProcessor(spec), {"kind": "join", "on": identity_of(pairs)}, dealt_by(pairs), by_slot=by_slot
    )
    steps, number = [], 0
    for events, watermark, _ in moves:
        batches = []
        for side in (LEFT, RIGHT):
            names = (("id", "x", "l"), ("key", "z", "r"))[side]
            rows = [
                (dict(zip(names, (key, x, number + at), strict=True)), time)
                for at, (which, key, x, time) in enumerate(events)
                if which == side
            ]
            batches.append(joins.batch(side, rows))
        number += len(events)
        steps.append((pa.concat_batches(batches), Clocks(watermark)))
    check(JoinProcessor(spec), many, steps, changes, lambda step: step.panes.to_pylist())


@pytest.mark.slow("many sequences of rescales, in plain Python")
@examples(200)
@given(
    st.sampled_from([Windowing(hr.GlobalWindows()), Windowing(hr.FixedWindows(5), allowed_lateness=8)]),
    sides.global_sides, sides.steps, counts, st.booleans(),
)  # fmt: skip
def test_side_inputs(
    windowing: Windowing, side: Windowing, script: list[Any], changes: list[Any], by_slot: bool
) -> None:
    value = SideValue("s", "list", side.window, ShownCells())
    work = SideInputWork(windowing, (SideView(Grouping(side), ("s",)),), (value,))

    def deal(rows: pa.RecordBatch, shards: int, by_slot: bool) -> Iterator[pa.RecordBatch | None]:
        main = np.asarray(rows.column(ROLE)) == MAIN
        numbers = np.where(main, np.asarray(rows.column(TIME).fill_null(0)) // SECOND % shards, -1)
        return (rows.filter(pa.array((numbers == shard) | ~main)) for shard in range(shards))

    steps, watermark, mark, now, number = [], 0, 0, 0, 0
    for mains, of_sides, moved, _ in script:
        watermark, mark = watermark + moved[0] * SECOND, mark + moved[1] * SECOND
        now, number = now + moved[3] * SECOND, number + 4
        main = [(number + at, time * SECOND) for at, time in enumerate(mains)]
        shown = [((time % 3, number + at), time * SECOND) for at, time in enumerate(of_sides[0])]
        batches = [sides.rows_of(windowing.window, MAIN, main)] if main else []
        batches += [sides.rows_of(side.window, 1, shown)] if shown else []
        batches.append(clock_rows(1, ClockReport(lows={"s": mark})))
        steps.append((pa.concat_batches(batches), Clocks(watermark, now)))

    def emitted(step: StepResult) -> list[Any]:
        return [
            (value, time, seen)
            for _, bundle in work.bundles(step.panes)
            for value, time, seen in zip(
                bundle.elements,
                bundle.all_times().tolist(),
                [value_of(window) for window in bundle.windows()],
                strict=True,
            )
        ]

    def value_of(window: Any) -> Any:
        return value.value(window)

    many = ShardSet(work.processor, work.identity(), deal, by_slot=by_slot)
    # Late rows of the side input are in every shard, and so are those that its finished windows refuse.
    check(work.processor(), many, steps, changes, emitted)


@examples(300)
@given(st.lists(st.binary(max_size=9), min_size=1), st.integers(1, 300), st.integers(1, 300))
def test_a_key_is_in_one_of_the_shards_that_have_slots_of_its_shard(keys: list[bytes], before: int, after: int) -> None:
    encoded = pa.array(keys, pa.binary())
    for was, now in zip(shards_of(encoded, before).tolist(), shards_of(encoded, after).tolist(), strict=True):
        assert now in shards_in(was, before, after)
    assert sum(len(shards_in(shard, before, after)) for shard in range(before)) < before + after
    assert set(slots_of(encoded).tolist()) <= set(range(SLOTS))


def test_state_that_cannot_be_moved_is_refused_by_name() -> None:
    with pytest.raises(PipelineError, match=r"'count' is of an early version.*run its pipeline once with this version"):
        layout_of("count", None)
    with pytest.raises(PipelineError, match="'count' is of a kind, 'magic', that cannot be moved"):
        layout_of("count", {"kind": "magic"})


def test_keys_of_a_shard_that_are_not_its_own_are_not_lost() -> None:
    shard = Grouping(GLOBAL).processor()
    rows = panes.rows_of([Element("a", 1, 0), Element("b", 2, 0)], GLOBAL.window)
    shard.step(rows, Clocks(MIN_TIME))
    layout = layout_of("count", Grouping(GLOBAL).identity())
    with pytest.raises(ValueError, match="rows of a shard have keys of another"):
        layout.split(shard.dump(), lambda keys: shards_of(keys, 1) + 5, range(1))
