"""Work by key that sees side inputs which are streams: against a naive definition, and its state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.engine.columns.cells import decode_cells
from headrace.engine.shard.clocks import Clocks
from headrace.engine.shard.processor import StepResult
from headrace.engine.shard.reports import ClockReport
from headrace.engine.shard.taggedbundles import pack_bundles, unpack_bundles
from headrace.engine.shard.windowbounds import bounds_of
from headrace.engine.shard.work import Grouping
from headrace.engine.sides.rows import MAIN, ToKeyedRole, ToRole, clock_rows
from headrace.engine.sides.sidedwork import SidedWork
from headrace.engine.sides.sideviews import SideView
from headrace.engine.worker.bundles import Bundle
from headrace.engine.worker.operators import WindowOperator
from headrace.engine.worker.shuffle import VALUE
from headrace.engine.worker.sidevalues import ShownCells, SideValue
from headrace.model.bundlefns import SideContents, WindowBounds
from headrace.model.panes import Windowing
from headrace.model.times import MIN_TIME, SECOND
from tests.scale import examples

MAIN_WINDOWS = Windowing(hr.FixedWindows(5), allowed_lateness=3)
SIDE_WINDOWS = Windowing(hr.FixedWindows(10), hr.Repeatedly(hr.AfterCount(1)), "accumulating", 2)


def ten(main: WindowBounds) -> WindowBounds:
    """Returns the window of ten seconds in which a window of five ends."""
    start = (main[1] - 1) // (10 * SECOND) * 10 * SECOND
    return start, start + 10 * SECOND


class Looking:
    """A processor that emits each value with what it sees, and once more in the next step."""

    def __init__(self, contents: SideContents) -> None:
        self.contents, self.again = contents, list[tuple[Any, WindowBounds]]()
        self.clocks, self.fractions = Clocks(), set[float]()

    def kept_windows(self) -> set[WindowBounds]:
        return {window for _, window in self.again}

    def step(self, rows: pa.RecordBatch | None = None, clocks: Clocks | None = None) -> StepResult:
        assert clocks is not None
        came = list[tuple[Any, WindowBounds]]()
        if rows is not None:
            start, end = bounds_of(rows)
            came = list(
                zip(decode_cells(rows.column(VALUE)), zip(start.tolist(), end.tolist(), strict=True), strict=True)
            )
        seen = [(value, window, tuple(self.contents.elements(ten(window)))) for value, window in [*self.again, *came]]
        self.again = came
        return StepResult(pack_bundles([(None, Bundle(seen))]), None, 0, clocks.watermark, 0)

    def dump(self) -> list[bytes]:
        return [repr(self.again).encode()]

    changes = dump

    def load(self, blocks: list[bytes]) -> None:
        self.again = eval(blocks[-1])


@dataclass(frozen=True)
class LookingWork:
    """Makes processors that look at one side input."""

    contents: SideContents | None = None
    needs_time = False
    retracts = False

    def seeing(self, contents: Sequence[SideContents]) -> LookingWork:
        (only,) = contents
        return replace(self, contents=only)

    def processor(self, shard: int = 0) -> Looking:
        assert self.contents is not None
        return Looking(self.contents)

    def bundles(self, emitted: pa.RecordBatch) -> Iterator[tuple[str | None, Bundle]]:
        return unpack_bundles(emitted)

    def identity(self) -> dict[str, Any]:
        return {"kind": "looking"}

    def describe(self) -> str:
        return "looking"


@dataclass
class Naive:
    """The definition: nothing is ever forgotten, and everything that waits is looked at in every step."""

    side: dict[WindowBounds, list[int]] = field(default_factory=dict)
    waiting: list[tuple[int, WindowBounds]] = field(default_factory=list)
    again: list[tuple[int, WindowBounds]] = field(default_factory=list)
    mark: int = MIN_TIME  # of the side input
    accepted: int = MIN_TIME  # what comes for windows that were over before this is too late
    watermark: int = MIN_TIME

    def step(self, main: list[tuple[int, int]], side: list[tuple[int, int]], mark: int, watermark: int) -> list[Any]:
        for value, time in side:
            window = ten((time, time + 1))
            if window[1] + 2 * SECOND > self.accepted:
                self.side.setdefault(window, []).append(value)
        self.mark = max(self.mark, mark)
        self.accepted = max(self.accepted, min(self.mark, self.watermark))
        for value, time in main:
            window = time // (5 * SECOND) * 5 * SECOND, (time // (5 * SECOND) + 1) * 5 * SECOND
            if window[1] + 3 * SECOND > self.watermark:
                self.waiting.append((value, window))
        self.watermark = max(self.watermark, watermark)
        free = [each for each in self.waiting if ten(each[1])[1] <= self.mark]
        self.waiting = [each for each in self.waiting if each not in free]
        seen = [(value, window, tuple(self.side.get(ten(window), ()))) for value, window in [*self.again, *free]]
        self.again = free
        return seen


def rows_of(role: ToRole, windowing: Windowing, elements: list[tuple[Any, int]]) -> list[pa.RecordBatch]:
    if not elements:
        return []
    bundle = Bundle([value for value, _ in elements], np.array([time for _, time in elements], np.int64))
    return [role.batch(next(WindowOperator("w", windowing.window).run(bundle))[1])]


times = st.lists(st.integers(0, 40), max_size=4)
steps = st.lists(st.tuples(times, times, st.integers(0, 12), st.integers(0, 12), st.booleans()), max_size=12)


@pytest.mark.slow("several hundred examples")
@examples(200)
@given(steps)
def test_work_sees_windows_that_are_over(script: list[Any]) -> None:
    value = SideValue("side", "bundles", SIDE_WINDOWS.window, ShownCells())
    view = SideView(Grouping(SIDE_WINDOWS), ("side",), ten, complete=True)
    work = SidedWork("looking", LookingWork(), MAIN_WINDOWS, (view,), (value,))
    naive, processor, blocks = Naive(), work.processor(), list[bytes]()
    mark = watermark = number = 0
    for mains, sides, main_moves, side_moves, reloads in [*script, ([], [], 100, 100, False), ([], [], 0, 0, False)]:
        mark, watermark = mark + side_moves * SECOND, watermark + main_moves * SECOND
        main = [(number + n, time * SECOND) for n, time in enumerate(mains)]
        side = [(number + n, time * SECOND) for n, time in enumerate(sides)]
        number += 4
        rows = rows_of(ToKeyedRole(MAIN), MAIN_WINDOWS, [((b"k%d" % each, each), time) for each, time in main])
        rows += rows_of(ToRole(1), SIDE_WINDOWS, side)
        rows.append(clock_rows(1, ClockReport(lows={"side": mark})))
        step = processor.step(pa.concat_batches(rows), Clocks(watermark, 0))
        got = [element for _, bundle in work.bundles(step.panes) for element in bundle.elements]
        assert Counter(map(repr, got)) == Counter(map(repr, naive.step(main, side, mark, watermark)))
        assert step.watermark <= watermark
        blocks += processor.changes()
        if reloads:
            processor = work.processor()
            processor.load(blocks)
    assert not naive.waiting


def test_side_inputs_with_an_end_make_no_exchange_of_their_own() -> None:
    value = SideValue("side", "bundles", hr.GlobalWindows(), ShownCells({None: b""}))
    work = SidedWork("w", LookingWork(), MAIN_WINDOWS, (), (value,))
    assert isinstance(work.processor(), Looking)
    assert (work.identity(), work.describe()) == ({"kind": "looking"}, "looking")
