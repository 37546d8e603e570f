"""Watermarks: from partitions to a shard, from a shard to the next; and how late most of the input is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.clocks import Clocks, Delays, Upstream, output_watermark, source_watermark
from headrace.model.times import MAX_TIME, MIN_TIME

reports = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 100), st.integers(0, 3), st.integers(0, 20)), max_size=30
)


def test_clocks_never_go_back() -> None:
    clocks = Clocks(10, 20, {0.5: 30}).moved(Clocks(5, 25, {0.5: 29, 0.9: 7}))
    assert clocks == Clocks(10, 25, {0.5: 30, 0.9: 7})


def test_a_percentile_never_trails_the_watermark() -> None:
    clocks = Clocks(watermark=50, percentiles={0.5: 40, 0.9: 60})
    assert [clocks.percentile(q) for q in (0.5, 0.9, 0.99, 1.0)] == [50, 60, 50, 50]


def test_the_output_does_not_pass_what_is_held_back() -> None:
    assert output_watermark(MIN_TIME, 100, np.array([30, MAX_TIME])) == 30
    assert output_watermark(MIN_TIME, 100, np.array([], np.int64)) == 100
    assert output_watermark(40, 100, np.array([30])) == 40


def test_the_slowest_partition_decides() -> None:
    upstream = Upstream()
    assert upstream.advance(now=0) == MIN_TIME
    upstream.report("a", 50, now=0)
    upstream.report("b", 20, now=0)
    assert upstream.advance(now=10**9) == 20
    upstream.report("b", 70, now=0)
    assert upstream.advance(now=10**9) == 50


def test_an_idle_partition_is_waited_for_again_once_it_brings_something() -> None:
    upstream = Upstream(idle_after=10)
    upstream.report("a", 50, now=0)
    upstream.report("b", 20, now=0)
    upstream.report("a", 60, now=9)
    upstream.report("b", 20, now=9)  # alive, but with nothing new
    assert (upstream.idle(now=9), upstream.advance(now=9)) == ([], 20)
    assert (upstream.idle(now=10), upstream.advance(now=10)) == (["b"], 60)
    upstream.report("b", 30, now=11, rows=5)
    upstream.report("a", 90, now=11)
    assert (upstream.idle(now=11), upstream.advance(now=11)) == ([], 60)  # not back to 30
    upstream.report("b", 80, now=12)
    assert upstream.advance(now=12) == 80


def test_rows_keep_a_partition_awake_even_if_its_watermark_stands() -> None:
    upstream = Upstream(idle_after=10)
    upstream.report("a", 50, now=0)
    upstream.report("a", 50, now=8, rows=1)
    assert upstream.idle(now=12) == []


def test_if_all_partitions_are_idle_the_watermark_stays() -> None:
    upstream = Upstream(idle_after=10)
    upstream.report("a", 50, now=0)
    upstream.report("b", 70, now=0)
    assert upstream.advance(now=0) == 50
    assert upstream.advance(now=100) == 50


@given(reports)
def test_watermarks_are_monotonic_and_survive_a_restart(script: list[tuple[str, int, int, int]]) -> None:
    upstream, now, before = Upstream(idle_after=15), 0, MIN_TIME
    for partition, low, rows, passed in script:
        now += passed
        upstream.report(partition, low, now=now, rows=rows)
        restored = Upstream.load(upstream.dump())
        assert restored == upstream and restored.dump() == upstream.dump()
        watermark = upstream.advance(now=now)
        assert watermark == restored.advance(now=now) >= before
        awake = [low for name, low in upstream.low.items() if name not in upstream.idle(now=now)]
        assert watermark in (before, min(awake, default=before))
        before = watermark


def test_a_source_trails_its_latest_element() -> None:
    assert source_watermark(MIN_TIME, np.array([], np.int64), now=0, slack=5, max_skew=10) == (MIN_TIME, 0)
    assert source_watermark(MIN_TIME, np.array([3, 9, 7]), now=0, slack=5, max_skew=10) == (4, 0)
    assert source_watermark(8, np.array([3, 9, 7]), now=0, slack=5, max_skew=10) == (8, 0)


def test_a_record_from_the_far_future_is_counted_and_moves_nothing() -> None:
    times = np.array([95, 110, 111, 10**15])
    assert source_watermark(90, times, now=100, slack=0, max_skew=10) == (110, 2)
    assert source_watermark(90, times[2:], now=100, slack=0, max_skew=10) == (90, 2)


@given(st.lists(st.integers(0, 10**12), min_size=1), st.floats(0.01, 1.0))
def test_quantiles_of_delay_are_at_most_two_percent_too_high(late: list[int], q: float) -> None:
    now, delays = 10**12, Delays()
    for part in (late[::2], late[1::2]):
        delays.observe(now - np.array(part, np.int64), now=now)
    exact = sorted(late)[max(int(np.ceil(q * len(late) * (1 - 1e-12))) - 1, 0)]
    assert exact - 1 <= delays.quantile(q) <= exact * 1.02 + 1.02


def test_percentile_watermarks_follow_processing_time() -> None:
    delays = Delays()
    assert delays.watermarks({0.5}, now=1_000) == {}
    delays.observe(np.array([1_000, 1_000, 1_000, 0]), now=1_000)
    assert delays.watermarks({0.75, 1.0}, now=5_000) == {0.75: 5_000}
    (slow,) = delays.watermarks({0.9}, now=5_000).values()
    assert slow == pytest.approx(4_000, rel=0.01)


def test_elements_ahead_of_processing_time_are_not_late() -> None:
    delays = Delays()
    delays.observe(np.array([5_000]), now=1_000)
    assert delays.quantile(0.5) == 0
