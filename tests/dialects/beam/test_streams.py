"""Streams of Beam's: triggers, state and timers, and Beam's own driver for windows that merge in ways of their own."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pytest
from apache_beam import coders
from apache_beam.coders.coders import IntervalWindowCoder
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker
from apache_beam.io.watermark_estimators import ManualWatermarkEstimator
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.test_stream import TestStream
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms import trigger, userstate
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.window import FixedWindows, IntervalWindow, TimestampedValue, WindowFn
from apache_beam.utils.timestamp import Duration, Timestamp
from pyspark.sql import SparkSession

from headrace.dialects.beam import splittable
from headrace.dialects.beam.keyedstage import KeyedStage
from headrace.dialects.beam.runner import HeadraceRunner
from headrace.dialects.beam.watchdog import Budget
from headrace.engine.shard.processor import StepResult
from headrace.engine.shard.rows import to_pairs
from headrace.engine.shard.work import Grouping
from headrace.engine.worker.bundles import Bundle
from headrace.model.errors import PipelineError
from headrace.model.panes import GLOBAL, ONLY_PANE
from headrace.model.pipeline import Pipeline
from headrace.model.sharded import Sharded
from headrace.model.sources import Create
from tests.dialects.beam.localstream import LocalRunner
from tests.dialects.beam.suites import FileList
from tests.scale import only_full


class PairsOfTens(WindowFn):  # type: ignore[misc]  # Beam's classes are untyped
    """Windows of ten seconds; of one key, those that follow on one another become one."""

    def assign(self, context: WindowFn.AssignContext) -> Iterable[IntervalWindow]:
        start = context.timestamp.micros // 10_000_000 * 10
        return [IntervalWindow(start, start + 10)]

    def merge(self, merge_context: WindowFn.MergeContext) -> None:
        found: list[IntervalWindow] = []
        for window in sorted(merge_context.windows):
            if found and found[-1].end == window.start:
                found.append(window)
            else:
                self._merge(merge_context, found)
                found = [window]
        self._merge(merge_context, found)

    def _merge(self, merge_context: WindowFn.MergeContext, windows: list[IntervalWindow]) -> None:
        if len(windows) > 1:
            merge_context.merge(windows, IntervalWindow(windows[0].start, windows[-1].end))

    def get_window_coder(self) -> coders.Coder:
        return IntervalWindowCoder()


class _Counted(beam.transforms.core.RestrictionProvider):  # type: ignore[misc]
    """The numbers below an element, as a restriction."""

    def initial_restriction(self, element: int) -> OffsetRange:
        return OffsetRange(0, element)

    def create_tracker(self, restriction: OffsetRange) -> OffsetRestrictionTracker:
        return OffsetRestrictionTracker(restriction)

    def restriction_size(self, element: int, restriction: OffsetRange) -> int:
        return int(restriction.size())


class Numbered(beam.DoFn):  # type: ignore[misc]
    """Numbers the elements of a key, and says how many there were when the watermark passes 25."""

    COUNT = userstate.CombiningValueStateSpec("count", sum)
    SEEN = userstate.BagStateSpec("seen", coders.StrUtf8Coder())
    END = userstate.TimerSpec("end", TimeDomain.WATERMARK)

    def process(
        self,
        element: tuple[str, str],
        count: Any = beam.DoFn.StateParam(COUNT),
        seen: Any = beam.DoFn.StateParam(SEEN),
        end: Any = beam.DoFn.TimerParam(END),
    ) -> Iterable[tuple[str, Any]]:
        _, value = element
        count.add(1)
        seen.add(value)
        end.set(25)
        yield value, count.read()

    @userstate.on_timer(END)  # type: ignore[untyped-decorator]
    def ended(
        self,
        key: Any = beam.DoFn.KeyParam,
        seen: Any = beam.DoFn.StateParam(SEEN),
    ) -> Iterable[tuple[str, Any]]:
        yield key, "".join(sorted(seen.read()))
        seen.clear()


def check_stream(runner: HeadraceRunner) -> None:
    """Runs one script through triggers, state, and windows that merge."""
    script = (
        TestStream()
        .advance_watermark_to(0)
        .add_elements([TimestampedValue("a", 1), TimestampedValue("b", 2)])
        .add_elements([TimestampedValue("c", 12)])
        .advance_watermark_to(22)
        .add_elements([TimestampedValue("d", 3)])  # late, but not too late
        .advance_watermark_to(30)
        .add_elements([TimestampedValue("e", 4)])  # too late for the fixed window
        .advance_watermark_to_infinity()
    )
    options = PipelineOptions(["--streaming", "--allow_unsafe_triggers"])
    with beam.Pipeline(runner=runner, options=options) as p:
        pairs = p | script | "pair" >> beam.Map(lambda value: ("k", value))
        fixed = pairs | beam.WindowInto(
            FixedWindows(10),
            trigger=trigger.AfterWatermark(early=trigger.AfterCount(2), late=trigger.AfterCount(1)),
            accumulation_mode=trigger.AccumulationMode.ACCUMULATING,
            allowed_lateness=15,
        )
        panes = fixed | "group" >> beam.GroupByKey() | "read" >> beam.ParDo(_described())
        expected = [("ab", "EARLY", 0), ("ab", "ON_TIME", 1), ("abd", "LATE", 2), ("c", "ON_TIME", 0)]
        assert_that(panes, equal_to(expected), label="panes")
        numbered = pairs | beam.ParDo(Numbered())
        told = [("a", 1), ("b", 2), ("c", 3), ("d", 4), ("k", "abcd"), ("e", 5), ("k", "e")]
        assert_that(numbered, equal_to(told), label="state")
        merged = pairs | "tens" >> beam.WindowInto(PairsOfTens(), allowed_lateness=3)
        groups = merged | "merge" >> beam.GroupByKey() | "windows" >> beam.ParDo(_in_windows())
        assert_that(groups, equal_to([("abc", 0, 20)]), label="merged")


class Ticks(beam.DoFn):  # type: ignore[misc]
    """Gives a number at a time, and goes on a second later; the watermark follows the numbers."""

    def process(
        self,
        element: int,
        tracker: Any = beam.DoFn.RestrictionParam(_Counted()),
        estimator: Any = beam.DoFn.WatermarkEstimatorParam(ManualWatermarkEstimator.default_provider()),
    ) -> Iterable[TimestampedValue]:
        position = tracker.current_restriction().start
        if tracker.try_claim(position):
            estimator.set_watermark(Timestamp(position))
            yield TimestampedValue(position, position)
            tracker.defer_remainder(Duration(seconds=1))


def check_splittable(runner: HeadraceRunner) -> None:
    """Runs a splittable DoFn that stops after each number, and a grouping that follows its watermark."""
    with beam.Pipeline(runner=runner, options=PipelineOptions(["--streaming"])) as p:
        ticks = p | beam.Create([4]) | beam.ParDo(Ticks())
        pairs = ticks | beam.WindowInto(FixedWindows(2)) | beam.WithKeys(lambda tick: "k")
        groups = pairs | beam.GroupByKey() | "read" >> beam.ParDo(_described())
        assert_that(groups, equal_to([((0, 1), "ON_TIME", 0), ((2, 3), "ON_TIME", 0)]))


class Numbers(beam.DoFn):  # type: ignore[misc]
    """Gives all numbers of its restriction, and never stops by itself."""

    def process(self, element: int, tracker: Any = beam.DoFn.RestrictionParam(_Counted())) -> Iterable[int]:
        position = tracker.current_restriction().start
        while tracker.try_claim(position):
            yield position
            position += 1


def test_a_splittable_dofn_that_does_not_stop_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splittable, "BUDGET", Budget(seconds=0.0))
    taken, step = list[int](), splittable.SplittableShard.step

    def counted(self: Any, *args: Any) -> StepResult:
        result = step(self, *args)
        taken.append(len(self.records.by_name))
        return result

    monkeypatch.setattr(splittable.SplittableShard, "step", counted)
    with beam.Pipeline(runner=LocalRunner(), options=PipelineOptions(["--streaming"])) as p:
        script = TestStream().add_elements([30_000, 20_000]).advance_watermark_to_infinity()
        numbers = p | script | beam.ParDo(Numbers()) | beam.WindowInto(FixedWindows(10))
        pairs = numbers | beam.WithKeys(lambda number: number % 2)
        counts = pairs | beam.combiners.Count.PerKey()
        assert_that(counts, equal_to([(0, 25_000), (1, 25_000)]))
    assert taken[0] == 2  # one was split, and for the other there was no time
    assert taken[-1] == 0


def _described() -> beam.DoFn:
    class Described(beam.DoFn):  # type: ignore[misc]
        def process(self, element: Any, pane: Any = beam.DoFn.PaneInfoParam) -> Iterable[Any]:
            timing = ["EARLY", "ON_TIME", "LATE", "UNKNOWN"][pane.timing]
            values = sorted(element[1])
            yield "".join(values) if isinstance(values[0], str) else tuple(values), timing, pane.index

    return Described()


def _in_windows() -> beam.DoFn:
    class InWindows(beam.DoFn):  # type: ignore[misc]
        def process(self, element: Any, window: Any = beam.DoFn.WindowParam) -> Iterable[Any]:
            yield "".join(sorted(element[1])), int(window.start), int(window.end)

    return InWindows()


def test_stream_in_this_process() -> None:
    check_stream(LocalRunner())


def test_splittable_in_this_process() -> None:
    check_splittable(LocalRunner())


@pytest.mark.slow("a stream of nine micro-batches with four levels")
def test_stream_on_spark(spark: SparkSession) -> None:
    check_stream(HeadraceRunner())


@only_full("the same in this process, and other streams on Spark")
@pytest.mark.slow("a micro-batch for each time that what is left is due")
def test_splittable_on_spark(spark: SparkSession) -> None:
    check_splittable(HeadraceRunner())


def test_a_service_that_does_not_answer_is_named() -> None:
    options = PipelineOptions(["--streaming"])
    with (
        pytest.raises(PipelineError, match="the service that has its events, localhost:1, cannot be read"),
        beam.Pipeline(runner=LocalRunner(), options=options) as p,
    ):
        p | TestStream(endpoint="localhost:1")


class Committed(beam.DoFn):  # type: ignore[misc]
    """Numbers the elements of a key, and notes each in a file when its bundle is committed."""

    COUNT = userstate.CombiningValueStateSpec("count", sum)

    def __init__(self, records: FileList) -> None:
        self.records = records

    def process(
        self,
        element: tuple[str, str],
        count: Any = beam.DoFn.StateParam(COUNT),
        finalizer: Any = beam.DoFn.BundleFinalizerParam,
    ) -> Iterable[int]:
        count.add(1)
        finalizer.register(functools.partial(self.records.append, element[1]))
        yield count.read()


def test_who_waits_for_a_step_is_called_with_the_next(tmp_path: Path) -> None:
    records = FileList(tmp_path / "records")
    p = beam.Pipeline()
    p | TestStream().add_elements([("k", "a")]) | beam.ParDo(Committed(records))
    runner = HeadraceRunner()
    planned = runner._planned(p, p.options)
    (spec,) = [spec for spec in runner._fused(planned, streaming=True) if spec.stateful is not None]
    work = KeyedStage(spec, spec.sources[0], (), GLOBAL)
    entries = Bundle([(b"k", (0, spec.components.coder(spec.sources[0].collection).encode(("k", "a")), ONLY_PANE))])
    rows = to_pairs("k", GLOBAL, retractable=False)
    processor, other = work.processor(), work.processor()
    assert processor.step(pa.concat_batches([*rows.add(entries), *rows.finish()])).again is not None
    other.step()  # another shard, in the same process
    assert list(records) == []
    assert processor.step().again is None
    assert list(records) == ["a"]


@only_full("steps of a shard in this process")
@pytest.mark.slow("a stream of four micro-batches")
def test_who_waits_for_a_commit_is_called_at_most_once_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    records = FileList(tmp_path / "records")
    with beam.Pipeline(runner=HeadraceRunner(), options=PipelineOptions(["--streaming"])) as p:
        script = TestStream().add_elements([("k", "a")]).add_elements([("k", "b")]).advance_watermark_to_infinity()
        counts = p | script | beam.ParDo(Committed(records))
        assert_that(counts, equal_to([1, 2]))
    called = list(records)  # it is lost where Spark gives the shard to another worker
    assert len(called) == len(set(called))
    assert set(called) <= {"a", "b"}


def test_work_of_shards_is_for_streams() -> None:
    p = Pipeline()
    p | Create([("k", 1)]) | Sharded(Grouping(GLOBAL), {None: GLOBAL})
    with pytest.raises(PipelineError, match="work of shards is for streams"):
        p.explain()


def test_bounded_side_inputs_may_be_grouped() -> None:
    with beam.Pipeline(runner=LocalRunner(), options=PipelineOptions(["--streaming"])) as p:
        side = p | "side" >> beam.Create([("k", 1), ("k", 2)]) | beam.GroupByKey()
        main = p | TestStream().add_elements(["a"]).advance_watermark_to_infinity()
        both = main | beam.Map(lambda value, groups: (value, sorted(groups["k"])), beam.pvalue.AsDict(side))
        assert_that(both, equal_to([("a", [1, 2])]))
