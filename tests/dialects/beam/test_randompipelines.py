"""Random pipelines with state, timers, windows and combines: Beam's own runner, a batch and a stream here agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import VarIntCoder
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.testing.test_stream import TestStream
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms import trigger, window
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import BagStateSpec, CombiningValueStateSpec, TimerSpec, on_timer
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from headrace.dialects.beam import HeadraceRunner
from tests.dialects.beam.localstream import LocalRunner
from tests.scale import examples, only_full

Event = tuple[str, int, int]
"""A key, a value and a second."""


class AtEnd(beam.DoFn):  # type: ignore[misc]
    """Gives, at the end of a window, the values of a key in it, their sum, and how often a timer was set before."""

    VALUES = BagStateSpec("values", VarIntCoder())
    SUM = CombiningValueStateSpec("sum", sum)
    SET = CombiningValueStateSpec("set", sum)
    HALF = TimerSpec("half", TimeDomain.WATERMARK)
    END = TimerSpec("end", TimeDomain.WATERMARK)

    def process(
        self,
        pair: tuple[str, int],
        placed: Any = beam.DoFn.WindowParam,
        values: Any = beam.DoFn.StateParam(VALUES),
        total: Any = beam.DoFn.StateParam(SUM),
        end: Any = beam.DoFn.TimerParam(END),
    ) -> None:
        values.add(pair[1])
        total.add(pair[1])
        end.set(placed.max_timestamp())

    @on_timer(END)  # type: ignore[untyped-decorator]
    def again(
        self,
        placed: Any = beam.DoFn.WindowParam,
        count: Any = beam.DoFn.StateParam(SET),
        half: Any = beam.DoFn.TimerParam(HALF),
    ) -> None:
        count.add(1)
        half.set(placed.max_timestamp())

    @on_timer(HALF)  # type: ignore[untyped-decorator]
    def give(
        self,
        key: Any = beam.DoFn.KeyParam,
        values: Any = beam.DoFn.StateParam(VALUES),
        total: Any = beam.DoFn.StateParam(SUM),
        count: Any = beam.DoFn.StateParam(SET),
    ) -> Iterator[Any]:
        yield key, (*sorted(values.read()), total.read(), count.read())


_WINDOWS: dict[str, Callable[[], Any]] = {
    "fixed": lambda: window.FixedWindows(5),
    "sliding": lambda: window.SlidingWindows(6, 3),
    "sessions": lambda: window.Sessions(3),
}
_LATER: dict[str, Callable[[Any], Any]] = {
    "sum": lambda pc: pc | beam.CombinePerKey(sum),
    "count": lambda pc: pc | beam.combiners.Count.PerKey(),
    "groups": lambda pc: pc | beam.GroupByKey() | beam.MapTuple(lambda key, values: (key, tuple(sorted(values)))),
    "state": lambda pc: pc | beam.ParDo(AtEnd()),
}
_ACCUMULATION = [trigger.AccumulationMode.DISCARDING, trigger.AccumulationMode.ACCUMULATING]
_found: list[Any] = []


def note(element: Any) -> None:
    """Notes an element in this process, where all runners run."""
    _found.append(element)


def _in_window(element: Any, placed: Any = beam.DoFn.WindowParam) -> Any:
    return element, str(placed)


def _timed(event: Event) -> Any:
    return window.TimestampedValue((event[0], event[1]), event[2])


def _pair(pair: tuple[str, int]) -> tuple[str, int]:
    return pair


def built(p: beam.Pipeline, begin: Any, windows: str, later: str, mode: int, lateness: int) -> Any:
    """The pipeline, and what it gives: elements and their windows."""
    placing = _timed if isinstance(begin, beam.Create) else _pair
    placed = (
        p
        | "begin" >> begin
        | "place" >> beam.Map(placing).with_output_types(tuple[str, int])
        | beam.WindowInto(
            _WINDOWS[windows](), trigger=trigger.AfterWatermark(), accumulation_mode=mode, allowed_lateness=lateness
        )
    )
    return _LATER[later](placed) | "window" >> beam.Map(_in_window)


def options_of(begin: Any) -> PipelineOptions:
    """The options of a batch, or of a stream."""
    return PipelineOptions(["--allow_unsafe_triggers"] + ["--streaming"] * isinstance(begin, TestStream))


def results(runner: Any, begin: Any, *shape: Any) -> Counter[Any]:
    """What a runner makes of events."""
    _found.clear()
    with beam.Pipeline(runner=runner, options=options_of(begin)) as p:
        built(p, begin, *shape) | "note" >> beam.Map(note)
    return Counter(_found)


def script(events: list[Event], cuts: list[int]) -> TestStream:
    """The events in time order, in steps; the watermark follows them, so that none is late."""
    stream = TestStream()
    ordered = sorted(events, key=lambda event: event[2])
    ends = [*sorted({cut % (len(ordered) + 1) for cut in cuts}), len(ordered)]
    for begin, end in zip([0, *ends], ends, strict=False):
        if begin < end:
            stream = stream.advance_watermark_to(ordered[begin][2])
            stream = stream.add_elements([window.TimestampedValue(each[:2], each[2]) for each in ordered[begin:end]])
    return stream.advance_watermark_to_infinity()


_EVENTS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9), st.integers(0, 20)), min_size=1, max_size=8)


@pytest.mark.slow("three pipelines for each example")
@examples(25, deadline=None)
@given(
    _EVENTS,
    st.lists(st.integers(0, 8), max_size=3),
    st.sampled_from(sorted(_WINDOWS)),
    st.sampled_from(sorted(_LATER)),
    st.sampled_from(_ACCUMULATION),
    st.sampled_from([0, 4]),
)
def test_beams_runner_a_batch_and_a_stream_agree(
    events: list[Event], cuts: list[int], windows: str, later: str, mode: int, lateness: int
) -> None:
    if later == "state" and windows == "sessions":  # refused, as windows with state must not merge
        windows = "fixed"
    shape = windows, later, mode, lateness
    theirs = results(FnApiRunner(), beam.Create(events), *shape)
    assert results(HeadraceRunner(local=True), beam.Create(events), *shape) == theirs
    assert results(LocalRunner(), script(events, cuts), *shape) == theirs


@only_full("the same in this process, and other streams on Spark")
@pytest.mark.slow("a stream of a few micro-batches")
@pytest.mark.parametrize(("windows", "later"), [("sliding", "state"), ("sessions", "sum"), ("fixed", "groups")])
def test_a_stream_on_spark_agrees(spark: SparkSession, windows: str, later: str) -> None:
    events = [("a", 1, 0), ("b", 2, 1), ("a", 3, 4), ("a", 4, 11), ("b", 5, 12), ("a", 6, 19)]
    shape = windows, later, trigger.AccumulationMode.DISCARDING, 0
    theirs = results(FnApiRunner(), beam.Create(events), *shape)
    begin = script(events, [2, 4])
    with beam.Pipeline(runner=HeadraceRunner(), options=options_of(begin)) as p:
        found = built(p, begin, *shape) | "all" >> beam.WindowInto(window.GlobalWindows())
        assert_that(found, equal_to(list(theirs.elements())))
