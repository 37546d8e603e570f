"""Elements that wait for side inputs which are streams: the processor against a naive definition, and its state."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.engine.plan.line import Line
from headrace.engine.plan.lowering import lower
from headrace.engine.shard.clocks import Clocks
from headrace.engine.shard.delays import sketch
from headrace.engine.shard.reports import ClockReport, TaskClocks
from headrace.engine.shard.wire import unpack
from headrace.engine.shard.work import Grouping
from headrace.engine.sides.processor import SideInputWork, SideProcessor
from headrace.engine.sides.rows import MAIN, ROLE, ROWS, ToEveryShard, ToRole, ToSpread, clock_rows
from headrace.engine.sides.sideviews import DictFn, SideView
from headrace.engine.worker.bundles import Bundle
from headrace.engine.worker.operators import WindowOperator
from headrace.engine.worker.sidevalues import ShownCells, SideValue, side_window
from headrace.model.panes import PaneInfo, Windowing
from headrace.model.times import MAX_TIME, MIN_TIME, SECOND
from headrace.model.triggers import Trigger
from headrace.model.windows import WindowFn
from tests.reference_panes import Element, Reference
from tests.scale import examples


@dataclass
class Naive:
    """The definition: everything that waits is looked at in every step, and nothing is ever forgotten."""

    windowing: Windowing
    shapes: list[str]
    groups: list[Reference]
    seen: list[dict[tuple[int, int], Any]] = field(default_factory=list)
    waiting: list[tuple[Any, int, tuple[int, int]]] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)
    watermark: int = MIN_TIME
    output: int = MIN_TIME
    late: int = 0

    def step(self, main: list[Any], sides: list[list[Any]], marks: list[int], watermark: int, now: int) -> list[Any]:
        for number, (group, elements) in enumerate(zip(self.groups, sides, strict=True)):
            panes = group.step([Element(None, value, time) for value, time in elements], marks[number], now, {})
            for pane in panes:
                values = list(pane[3])
                self.seen[number][pane[1], pane[2]] = dict(values) if self.shapes[number] == "dict" else values
        for value, time in main:
            for window in windows_of(self.windowing.window, time):
                if min(window[1] + self.windowing.allowed_lateness, MAX_TIME) <= self.watermark:
                    self.late += 1
                else:
                    self.waiting.append((value, time, window))
        self.marks = [max(*both) for both in zip(self.marks, marks, strict=True)]
        given, still = [], []
        for value, time, window in self.waiting:
            of_sides = [side_window(group.windowing.window, window) for group in self.groups]
            if all(w in seen or mark >= w[1] for w, seen, mark in zip(of_sides, self.seen, self.marks, strict=True)):
                empty = [{} if shape == "dict" else [] for shape in self.shapes]
                shown = [seen.get(w, nothing) for w, seen, nothing in zip(of_sides, self.seen, empty, strict=True)]
                given.append((value, time, window, shown))
            else:
                still.append((value, time, window))
        self.waiting = still
        self.watermark = max(self.watermark, watermark)
        self.output = max(self.output, min([self.watermark, *(time for _, time, _ in still)]))
        return given


def windows_of(window: WindowFn, time: int) -> list[tuple[int, int]]:
    _, start, end = window.assign(np.array([time], np.int64))
    return list(zip(start.tolist(), end.tolist(), strict=True))


def rows_of(window: WindowFn, role: int, elements: list[tuple[Any, int]]) -> pa.RecordBatch:
    bundle = Bundle([value for value, _ in elements], np.array([time for _, time in elements], np.int64))
    return ToRole(role).batch(next(WindowOperator("w", window).run(bundle))[1])


GLOBAL_TRIGGERS: list[Trigger] = [
    hr.Repeatedly(hr.AfterCount(1)),
    hr.Repeatedly(hr.AfterCount(3)),
    hr.Repeatedly(hr.AfterProcessingTime(5)),
]
WINDOW_TRIGGERS: list[Trigger] = [
    hr.DefaultTrigger(),
    hr.AfterWatermark(early=hr.AfterCount(2), late=hr.AfterCount(1)),
    hr.AfterWatermark(),
    hr.Repeatedly(hr.AfterCount(2)),
    hr.AfterCount(2),
]
modes = st.sampled_from(["discarding", "accumulating"])
lateness = st.sampled_from([0, 8])
global_sides = st.builds(Windowing, st.just(hr.GlobalWindows()), st.sampled_from(GLOBAL_TRIGGERS), modes)
windowed_sides = st.builds(
    Windowing,
    st.sampled_from([hr.FixedWindows(10), hr.SlidingWindows(10, 5), hr.CalendarWindows("day")]),
    st.sampled_from(WINDOW_TRIGGERS),
    modes,
    lateness,
)
windowed_mains = st.builds(
    Windowing, st.sampled_from([hr.FixedWindows(5), hr.FixedWindows(20), hr.Sessions(3)]), allowed_lateness=lateness
)
cases = st.one_of(
    st.tuples(st.just(Windowing(hr.GlobalWindows())), st.lists(global_sides, min_size=1, max_size=2)),
    st.tuples(windowed_mains, st.lists(st.one_of(global_sides, windowed_sides), min_size=1, max_size=2)),
)
times = st.integers(0, 40)
END = MAX_TIME // SECOND + 1
steps = st.lists(
    st.tuples(
        st.lists(times, max_size=4),
        st.lists(st.lists(times, max_size=3), min_size=2, max_size=2),
        st.tuples(st.integers(0, 12), st.integers(0, 12), st.integers(0, 12), st.integers(0, 6)),
        st.sampled_from(["", "", "load", "dump"]),
    ),
    max_size=12,
)


@pytest.mark.slow("several hundred examples")
@examples(250)
@given(cases, steps, st.lists(st.sampled_from(["list", "dict"]), min_size=2, max_size=2))
def test_an_element_goes_on_once_its_side_windows_have_something_to_show(
    case: tuple[Windowing, list[Windowing]], script: list[Any], shapes: list[str]
) -> None:
    windowing, sides = case
    count = len(sides)
    shapes = shapes[:count]
    views = tuple(
        SideView(Grouping(side, DictFn() if shape == "dict" else None), (f"s{n}",))
        for n, (side, shape) in enumerate(zip(sides, shapes, strict=True))
    )
    values = tuple(SideValue("s", shape, side.window, ShownCells()) for side, shape in zip(sides, shapes, strict=True))
    work = SideInputWork(windowing, views, values)
    naive = Naive(windowing, shapes, [Reference(side) for side in sides], [{} for _ in sides], marks=[MIN_TIME] * count)
    processor = work.processor()
    blocks = processor.dump()
    marks, watermark, now, number, late = [0] * count, 0, 0, 0, 0
    for mains, of_sides, moves, persist in [*script, ([], [[], []], (END, END, END, 0), "")]:
        watermark, now = min(watermark + moves[0] * SECOND, MAX_TIME), now + moves[3] * SECOND
        marks = [min(mark + move * SECOND, MAX_TIME) for mark, move in zip(marks, moves[1:], strict=False)]
        main = [(number + n, time * SECOND) for n, time in enumerate(mains)]
        given_sides = [
            [((time % 3, f"{role} {number + n}"), time * SECOND) for n, time in enumerate(each)]
            for role, each in enumerate(of_sides[:count])
        ]
        number += 4
        rows = [rows_of(windowing.window, MAIN, main)] if main else []
        for role, (side, elements) in enumerate(zip(sides, given_sides, strict=True), 1):
            rows += [rows_of(side.window, role, elements)] if elements else []
            rows.append(clock_rows(role, ClockReport(lows={f"s{role - 1}": marks[role - 1]})))
        step = processor.step(pa.concat_batches(rows), Clocks(watermark, now))
        expected = naive.step(main, given_sides, marks, watermark, now)
        got = []
        for _, bundle in work.bundles(step.panes):
            windows = bundle.windows()
            for value, time, window in zip(bundle.elements, bundle.all_times().tolist(), windows, strict=True):
                got.append((value, time, window, [side.value(window) for side in values]))
        assert Counter(map(repr, got)) == Counter(map(repr, expected))
        assert step.watermark == naive.output
        late += 0 if step.late is None else step.late.num_rows
        assert late == naive.late + sum(len(group.late) for group in naive.groups)
        blocks += processor.changes()
        if persist:
            whole = processor.dump()
            again = work.processor()
            again.load(blocks if persist == "load" else whole)
            assert again.dump() == whole
            processor, blocks = again, whole
    assert not processor.waiting


def test_what_no_element_can_see_any_more_is_forgotten() -> None:
    side = Windowing(hr.FixedWindows(10))
    processor = SideProcessor(Windowing(hr.FixedWindows(5), allowed_lateness=3), (SideView(Grouping(side), ("s",)),))
    seen = rows_of(side.window, 1, [("x", 1 * SECOND), ("y", 12 * SECOND)])
    processor.step(pa.concat_batches([seen, clock_rows(1, ClockReport(lows={"s": 30 * SECOND}))]), Clocks(5 * SECOND))
    assert len(processor.sides[0].shown) == 2
    processor.step(None, Clocks(12 * SECOND))
    assert len(processor.sides[0].shown) == 2  # an element that is late, but not too late, may still come
    processor.step(None, Clocks(13 * SECOND))
    assert list(processor.sides[0].shown) == [(10 * SECOND, 20 * SECOND)]


def test_the_watermark_of_a_side_input_may_be_by_its_disorder() -> None:
    side = Windowing(hr.FixedWindows(10))
    processor = SideProcessor(Windowing(hr.FixedWindows(10)), (SideView(Grouping(side), ("s",)),))
    report = ClockReport(lows={"s": None}, partitions={"s": {"a": MIN_TIME}})
    for times in ([1, 12], [11, 40]):
        disorder = {"s": {"a": sketch(np.array(times) * SECOND, 0.5)}}
        processor.step(clock_rows(1, replace(report, disorder=disorder)))
    assert processor.sides[0].upstream.watermark == 40 * SECOND
    again = SideProcessor(processor.windowing, (processor.sides[0].view,))
    again.load(processor.dump())
    assert again.sides[0].upstream == processor.sides[0].upstream


def test_a_side_input_that_stands_still_holds_nothing_back() -> None:
    side = Windowing(hr.GlobalWindows(), hr.Repeatedly(hr.AfterCount(1)))
    processor = SideProcessor(Windowing(hr.FixedWindows(5)), (SideView(Grouping(side), ("s",)),))
    waits = processor.step(rows_of(hr.FixedWindows(5), MAIN, [("a", 1 * SECOND)]), Clocks(4 * SECOND))
    assert (waits.watermark, waits.held, waits.panes.num_rows) == (1 * SECOND, 1, 0)
    goes_on = processor.step(rows_of(side.window, 1, [("x", 0)]), Clocks(9 * SECOND))
    assert goes_on.watermark == 9 * SECOND and goes_on.panes.num_rows == 2


def test_panes_travel_with_the_elements() -> None:
    pane = PaneInfo("late", 4, 2, False, False)
    side = Windowing(hr.GlobalWindows(), hr.Repeatedly(hr.AfterCount(1)))
    value = SideValue("s", "list", side.window, ShownCells())
    work = SideInputWork(Windowing(hr.GlobalWindows()), (SideView(Grouping(side), ()),), (value,))
    rows = [ToRole(MAIN).batch(Bundle(["a"], pane=pane)), rows_of(side.window, 1, [("x", 0)])]
    ((_, bundle),) = work.bundles(work.processor().step(pa.concat_batches(rows)).panes)
    assert bundle.pane == pane and bundle.starts is None


# Into the shards


def test_the_main_input_is_spread_and_every_shard_has_the_whole_side_input() -> None:
    clocks = TaskClocks()
    clocks.observe("main", 7, now=9)
    clocks.observe("side", 5, now=9)
    clocks.observe("side", 6, now=9, partition="a")
    dests = (1, 2, 3)
    spread = ToSpread(ToRole(MAIN), dests, frozenset({"main"}), clocks=clocks)
    everywhere = ToEveryShard(ToRole(1), dests, frozenset({"side"}), clocks=clocks)
    elements = [*range(50), *[7] * 50]
    sent: dict[str, list[list[Any]]] = {}
    for name, output in (("main", spread), ("side", everywhere)):
        batches = [*output.add(Bundle(list(elements), np.arange(100))), *output.finish()]
        (batch,) = batches
        assert batch["dest"].to_pylist() == list(dests)
        bodies = [unpack(body) for body in batch["body"].to_pylist()]
        assert all(header["lows"] == ({"main": 7} if name == "main" else {}) for header, _ in bodies)
        assert all(rows.schema == ROWS for _, rows in bodies)
        sent[name] = [rows for _, rows in bodies]
    counts = [rows.num_rows for rows in sent["main"]]
    assert sum(counts) == 100 and min(counts) > 15  # equal elements are spread, too
    for rows in sent["side"]:
        told = rows.to_pylist()[-1]
        assert (rows.num_rows, told["key"], told["__time"], told["value"]) == (102, b'["side", "a"]', 6, None)
    assert [rows[ROLE].to_pylist() for rows in sent["side"]] == [[1] * 102] * 3


# Lowering


def lowered(p: hr.Pipeline) -> Line:
    return lower(p.graph(), shards=2, partitions=2)


def refreshed(pc: Any, **kwargs: Any) -> Any:
    return pc | "refresh" >> hr.WindowInto(hr.GlobalWindows(), trigger=hr.Repeatedly(hr.AfterCount(1)), **kwargs)


def test_a_side_input_of_panes_is_seen_as_they_come() -> None:
    p = hr.Pipeline()
    events = p | "events" >> hr.TestStream()
    by_count = events | hr.WindowInto(hr.FixedWindows(10), trigger=hr.Repeatedly(hr.AfterCount(5)))
    sums = by_count | "sums" >> hr.CombinePerKey(sum) | "same" >> hr.Map(lambda pair: pair)
    raw, panes, one = hr.AsList(by_count), hr.AsDict(sums), hr.AsSingleton(sums)
    _ = by_count | "see" >> hr.Map(lambda x, *sides: x, raw, panes, one)
    see = next(exchange for exchange in lowered(p).exchanges if exchange.label == "see")
    assert isinstance(see.work, SideInputWork)
    assert (see.level, see.upstream) == (2, ("events",))
    as_they_come = hr.Repeatedly(hr.AfterCount(1))
    windowings = [view.grouping.windowing for view in see.work.views]
    assert [
        (windowing.trigger, windowing.accumulation, view.upstream)
        for windowing, view in zip(windowings, see.work.views, strict=True)
    ] == [
        (hr.Repeatedly(hr.AfterCount(5)), "discarding", ("events",)),
        (as_they_come, "accumulating", ("0/0", "0/1")),
        (as_they_come, "discarding", ("0/0", "0/1")),
    ]


@pytest.mark.parametrize(
    ("windows", "side", "message"),
    [
        ({}, {}, "'see' .* would wait for ever: its side input .* default trigger"),
        ({}, {"window": hr.FixedWindows(10)}, "'see' .* would wait for ever: its input is in the global window"),
        (
            {"window": hr.FixedWindows(10)},
            {"window": hr.FixedWindows(10), "trigger": hr.Repeatedly(hr.AfterPercentile(0.9))},
            "'see' .* fires by AfterPercentile",
        ),
    ],
)
def test_what_would_never_be_seen_is_refused(windows: Any, side: Any, message: str) -> None:
    from headrace.model.validate import validate

    p = hr.Pipeline()
    events = p | hr.TestStream()
    main = events | "main" >> hr.WindowInto(**({"window": hr.GlobalWindows()} | windows))
    other = events | "side" >> hr.WindowInto(**({"window": hr.GlobalWindows()} | side))
    _ = main | "see" >> hr.Map(lambda x, side: x, hr.AsList(other))
    with pytest.raises(hr.PipelineError, match=message):
        validate(p.graph())
        lowered(p)


def test_what_was_made_with_an_older_side_input_cannot_be_taken_back() -> None:
    p = hr.Pipeline()
    events = p | hr.TestStream()
    sums = events | hr.WindowInto(hr.FixedWindows(10), accumulation="retracting") | hr.CombinePerKey(sum)
    _ = sums | "see" >> hr.Map(lambda x, side: x, hr.AsList(refreshed(events)))
    with pytest.raises(hr.PipelineError, match=r"'see' .* takes panes back"):
        lowered(p)
