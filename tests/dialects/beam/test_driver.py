"""Headrace's grouping in a shard against Beam's own trigger driver: the same panes for the same steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.coders.coders import IntervalWindowCoder
from apache_beam.runners.pipeline_context import PipelineContext
from apache_beam.transforms import trigger
from apache_beam.transforms.core import Windowing as BeamWindowing
from apache_beam.transforms.window import TimestampCombiner, WindowFn
from hypothesis import given
from hypothesis import strategies as st

from headrace.dialects.beam.border import WindowBorder
from headrace.dialects.beam.driver import DriverShard
from headrace.dialects.beam.windowings import to_windowing
from headrace.engine.shard.clocks import Clocks
from headrace.engine.shard.processor import ShardProcessor
from headrace.engine.shard.rows import to_pairs
from headrace.engine.shard.work import pane_bundles
from headrace.engine.worker.bundles import Bundle, from_block
from headrace.model.panes import GLOBAL, NO_PANE, Windowing
from headrace.model.times import SECOND
from tests.scale import examples

LATENESS = 1_000  # no window closes within a script: Beam's driver emits no closing panes

Pane = tuple[Any, ...]


class Panes:
    """Steps both groupings with the same elements and clocks."""

    def __init__(self, windowing: BeamWindowing) -> None:
        ours = to_windowing(windowing.to_runner_api(PipelineContext()))
        assert ours is not None
        self.beams, self.ours, self.native = windowing, ours, ShardProcessor(ours)
        self.border = WindowBorder.of(IntervalWindowCoder())
        self.driver = DriverShard(windowing, self.border)

    def step(self, elements: list[tuple[bytes, int]], watermark: float, now: int) -> tuple[list[Pane], list[Pane]]:
        """Returns the panes of Headrace's grouping and those of Beam's driver."""
        clocks = Clocks(int(watermark * SECOND), now * SECOND)
        placed = [
            (key, time, window)
            for key, time in elements
            for window in self.beams.windowfn.assign(WindowFn.AssignContext(time))
        ]
        times = np.array([time * SECOND for _, time, _ in placed], np.int64)
        bounds = np.array([self.border.bounds(window) for _, _, window in placed], np.int64).reshape(-1, 2)
        values = [(key, b"%d" % time) for key, time, _ in placed]
        entries = [
            (key, (time * SECOND, self.border.bytes_of(window), NO_PANE, b"%d" % time)) for key, time, window in placed
        ]
        own = _rows(self.ours, Bundle(values, times, bounds[:, 0], bounds[:, 1]))
        theirs = _rows(GLOBAL, Bundle(entries, times))
        native = pane_bundles(self.native.step(own, clocks).panes, global_windows=False)
        driven = map(from_block, self.driver.step(theirs, clocks).panes.column("block").to_pylist())
        return sorted(_panes(native, self.beams)), sorted(_panes(driven, self.beams))


def _rows(windowing: Windowing, bundle: Bundle) -> pa.RecordBatch | None:
    if not bundle.elements:
        return None
    rows = to_pairs("pairs", windowing, retractable=False)
    return pa.concat_batches([*rows.add(bundle), *rows.finish()])


def _panes(bundles: Iterator[Bundle], windowing: BeamWindowing) -> Iterator[Pane]:
    """Lists panes, but for three things that Beam's driver says otherwise.

    A timer of processing time compares the end of the window with processing time: whether such a pane is early, and
    its time, are not compared. Without a trigger at the end of the window, the first pane after it is late there. And
    the earliest or latest time of a pane's elements is there that of all elements before it, too.
    """
    when = windowing.triggerfn
    by_clock, at_end = "ProcessingTime" in repr(when), windowing.timestamp_combiner == TimestampCombiner.OUTPUT_AT_EOW
    for bundle in bundles:
        pane = bundle.pane
        timing = pane.timing if when.has_ontime_pane() else pane.timing == "early"
        for (key, values), time, window in zip(
            bundle.elements, bundle.all_times().tolist(), bundle.windows(), strict=True
        ):
            told = () if by_clock else (time if at_end else None, timing, pane.on_time_index)
            yield key, window, sorted(values), pane.index, pane.is_first, pane.is_last, *told


def _steps(draw: st.DrawFn) -> list[tuple[list[tuple[bytes, int]], float, int]]:
    """Draws a script. A step does one thing: the driver judges elements before the clocks move, and then again."""
    script, watermark, now = list[tuple[list[tuple[bytes, int]], float, int]](), -1.5, 0
    element = st.tuples(st.sampled_from([b"a", b"b"]), st.integers(0, 30))
    for _ in range(draw(st.integers(1, 12))):
        elements = draw(st.lists(element, max_size=4))
        if not elements and draw(st.booleans()):
            watermark += draw(st.sampled_from([3, 8, 15]))
        elif not elements:
            now += draw(st.integers(1, 5))
        script.append((elements, watermark, now))
    return script


once = st.one_of(
    st.integers(1, 4).map(trigger.AfterCount),
    st.integers(1, 4).map(trigger.AfterProcessingTime),
)
# Beam's driver does not clear a timer of processing time when something else has fired, and then fires an empty pane: a
# trigger has such a timer alone or not at all.
counted = st.integers(1, 4).map(trigger.AfterCount)
triggers = st.one_of(
    st.just(trigger.DefaultTrigger()),
    st.just(trigger.Always()),
    once,
    st.builds(
        lambda early, late: trigger.AfterWatermark(early=early, late=late), st.none() | counted, st.none() | counted
    ),
    once.map(trigger.Repeatedly),
    st.builds(lambda a, b: trigger.Repeatedly(trigger.AfterAny(a, b)), counted, counted),
)
combiners = st.sampled_from(
    [TimestampCombiner.OUTPUT_AT_EOW, TimestampCombiner.OUTPUT_AT_EARLIEST, TimestampCombiner.OUTPUT_AT_LATEST]
)
modes = st.sampled_from([trigger.AccumulationMode.DISCARDING, trigger.AccumulationMode.ACCUMULATING])
window_fns = st.sampled_from([beam.window.FixedWindows(10), beam.window.SlidingWindows(10, 5)])


@given(st.composite(_steps)(), window_fns, triggers, modes, combiners)
@examples(400)
def test_panes_are_those_of_beams_driver(
    script: list[Any], window_fn: Any, when: Any, mode: Any, combiner: Any
) -> None:
    panes = Panes(BeamWindowing(window_fn, when, mode, combiner, LATENESS))
    for elements, watermark, now in script:
        native, driven = panes.step(elements, watermark, now)
        assert native == driven
