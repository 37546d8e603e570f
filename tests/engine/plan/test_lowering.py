"""Lowering: the levels of exchanges, their upstreams, and what is combined before it travels."""

from __future__ import annotations

from typing import Any

import headrace as hr
from headrace.engine.aggregation.accumulators import RowKind
from headrace.engine.plan.line import Line
from headrace.engine.plan.lowering import lower

TWO_MINUTES: Any = hr.FixedWindows("2 minutes")


def lowered(p: hr.Pipeline, shards: int = 2) -> Line:
    return lower(p.graph(), shards=shards, partitions=2)


def test_an_exchange_is_one_level_below_the_deepest_it_reads() -> None:
    p = hr.Pipeline()
    events = p | "events" >> hr.TestStream() | hr.WindowInto(TWO_MINUTES)
    sums = events | "sums" >> hr.CombinePerKey(sum)
    _ = events | "groups" >> hr.GroupByKey()
    _ = (events, sums) | hr.Flatten() | "both" >> hr.GroupByKey()
    line = lowered(p)
    assert {exchange.label: exchange.level for exchange in line.exchanges} == {"sums": 1, "groups": 1, "both": 2}
    assert line.depth == 2
    (both,) = line.level(2)
    assert both.upstream == ("events", "0/0", "0/1")


def test_sources_that_are_not_read_in_python_end_with_their_columns() -> None:
    p = hr.Pipeline()
    rows = p | "rows" >> hr.ReadJson("data", schema="user string, n long")
    _ = rows | "many" >> hr.Where("n > 5") | "users" >> hr.Select("user") | hr.Collect()
    _ = rows | "few" >> hr.Where("n < 5") | "collect few" >> hr.Collect()
    (tap,) = lowered(p).taps
    assert tap.name == "rows"
    assert [[node.label for node in reading.columns] for reading in tap.readings] == [["many", "users"], ["few"]]


def test_windows_are_assigned_in_python_unless_their_bounds_are_read() -> None:
    p = hr.Pipeline()
    rows = p | "rows" >> hr.ReadJson("data", schema="user string, n long")
    sliding = rows | "few" >> hr.Where("n < 5") | "sliding" >> hr.WindowInto(hr.SlidingWindows(10, 5))
    _ = sliding | "count" >> hr.GroupBy("user").aggregate(n=hr.count())
    _ = rows | "collect" >> hr.Collect()
    _ = sliding | "starts" >> hr.Select(start=hr.WINDOW_START) | "collect starts" >> hr.Collect()
    _ = rows | "letters" >> hr.Select(letter="explode(split(user, ''))") | "collect letters" >> hr.Collect()
    shared, repeating, letters = lowered(p).taps
    assert [reading.pc.label for reading in letters.readings] == ["letters"]
    assert [[node.label for node in reading.columns] for reading in shared.readings] == [["few"], []]
    assert [[node.label for node in reading.windows] for reading in shared.readings] == [["sliding"], []]
    assert repeating.name == "rows (2)"
    assert [[node.label for node in reading.columns] for reading in repeating.readings] == [
        ["few", "sliding", "starts"]
    ]


def test_what_is_combined_before_it_travels() -> None:
    """Whatever needs times, can be taken back, or waits for a percentile of the input, is not."""
    p = hr.Pipeline()
    events = p | hr.TestStream()
    kinds: dict[str, Any] = {
        "plain": {},
        "timed": {"timestamp_combiner": "earliest"},
        "percentile": {"trigger": hr.Repeatedly(hr.AfterPercentile(0.9))},
        "retracting": {"accumulation": "retracting"},
    }
    for name, kind in kinds.items():
        sums = events | f"w {name}" >> hr.WindowInto(TWO_MINUTES, **kind) | name >> hr.CombinePerKey(sum)
        _ = sums | f"again {name}" >> hr.CombinePerKey(sum)
    _ = events | "w count" >> hr.WindowInto(hr.CountWindows(3)) | "counted" >> hr.CombinePerKey(sum)
    exchanges = {exchange.label: exchange for exchange in lowered(p).exchanges}
    assert {label for label, each in exchanges.items() if each.work.rows is RowKind.ACCUMULATORS} == {
        "plain",
        "again plain",
        "retracting",
    }
    assert {label for label, each in exchanges.items() if each.work.rows is RowKind.SIGNED_VALUES} == {
        "again retracting"
    }


def test_shards_of_different_exchanges_differ() -> None:
    p = hr.Pipeline()
    events = p | hr.TestStream() | hr.WindowInto(TWO_MINUTES)
    for number in range(3):
        _ = events | f"group {number}" >> hr.GroupByKey()
    dests = [dest for exchange in lowered(p, shards=5).exchanges for dest in exchange.dests]
    assert len(set(dests)) == 15
