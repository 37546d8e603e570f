"""What tasks learn of partitions, by each policy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.engine.shard.delays import sketch
from headrace.engine.shard.sourceprogress import SourceProgress
from headrace.engine.stream.programs import FromSource, Watermarks
from headrace.engine.worker.blame import WorkerFailure
from headrace.engine.worker.hidden import LOW, NOW, PART, PUNCTUATION, TIME
from headrace.model.times import MAX_TIME, MIN_TIME, Int64Array


def low(times: Any, policy: hr.WatermarkPolicy, now: int | None = 0) -> tuple[int, int]:
    progress = SourceProgress(policy)
    progress.observe(np.array(times, np.int64), now=now)
    return progress.low(), progress.skewed


class Earliest(hr.WatermarkPolicy):
    def low_watermark(self, times: Int64Array) -> int:
        return times.min()  # type: ignore[no-any-return]


def test_a_source_trails_its_latest_element() -> None:
    policy = hr.BoundedDisorder("5 us", max_skew="10 us")
    assert low([], policy) == (MIN_TIME, 0)
    assert low([3, 9, 7], policy) == (4, 0)
    assert low([3, 9, 7], hr.Monotonic()) == (9, 0)


@pytest.mark.parametrize("policy", [hr.Monotonic(max_skew="10 us"), hr.Punctuated("mark", max_skew="10 us")])
def test_what_is_from_the_far_future_is_counted_and_moves_nothing(policy: hr.WatermarkPolicy) -> None:
    times = [95, 110, 111, 10**15]
    assert low(times, policy, now=100) == (110, 2)
    assert low(times[2:], policy, now=100) == (MIN_TIME, 2)
    assert low(times, policy, now=None) == (10**15, 0)


def test_a_policy_of_ones_own_sees_what_a_task_read_at_once_but_wrong_clocks() -> None:
    progress = SourceProgress(Earliest(max_skew="10 us"))
    for times in ([50, 40], [], [200], [30, 60]):
        progress.observe(np.array(times, np.int64), now=100)
    assert (progress.low(), progress.skewed) == (30, 1)
    assert low([200], Earliest(max_skew="10 us"), now=100) == (MIN_TIME, 1)


@pytest.mark.parametrize("answer", [None, 1.5, "12:00", True])
def test_a_policy_that_answers_no_time_is_told(answer: Any) -> None:
    class Wrong(hr.WatermarkPolicy):
        def low_watermark(self, times: Int64Array) -> int:
            return answer  # type: ignore[no-any-return]

    with pytest.raises(TypeError, match=r"Wrong.low_watermark gives a time in microseconds, an int; got"):
        low([5], Wrong())


def test_an_answer_stays_within_time() -> None:
    class Eager(hr.WatermarkPolicy):
        def low_watermark(self, times: Int64Array) -> int:
            return 10**30

    assert low([5], Eager()) == (MAX_TIME, 0)


@given(st.lists(st.lists(st.integers(-50, 100)), max_size=5), st.integers(0, 100))
def test_how_a_task_gets_its_rows_does_not_matter(parts: list[list[int]], now: int) -> None:
    whole = [time for part in parts for time in part]
    for policy in (hr.Monotonic(max_skew=0), hr.BoundedDisorder("3 us"), hr.Percentile(0.9), Earliest(max_skew=0)):
        one, many = SourceProgress(policy), SourceProgress(policy)
        one.observe(np.array(whole, np.int64), now=now)
        for part in parts:
            many.observe(np.array(part, np.int64), now=now)
        assert (one.low(), one.skewed, one.sketch()) == (many.low(), many.skewed, many.sketch())
        assert one.skewed == sum(time > now + policy.max_skew for time in whole)


def rows_of(source: FromSource, *rows: tuple[int | None, int | None, str | None]) -> None:
    """The source reads rows of a time, a punctuation and a partition, at the time 100."""
    times, marks, partitions = zip(*rows, strict=True)
    columns = {
        "x": pa.nulls(len(rows), pa.int64()),
        TIME: pa.array(times, pa.int64()),
        NOW: pa.array([100] * len(rows)),
        LOW: pa.nulls(len(rows), pa.int64()),
        PART: pa.array(partitions, pa.string()),
        PUNCTUATION: pa.array(marks, pa.int64()),
    }
    assert not list(source.bundles(iter([pa.record_batch(columns)])))


class Nobody:
    """A head that reads nothing."""

    def bundles(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Any]:
        names = {name for batch in batches for name in batch.schema.names}
        assert names == {"x", TIME}
        yield from ()


def source(policy: hr.WatermarkPolicy) -> FromSource:
    watermarks: Watermarks = "punctuated" if isinstance(policy, hr.Punctuated) else "from times"
    return FromSource("visits", [Nobody()], watermarks, policy)


def test_punctuations_are_by_partition_and_wrong_clocks_are_not_believed() -> None:
    punctuated = source(hr.Punctuated("mark", max_skew="50 us"))
    rows_of(punctuated, (90, None, "a"), (95, 80, "a"), (99, 70, "a"), (99, 151, "b"), (99, None, "c"))
    assert punctuated.clocks.partitions == {"visits": {"a": 80, "b": MIN_TIME, "c": MIN_TIME}}
    assert punctuated.clocks.skewed == 1


def test_without_a_punctuation_a_source_has_still_brought_something() -> None:
    punctuated = source(hr.Punctuated("mark"))
    rows_of(punctuated, (90, None, None))
    assert punctuated.clocks.lows == {"visits": MIN_TIME}


def test_disorder_is_told_by_partition() -> None:
    guessing = source(hr.Percentile(0.5))
    rows_of(guessing, (90, None, "a"), (80, None, "a"), (10, None, "b"))
    told = guessing.clocks.disorder["visits"]
    assert guessing.clocks.partitions == {"visits": {"a": MIN_TIME, "b": MIN_TIME}}
    assert (told["a"], told["b"]) == (sketch(np.array([90, 80]), 0.5), sketch(np.array([10]), 0.5))


def test_a_policy_that_fails_is_blamed_by_the_source_it_is_of() -> None:
    class Broken(hr.WatermarkPolicy):
        def low_watermark(self, times: Int64Array) -> int:
            return 1 // 0

    with pytest.raises(WorkerFailure, match=r'"visits".*ZeroDivisionError'):
        rows_of(source(Broken()), (1, None, None))
