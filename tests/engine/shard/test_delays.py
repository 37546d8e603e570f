"""How late elements come: behind the clock, and behind the latest of their partition."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.shard.clocks import Upstream
from headrace.engine.shard.delays import Delays, Disorder, sketch
from headrace.model.times import MIN_TIME


@given(st.lists(st.integers(0, 10**12), min_size=1), st.floats(0.01, 1.0))
def test_quantiles_of_delay_are_at_most_two_percent_too_high(late: list[int], q: float) -> None:
    now, delays = 10**12, Delays()
    for part in (late[::2], late[1::2]):
        delays.observe(now - np.array(part, np.int64), now=now)
    exact = sorted(late)[max(int(np.ceil(q * len(late) * (1 - 1e-12))) - 1, 0)]
    assert exact - 1 <= delays.quantile(q) <= exact * 1.02 + 1.02


@given(st.lists(st.lists(st.integers(0, 10**12))))
def test_sketches_of_parts_make_that_of_the_whole(parts: list[list[int]]) -> None:
    whole, merged = Delays(), Delays()
    whole.observe(np.array([time for part in parts for time in part], np.int64), now=10**12)
    for part in parts:
        delays = Delays()
        delays.observe(np.array(part, np.int64), now=10**12)
        merged.merge(delays.buckets.items())
    assert whole == merged


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


# Disorder


def delays_of(batches: list[list[list[int]]]) -> list[list[int]]:
    """The definition: by micro-batch, how far each element is behind the latest of the partition before it.

    Before it were all elements of earlier batches, and those of its task that were read before. What other tasks of the
    batch read was at the same time.
    """
    known, given = MIN_TIME, []
    for tasks in batches:
        late = []
        for times in tasks:
            latest = known
            for time in times:
                late.append(max(latest - time, 0))
                latest = max(latest, time)
        known = max([known, *(time for times in tasks for time in times)])
        given.append(late)
    return given


def quantile(late: list[int], q: float) -> int:
    """The delay that a fraction q did not exceed."""
    return sorted(late)[max(int(np.ceil(q * len(late) * (1 - 1e-12))) - 1, 0)]


tasks = st.lists(st.integers(0, 10**10), min_size=1, max_size=40)


@given(st.lists(st.lists(tasks, min_size=1, max_size=3), min_size=1, max_size=8), st.floats(0.01, 1.0))
def test_a_watermark_trails_by_the_delay_that_a_fraction_did_not_exceed(
    batches: list[list[list[int]]], q: float
) -> None:
    """Against the definition: never ahead of it, and behind by no more than the sketch says."""
    upstream, late, known, before = Upstream({"x": MIN_TIME}), [], MIN_TIME, MIN_TIME
    slack = 0
    for tasks, more in zip(batches, delays_of(batches), strict=True):
        late += more
        known = max([known, *(time for times in tasks for time in times)])
        slack = max([slack, *((max(times) - times[0]) // 16 for times in tasks)])
        told = [("x", "a", json.loads(json.dumps(sketch(np.array(times), q)))) for times in tasks]
        upstream.learn(told, now=0)
        restored = Upstream({})
        restored.load(upstream.dump())
        assert restored == upstream and restored.dump() == upstream.dump()
        exact = quantile(late, q)
        (low,) = upstream.partitions["x"].values()
        assert max(before, known - int((exact + slack) * 1.0405) - 3) <= low <= max(before, known - exact + 1)
        before = max(before, low)


def test_elements_one_by_one_are_judged_by_those_of_earlier_batches() -> None:
    disorder = Disorder()
    lows = [disorder.take([sketch(np.array([time]), 0.75)]) for time in (1_000, 900, 2_000, 1_990)]
    # delays 0, 100, 0, 10: of two, three of four are the longer; of three, too; of four it is the ten
    assert lows == [1_000, pytest.approx(900, abs=5), pytest.approx(1_900, abs=5), pytest.approx(1_990, abs=1)]


def test_history_that_is_in_order_has_no_delays() -> None:
    disorder = Disorder()
    assert disorder.take([sketch(np.arange(0, 10**9, 10**5), 0.99)]) == 10**9 - 10**5
    assert disorder.take([sketch(np.arange(10**9, 2 * 10**9, 10**5), 0.99)]) == 2 * 10**9 - 10**5


def test_a_straggler_in_front_does_not_make_all_of_its_batch_late() -> None:
    disorder = Disorder()
    disorder.take([sketch(np.arange(1_000_000, 2_000_000, 1_000), 0.99)])
    hour = 3_600_000_000
    times = np.concatenate([[2_000_000 - hour], np.arange(2_000_000, 3_000_000, 1_000)])
    assert disorder.take([sketch(times, 0.99)]) == 2_999_000
    assert disorder.delays.quantile(1.0) == pytest.approx(hour, rel=0.05)


def test_tasks_of_one_batch_are_not_late_for_one_another() -> None:
    disorder = Disorder()
    assert disorder.take([sketch(np.array([5_000]), 1.0), sketch(np.array([10]), 1.0)]) == 5_000
