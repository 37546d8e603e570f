"""Groups of random batches are those of Beam's own runner, for every window, trigger and timestamp combiner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import apache_beam as beam
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.transforms import trigger, window
from apache_beam.transforms.window import TimestampCombiner
from hypothesis import given
from hypothesis import strategies as st

from headrace.dialects.beam import HeadraceRunner
from tests.scale import examples

_WINDOWS: list[Callable[[], Any]] = [
    window.GlobalWindows,
    lambda: window.FixedWindows(5),
    lambda: window.SlidingWindows(6, 3),
    lambda: window.Sessions(3),
]
_TRIGGERS: list[Callable[[], Any]] = [
    trigger.DefaultTrigger,
    trigger.AfterWatermark,
    lambda: trigger.Repeatedly(trigger.AfterCount(2)),
    lambda: trigger.AfterWatermark(early=trigger.AfterCount(2)),
]
_TIMES = [
    TimestampCombiner.OUTPUT_AT_EOW,
    TimestampCombiner.OUTPUT_AT_EARLIEST,
    TimestampCombiner.OUTPUT_AT_LATEST,
]


class WithPlace(beam.DoFn):  # type: ignore[misc]
    """Gives each group with its time, window and pane."""

    def process(
        self,
        element: tuple[str, Any],
        time: Any = beam.DoFn.TimestampParam,
        placed: Any = beam.DoFn.WindowParam,
        pane: Any = beam.DoFn.PaneInfoParam,
    ) -> Any:
        key, values = element
        # Beam's runner cuts times to milliseconds, and does not say which pane is the last one.
        yield key, tuple(sorted(values)), time.micros // 1000, str(placed), pane.index, pane.is_first


_collected: list[Any] = []


def collect(group: Any) -> None:
    """Notes a group in this process, where both runners run."""
    _collected.append(group)


def groups(runner: Any, values: list[Any], windowing: Any) -> list[Any]:
    """Returns the groups that a runner makes."""
    _collected.clear()
    with beam.Pipeline(runner=runner) as p:
        pairs = p | beam.Create(values) | beam.Map(lambda each: window.TimestampedValue(each[:2], each[2]))
        pairs | windowing | beam.GroupByKey() | beam.ParDo(WithPlace()) | beam.Map(collect)
    return sorted(_collected)


@examples(20)
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9), st.integers(0, 12)), min_size=1, max_size=8),
    st.sampled_from(_WINDOWS),
    st.sampled_from(_TRIGGERS),
    st.sampled_from(_TIMES),
    st.booleans(),
)
def test_groups_are_those_of_beams_runner(
    values: list[Any], windows: Any, triggers: Any, combiner: Any, accumulating: bool
) -> None:
    mode = trigger.AccumulationMode.ACCUMULATING if accumulating else trigger.AccumulationMode.DISCARDING
    windowing = beam.WindowInto(
        windows(), trigger=triggers(), accumulation_mode=mode, timestamp_combiner=combiner, allowed_lateness=0
    )
    assert groups(HeadraceRunner(local=True), values, windowing) == groups(FnApiRunner(), values, windowing)
