"""Watermarks: from partitions to a shard, from a shard to the next; and how late most of the input is."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.shard.clocks import Clocks, Upstream, output_watermark, written_part
from headrace.model.times import MAX_TIME, MIN_TIME

reports = st.lists(
    st.tuples(st.sampled_from("xy"), st.sampled_from(["", "a", "b"]), st.integers(0, 100), st.integers(0, 20)),
    max_size=30,
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


def events(**known: Any) -> Upstream:
    return Upstream({"events": MIN_TIME}, **known)


def test_the_slowest_partition_decides() -> None:
    upstream = events()
    assert upstream.advance(now=0) == MIN_TIME
    upstream.report("events", 50, now=0, partition="a")
    upstream.report("events", 20, now=0, partition="b")
    assert upstream.advance(now=10**9) == 20
    upstream.report("events", 70, now=0, partition="b")
    upstream.report("events", 40, now=0, partition="a")  # never back
    assert upstream.advance(now=10**9) == 50


written = st.lists(st.tuples(st.sampled_from("012"), st.sampled_from("ab"), st.integers(0, 100)), max_size=30)


@given(written)
def test_every_writer_is_waited_for_in_every_partition(said: list[tuple[str, str, int]]) -> None:
    upstream = events(partitions={"events": {"0": MIN_TIME, "1": MIN_TIME}}, written=frozenset({"events"}))
    expected = MIN_TIME
    for number, (partition, writer, low) in enumerate(said, 1):
        upstream.report("events", low, now=0, partition=written_part(partition, writer))
        seen = said[:number]
        partitions, writers = {"0", "1", *(each for each, _, _ in seen)}, {each for _, each, _ in seen}
        lows = [
            max((time for *place, time in seen if place == [part, by]), default=MIN_TIME)
            for part in partitions
            for by in writers
        ]
        expected = max(expected, min(lows))
        assert upstream.advance(now=0) == expected
        restored = events(written=frozenset({"events"}))
        restored.load(upstream.dump())
        assert restored.advance(now=0) == expected


def test_an_idle_writer_is_not_waited_for() -> None:
    upstream = events(partitions={"events": {"0": MIN_TIME}}, idle_after={"events": 60}, written=frozenset({"events"}))
    upstream.report("events", 20, now=0, partition=written_part("0", "a"))
    upstream.report("events", 50, now=30, partition=written_part("0", "b"))
    assert upstream.advance(now=59) == 20
    assert upstream.advance(now=60) == 50
    assert upstream.idle(now=60) == [("events", "0 a")]


def test_a_partition_may_appear_late() -> None:
    upstream = events()
    upstream.report("events", 50, now=0, partition="a")
    assert upstream.advance(now=0) == 50
    upstream.report("events", 20, now=0, partition="b")
    upstream.report("events", 90, now=0, partition="a")
    assert upstream.advance(now=0) == 50
    upstream.report("events", 80, now=0, partition="b")
    assert upstream.advance(now=0) == 80


def test_what_is_said_of_the_whole_holds_for_every_partition() -> None:
    upstream = events()
    upstream.report("events", 20, now=0, partition="a")
    upstream.report("events", MAX_TIME, now=0)
    upstream.report("events", 30, now=0, partition="b")
    assert upstream.advance(now=0) == MAX_TIME


def test_who_has_not_reported_is_waited_for() -> None:
    upstream = Upstream({"events": MIN_TIME, "others": MIN_TIME}, idle_after={"others": 10})
    upstream.report("events", 50, now=100)
    assert upstream.advance(now=100) == MIN_TIME
    assert upstream.advance(now=109) == MIN_TIME
    assert (upstream.idle(now=110), upstream.advance(now=110)) == ([("others", "")], 50)


def test_partitions_that_are_known_are_waited_for() -> None:
    upstream = events(idle_after={"events": 10}, partitions={"events": {"a": MIN_TIME, "b": MIN_TIME}})
    upstream.report("events", 50, now=0, partition="a")
    assert upstream.advance(now=0) == MIN_TIME
    upstream.report("events", 60, now=9, partition="a")
    assert (upstream.idle(now=10), upstream.advance(now=10)) == ([("events", "b")], 60)


def test_an_idle_partition_is_waited_for_again_once_it_brings_something() -> None:
    upstream = events(idle_after={"events": 10})
    upstream.report("events", 50, now=0, partition="a")
    upstream.report("events", 20, now=0, partition="b")
    upstream.report("events", 60, now=9, partition="a")
    assert (upstream.idle(now=9), upstream.advance(now=9)) == ([], 20)
    assert (upstream.idle(now=10), upstream.advance(now=10)) == ([("events", "b")], 60)
    upstream.report("events", 30, now=11, partition="b")
    upstream.report("events", 90, now=11, partition="a")
    assert (upstream.idle(now=11), upstream.advance(now=11)) == ([], 60)  # not back to 30
    upstream.report("events", 80, now=12, partition="b")
    assert upstream.advance(now=12) == 80


def test_whatever_a_partition_reports_keeps_it_awake() -> None:
    upstream = events(idle_after={"events": 10})
    upstream.report("events", 50, now=0, partition="a")
    upstream.report("events", 50, now=8, partition="a")
    assert upstream.idle(now=12) == []


def test_if_all_partitions_are_idle_the_watermark_stays() -> None:
    upstream = events(idle_after={"events": 10})
    upstream.report("events", 50, now=0, partition="a")
    upstream.report("events", 70, now=0, partition="b")
    assert upstream.advance(now=0) == 50
    assert upstream.advance(now=100) == 50


@given(reports)
def test_watermarks_are_those_of_the_definition_and_survive_a_restart(script: list[tuple[str, str, int, int]]) -> None:
    """Against a loop over all that was ever reported."""
    idle_after = {"x": 15}
    upstream, now, before = Upstream({"x": MIN_TIME, "y": MIN_TIME}, idle_after), 0, MIN_TIME
    told: list[tuple[str, str, int, int]] = []
    for name, partition, low, passed in script:
        now += passed
        upstream.report(name, low, now=now, partition=partition)
        told.append((name, partition, low, now))
        restored = Upstream({}, idle_after)
        restored.load(upstream.dump())
        assert restored == upstream and restored.dump() == upstream.dump()
        waited_for = []
        for source in "xy":
            floor = max([low for name, part, low, _ in told if name == source and not part], default=MIN_TIME)
            parts = {part for name, part, _, _ in told if name == source and part} or {""}
            for part in parts:
                mine = [(low, time) for name, each, low, time in told if (name, each) == (source, part)]
                awake = max([time for _, time in mine], default=told[0][3])
                if source == "y" or now - awake < 15:
                    waited_for.append(max([floor, *(low for low, _ in mine)]))
        before = max(before, min(waited_for, default=before))
        assert upstream.advance(now=now) == restored.advance(now=now) == before
