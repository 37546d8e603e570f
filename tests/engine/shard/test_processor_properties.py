"""The shard processor against the definition of streaming semantics, and against itself restored from its blocks."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.aggregation.accumulators import RowKind
from headrace.engine.columns.cells import decode_cells, encode_cells
from headrace.engine.columns.hashing import HASHES
from headrace.engine.shard import ordinals, windowtable
from headrace.engine.shard.clocks import Clocks
from headrace.engine.shard.placing import COUNT
from headrace.engine.shard.processor import ShardProcessor, StepResult
from headrace.engine.worker.columnbundles import TIMINGS
from headrace.engine.worker.hidden import END, START, TIME
from headrace.engine.worker.shuffle import KEY, SPELLING, VALUE
from headrace.model.algebra import CombineFn, CountFn, MaxFn, MeanFn, SumFn, TopFn
from headrace.model.keys import decode_keys, encode_keys
from headrace.model.panes import Windowing
from headrace.model.times import MAX_TIME, SECOND
from headrace.model.triggers import (
    AfterAll,
    AfterAny,
    AfterCount,
    AfterEach,
    AfterPercentile,
    AfterProcessingTime,
    AfterWatermark,
    Always,
    DefaultTrigger,
    Never,
    OrFinally,
    Repeatedly,
    Trigger,
)
from headrace.model.windows import (
    CalendarWindows,
    CountWindows,
    FixedWindows,
    GlobalWindows,
    Sessions,
    SlidingWindows,
    UnalignedWindows,
    Window,
    WindowFn,
)
from tests.reference_panes import Element, Reference
from tests.scale import examples

QS = (0.5, 1.0)


class Clumps(WindowFn):
    """One second from each element; those that begin in the same twenty seconds merge, overlapping or not."""

    merging = True

    def windows_of(self, time: int, key: object) -> Iterable[tuple[int, int]]:
        return [(time, time + SECOND)]

    def merge(self, windows: Sequence[Window]) -> list[list[int]]:
        clumps: dict[int, list[int]] = {}
        for position, window in enumerate(windows):
            clumps.setdefault(window.start // (20 * SECOND), []).append(position)
        return list(clumps.values())


class Nearby(WindowFn):
    """No window for odd seconds, two for even ones."""

    def windows_of(self, time: int, key: object) -> Iterable[tuple[int, int]]:
        second = time // SECOND
        return [(time - SECOND, time + SECOND), (0, 50 * SECOND)] if second % 2 == 0 else []


WINDOWS: list[WindowFn] = [
    FixedWindows(10),
    FixedWindows(10),
    SlidingWindows(20, period=10),
    Sessions(5),
    Sessions(9),
    GlobalWindows(),
    CountWindows(3),
    UnalignedWindows(15),
    CalendarWindows("day"),
    Clumps(),
    Nearby(),
]

once = st.one_of(
    st.integers(1, 4).map(AfterCount),
    st.sampled_from([0, 3, 10]).map(AfterProcessingTime),
    st.sampled_from(QS).map(AfterPercentile),
    st.just(AfterWatermark()),
)
leaves: st.SearchStrategy[Trigger] = st.one_of(once, st.sampled_from([DefaultTrigger(), Always(), Never()]))


def nested(inner: st.SearchStrategy[Trigger]) -> st.SearchStrategy[Trigger]:
    several = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        inner.map(Repeatedly),
        st.builds(AfterWatermark, early=st.none() | inner, late=st.none() | inner),
        several.map(lambda triggers: AfterAny(*triggers)),
        several.map(lambda triggers: AfterAll(*triggers)),
        several.map(lambda triggers: AfterEach(*triggers)),
        st.builds(OrFinally, inner, inner),
    )


triggers = st.one_of(leaves, nested(leaves), nested(nested(leaves)), nested(nested(nested(leaves))))


def windowings_of(windows: list[WindowFn], triggers: st.SearchStrategy[Trigger]) -> st.SearchStrategy[Windowing]:
    return st.builds(
        Windowing,
        window=st.sampled_from(windows),
        trigger=triggers,
        accumulation=st.sampled_from(["discarding", "accumulating", "retracting"]),
        allowed_lateness=st.sampled_from([0, 0, 7, 30, 1000]),
        timestamp_combiner=st.sampled_from(["end_of_window", "earliest", "latest"]),
        closing=st.sampled_from(["non_empty", "non_empty", "always"]),
    )


windowings = windowings_of(WINDOWS, triggers)
merging_windowings = windowings_of([Sessions(5), Sessions(9), Clumps()], leaves | nested(leaves))


@dataclass
class Move:
    """A step: seconds and keys of its elements, and how far the clocks go."""

    elements: list[tuple[int, int]]
    watermark: int
    now: int
    percentile: int


def moves_of(keys: int, seconds: int, watermarks: list[int]) -> st.SearchStrategy[list[Move]]:
    move = st.builds(
        Move,
        elements=st.lists(st.tuples(st.integers(0, keys - 1), st.integers(0, seconds)), max_size=5),
        watermark=st.sampled_from(watermarks),
        now=st.sampled_from([0, 0, 1, 4, 12]),
        percentile=st.sampled_from([0, 0, 7, 25]),
    )
    return st.lists(move, min_size=1, max_size=7)


moves = moves_of(3, 60, [0, 0, 0, 2, 5, 11, 30, 10**9])
crowded_moves = moves_of(1, 40, [0, 0, 0, 1, 6, 15])
KEYS: list[Any] = ["a", None, 2.0]  # the last is spelled otherwise than it is encoded


def rows_of(elements: list[Element], window: WindowFn) -> pa.RecordBatch:
    keys = [element.key for element in elements]
    times = np.array([element.time for element in elements], np.int64)
    columns: dict[str, Any] = {}
    index = np.arange(len(elements))
    if not isinstance(window, CountWindows):
        index, columns[START], columns[END] = window.assign(times, keys)
    encoded, spelling = encode_keys([keys[i] for i in index])
    columns |= {KEY: encoded, SPELLING: pa.nulls(len(index), pa.binary()) if spelling is None else spelling}
    values = encode_cells([elements[i].value for i in index])
    return pa.record_batch(columns | {TIME: times[index], VALUE: values})


def emissions(step: StepResult) -> list[tuple[Any, ...]]:
    panes = step.panes
    keys = decode_keys(panes.column(KEY), panes.column(SPELLING))
    names = (START, END, VALUE, TIME, "timing", "index", "on_time_index", "is_first", "is_last", "retraction")
    columns = {name: panes.column(name).to_pylist() for name in names}
    columns[VALUE] = decode_cells(panes.column(VALUE))
    columns["timing"] = [TIMINGS[code] for code in columns["timing"]]
    return list(zip(keys, *columns.values(), strict=True))


def reference_steps(windowing: Windowing, script: list[Move]) -> Iterable[tuple[list[Element], Clocks, Reference, Any]]:
    """The script's bundles and clocks, and what the definition says to each."""
    reference = Reference(windowing)
    watermark = now = percentile = count = 0
    for move in script:
        elements = [Element(KEYS[k], count + i, second * SECOND) for i, (k, second) in enumerate(move.elements)]
        count += len(elements)
        watermark = MAX_TIME if move.watermark == 10**9 else min(watermark + move.watermark * SECOND, MAX_TIME)
        now += move.now * SECOND
        percentile += move.percentile * SECOND
        percentiles = {0.5: percentile}
        expected = reference.step(elements, watermark, now, percentiles)
        yield elements, Clocks(watermark, now, percentiles), reference, copy.deepcopy(expected)


def check_step(step: StepResult, reference: Reference, late_before: int, refused: int) -> None:
    assert step.watermark == reference.output
    assert step.held == len(reference.states)
    assert (0 if step.late is None else step.late.num_rows) == len(reference.late) - late_before
    assert refused == reference.refused


@pytest.mark.slow("1,600 examples")
@examples(1_600)
@given(windowing=windowings, script=moves)
def test_panes_are_those_of_the_definition(windowing: Windowing, script: list[Move]) -> None:
    check_panes(windowing, script)


@examples(800)
@given(windowing=merging_windowings, script=crowded_moves)
def test_panes_of_merging_windows_are_those_of_the_definition(windowing: Windowing, script: list[Move]) -> None:
    check_panes(windowing, script)


def check_panes(windowing: Windowing, script: list[Move]) -> None:
    shard, late, refused = ShardProcessor(windowing), 0, 0
    for elements, clocks, reference, expected in reference_steps(windowing, script):
        step = shard.step(rows_of(elements, windowing.window), clocks)
        refused += step.refused
        assert emissions(step) == expected
        check_step(step, reference, late, refused)
        late = len(reference.late)


@examples(400)
@given(windowing=windowings, script=moves)
def test_panes_do_not_depend_on_which_keys_share_a_shard(windowing: Windowing, script: list[Move]) -> None:
    together, alone = ShardProcessor(windowing), {key: ShardProcessor(windowing) for key in KEYS}
    for elements, clocks, _, _ in reference_steps(windowing, script):
        whole = emissions(together.step(rows_of(elements, windowing.window), clocks))
        for key, shard in alone.items():
            mine = rows_of([element for element in elements if element.key == key], windowing.window)
            assert emissions(shard.step(mine, clocks)) == [pane for pane in whole if pane[0] == key]


AGGREGATIONS: list[CombineFn[Any, Any, Any]] = [SumFn(), CountFn(), MeanFn(), MaxFn(), TopFn(2)]


@examples(250)
@given(windowing=windowings, script=moves, fn=st.sampled_from(AGGREGATIONS), lifted=st.booleans(), large=st.booleans())
def test_aggregates_are_those_of_the_values_of_the_definition(
    windowing: Windowing, script: list[Move], fn: CombineFn[Any, Any, Any], lifted: bool, large: bool
) -> None:
    shard = ShardProcessor(windowing, fn, RowKind.ACCUMULATORS if lifted else RowKind.VALUES)
    scale = 2**61 if large else 1  # sums soon leave int64
    for elements, clocks, _, expected in reference_steps(windowing, script):
        rows = rows_of([Element(one.key, one.value * scale, one.time) for one in elements], windowing.window)
        if lifted:
            accs = [fn.dump(fn.add(fn.zero(), value)) for value in decode_cells(rows.column(VALUE))]
            rows = rows.set_column(rows.schema.get_field_index(VALUE), VALUE, encode_cells(accs))
        finished = [
            (*pane[:3], fn.finish(fn.add_all(fn.zero(), [value * scale for value in pane[3]])), *pane[4:])
            for pane in expected
        ]
        actual = emissions(shard.step(rows, clocks))
        # repr: the mean of nothing is nan, which is not equal to itself
        assert [repr(pane) for pane in actual] == [repr(pane) for pane in finished]


@pytest.mark.slow("every step of hundreds of scripts is restored")
@examples(400)
@given(
    windowing=windowings | merging_windowings,
    script=moves | crowded_moves,
    fn=st.sampled_from([None, SumFn(), TopFn(2)]),
    rewrite=st.lists(st.booleans(), min_size=7, max_size=7),
)
def test_a_restored_processor_goes_on_as_if_nothing_had_happened(
    windowing: Windowing, script: list[Move], fn: CombineFn[Any, Any, Any] | None, rewrite: list[bool]
) -> None:
    """Restored from the whole or from changes, or brought up to date by them: now and then, on top of what it had."""
    undisturbed, disturbed, follower = (ShardProcessor(windowing, fn) for _ in range(3))
    blocks, news = disturbed.dump(), list[bytes]()
    for (elements, clocks, _, _), whole in zip(reference_steps(windowing, script), rewrite, strict=False):
        rows = rows_of(elements, windowing.window)
        steps = [shard.step(rows, clocks) for shard in (undisturbed, disturbed)]
        assert steps[0] == steps[1]
        changes = disturbed.changes()
        blocks, news = disturbed.dump() if whole else blocks + changes, news + changes
        disturbed = ShardProcessor(windowing, fn)
        disturbed.load(blocks)
        assert undisturbed.dump() == disturbed.dump()
        if whole:
            follower.load(news)
            assert undisturbed.dump() == follower.dump()
            news = []


@examples(100)
@given(windowing=windowings, script=moves, cuts=st.lists(st.integers(1, HASHES - 1), max_size=2))
def test_parts_and_changes_amount_to_the_state(windowing: Windowing, script: list[Move], cuts: list[int]) -> None:
    """Once all ranges are written, at different times, nothing from before the first of them is needed."""
    shard, blocks, first = ShardProcessor(windowing), list[bytes](), None
    ranges = list(pairwise([0, *sorted(cuts), HASHES]))
    for elements, clocks, _, _ in reference_steps(windowing, script):
        shard.step(rows_of(elements, windowing.window), clocks)
        blocks += shard.changes()
        if ranges:
            first = len(blocks) if first is None else first
            blocks += shard.part(*ranges.pop())
            blocks = blocks if ranges else blocks[first:]
        restored = ShardProcessor(windowing)
        restored.load(blocks)
        assert restored.dump() == shard.dump()


@examples(60)
@given(windowing=windowings, script=moves)
def test_hashes_that_collide_make_no_difference(windowing: Windowing, script: list[Move]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for module in (ordinals, windowtable):
            patch.setattr(module, "mixed", lambda hashes, *_: hashes & np.uint64(1))
        check_panes(windowing, script)


@examples(100)
@given(windowing=windowings, script=moves)
def test_a_row_may_stand_for_several_elements(windowing: Windowing, script: list[Move]) -> None:
    if isinstance(windowing.window, CountWindows):
        return  # their elements have to be told apart
    one_by_one, combined = (ShardProcessor(windowing, SumFn(), RowKind.ACCUMULATORS) for _ in range(2))
    for elements, clocks, _, _ in reference_steps(windowing, script):
        tripled = [Element(one.key, one.value, one.time) for one in elements for _ in range(3)]
        rows = rows_of([Element(one.key, 3 * one.value, one.time) for one in elements], windowing.window)
        rows = rows.append_column(COUNT, pa.array([3] * rows.num_rows, pa.int64()))
        steps = [one_by_one.step(rows_of(tripled, windowing.window), clocks), combined.step(rows, clocks)]
        assert emissions(steps[0]) == emissions(steps[1])


def test_blocks_of_unknown_origin_are_not_read() -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema([("x", pa.int64())])):
        pass
    with pytest.raises(ValueError, match="names no kind; load only blocks"):
        ShardProcessor(Windowing(FixedWindows(10))).load([sink.getvalue().to_pybytes()])
