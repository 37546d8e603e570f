"""Side inputs beside state, timers and splittable DoFns, as batches and streams, and those that have no end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import apache_beam as beam
import pytest
from apache_beam import coders
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pvalue import AsDict, AsList, AsSingleton
from apache_beam.testing.test_stream import TestStream
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms import trigger, userstate
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.window import (
    BoundedWindow,
    FixedWindows,
    GlobalWindows,
    NonMergingWindowFn,
    TimestampedValue,
)
from apache_beam.utils.timestamp import Duration
from pyspark.sql import SparkSession

from headrace.dialects.beam.runner import HeadraceRunner
from headrace.model.errors import PipelineError
from tests.dialects.beam.localstream import LocalRunner
from tests.dialects.beam.test_streams import _Counted
from tests.scale import only_full


class Priced(beam.DoFn):  # type: ignore[misc]  # Beam's classes are untyped
    """Adds up the prices of a key's elements, which are a side input, and says the sum at the end of the window."""

    SUM = userstate.CombiningValueStateSpec("sum", sum)
    END = userstate.TimerSpec("end", TimeDomain.WATERMARK)

    def process(
        self,
        element: tuple[str, str],
        prices: dict[str, int],
        total: Any = beam.DoFn.StateParam(SUM),
        end: Any = beam.DoFn.TimerParam(END),
        window: Any = beam.DoFn.WindowParam,
    ) -> None:
        total.add(prices.get(element[1], 0))
        end.set(window.max_timestamp())

    @userstate.on_timer(END)  # type: ignore[untyped-decorator]
    def ended(self, key: Any = beam.DoFn.KeyParam, total: Any = beam.DoFn.StateParam(SUM)) -> Iterable[tuple[str, int]]:
        yield key, total.read()


class Repeated(beam.DoFn):  # type: ignore[misc]
    """Gives an element and what it sees, as often as the element says, each time a second later."""

    def process(
        self, element: int, seen: list[str], tracker: Any = beam.DoFn.RestrictionParam(_Counted())
    ) -> Iterable[tuple[int, str]]:
        position = tracker.current_restriction().start
        if tracker.try_claim(position):
            yield position, "".join(sorted(seen))
            tracker.defer_remainder(Duration(seconds=1))


def check_beside(runner: HeadraceRunner, *options: str) -> None:
    """Runs a DoFn with state and one that is splittable beside bounded side inputs."""
    with beam.Pipeline(runner=runner, options=PipelineOptions(list(options))) as p:
        prices = p | "prices" >> beam.Create([("tea", 3), ("milk", 1)])
        names = p | "names" >> beam.Create(["b", "a"])
        sold = p | "sold" >> beam.Create([("x", "tea"), ("y", "milk"), ("x", "milk")])
        totals = sold | beam.WindowInto(FixedWindows(10)) | beam.ParDo(Priced(), AsDict(prices))
        assert_that(totals, equal_to([("x", 4), ("y", 1)]), label="state")
        often = p | "often" >> beam.Create([2]) | beam.ParDo(Repeated(), AsList(names))
        assert_that(often, equal_to([(0, "ab"), (1, "ab")]), label="splittable")


def check_stream_sides(runner: HeadraceRunner) -> None:
    """Runs DoFns beside side inputs that are streams: they wait for the windows that they see."""
    script = (
        TestStream()
        .add_elements([TimestampedValue(("x", "tea"), 1), TimestampedValue(("x", "tea"), 12)], tag="sold")
        .add_elements([TimestampedValue(("tea", 3), 2)], tag="prices")
        .advance_watermark_to(30, tag="sold")
        .add_elements([TimestampedValue(("tea", 5), 11)], tag="prices")
        .advance_watermark_to(20, tag="prices")
        .add_elements([TimestampedValue(("x", "tea"), 31)], tag="sold")
        .advance_watermark_to_infinity(tag="prices")
        .advance_watermark_to_infinity(tag="sold")
    )
    with beam.Pipeline(runner=runner, options=PipelineOptions(["--streaming"])) as p:
        events = p | script
        sold = events["sold"] | "sold" >> beam.WindowInto(FixedWindows(10))
        prices = events["prices"] | "prices" >> beam.WindowInto(FixedWindows(10))
        totals = sold | beam.ParDo(Priced(), AsDict(prices))
        assert_that(totals, equal_to([("x", 3), ("x", 5), ("x", 0)]), label="state")
        names = prices | beam.Keys()
        often = sold | "two" >> beam.Map(lambda _: 2) | beam.ParDo(Repeated(), AsList(names))
        seen = [(0, "tea"), (1, "tea")]
        assert_that(often, equal_to([*seen, *seen, (0, ""), (1, "")]), label="splittable")
        latest = events["prices"] | "latest" >> beam.WindowInto(
            GlobalWindows(),
            trigger=trigger.Repeatedly(trigger.AfterCount(1)),
            accumulation_mode=trigger.AccumulationMode.DISCARDING,
        )
        refreshed = sold | beam.Map(lambda _, price: price[1], AsSingleton(latest))
        assert_that(refreshed, equal_to([3, 3, 5]), label="refreshed")


def test_beside_bounded_side_inputs_in_this_process() -> None:
    check_beside(LocalRunner())
    check_beside(LocalRunner(), "--streaming")


def test_beside_streams_in_this_process() -> None:
    check_stream_sides(LocalRunner())


@only_full("the same in this process")
@pytest.mark.slow("a batch and a stream of a dozen micro-batches")
def test_beside_bounded_side_inputs_on_spark(spark: SparkSession) -> None:
    check_beside(HeadraceRunner())
    check_beside(HeadraceRunner(), "--streaming")


@pytest.mark.slow("a stream of ten micro-batches with four levels")
def test_beside_streams_on_spark(spark: SparkSession) -> None:
    check_stream_sides(HeadraceRunner())


def test_a_splittable_side_input_with_an_end_is_computed_as_a_batch() -> None:
    with beam.Pipeline(runner=LocalRunner(), options=PipelineOptions(["--streaming"])) as p:
        names = p | "names" >> beam.Create(["a"])
        side = p | "side" >> beam.Create([2]) | beam.ParDo(Repeated(), AsList(names))
        main = p | TestStream().add_elements(["m"]).advance_watermark_to_infinity()
        both = main | beam.Map(lambda value, side: (value, sorted(side)), AsList(side))
        assert_that(both, equal_to([("m", [(0, "a"), (1, "a")])]))


class _Named(BoundedWindow):  # type: ignore[misc]
    """A window that is no interval."""


class _NamedCoder(coders.Coder):  # type: ignore[misc]
    def encode(self, value: _Named) -> bytes:
        return b""

    def decode(self, encoded: bytes) -> _Named:
        return _Named(10)

    def is_deterministic(self) -> bool:
        return True


class _ByName(NonMergingWindowFn):  # type: ignore[misc]
    def assign(self, context: Any) -> list[_Named]:
        return [_Named(10)]

    def get_window_coder(self) -> coders.Coder:
        return _NamedCoder()


def test_windows_of_a_class_of_their_own_are_not_mapped_in_a_stream() -> None:
    p = beam.Pipeline(runner=LocalRunner(), options=PipelineOptions(["--streaming"]))
    side = p | TestStream().add_elements([1]).advance_watermark_to_infinity()
    named = p | beam.Create([1]) | beam.WindowInto(_ByName())
    named | "see" >> beam.Map(lambda value, side: value, AsList(side))
    with pytest.raises(PipelineError, match=r"'see.*' has a side input without an end, and its windows"):
        p.run()
