"""Sketches of columns in a batch, in a stream and in `play`: the same answers, also of many values."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import headrace as hr
from headrace.testing.play import play

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Visit(NamedTuple):
    page: str
    user: str
    code: bytes
    ms: float


AGGREGATIONS = {
    "users": hr.theta("user", lg_k=5),
    "codes": hr.theta("code"),
    "people": hr.approx_distinct("code"),
    "names": hr.approx_distinct("user"),
    "visits": hr.count_min("user", error=0.01),
    "often": hr.frequency("user", of=["u1", ""], error=0.01),
    "uneven": hr.second_moment("user"),
    "seen": hr.bloom("user", items=100),
    "fast": hr.rank("ms", of=10),
    "times": hr.histogram("ms", bins=[0, 10, 100]),
    "some": hr.sample("user", 5),
}
QUESTIONS = {
    "both": "theta_sketch_estimate(theta_intersection(codes, users))",
    "bounds": "theta_sketch_bounds(users)",
    "often": "count_min_frequency(visits, 'u1')",
    "seen": "bloom_contains(seen, 'u1')",
    "nobody": "bloom_contains(seen, null)",
}
ANY_BITS = ("names", "fast", "times", "some")
"""Whose answers depend on how many values are split."""


def visits(count: int = 3000) -> list[hr.TimestampedValue]:
    draw = random.Random(5)

    def visit() -> Visit:
        number = draw.randrange(1500)
        return Visit(
            draw.choice("aab"), f"u{number}" if number else "", bytes([number % 256]), draw.expovariate(1 / 20)
        )

    return [hr.TimestampedValue(visit(), draw.choice([1, 4, 12, 31])) for _ in range(count)]


def rows(collected: Any) -> dict[Any, Any]:
    return {(each.value.page, each.window): each.value for each in collected.windowed}


@pytest.mark.slow("a batch and a stream")
def test_batch_stream_and_play_agree(spark: SparkSession) -> None:
    events = visits()
    steps = [events[:1000], events[1000:1100], events[1100:]]
    window, grouping = hr.WindowInto(hr.Sessions(5)), hr.GroupBy("page").aggregate(**AGGREGATIONS)
    batch = hr.Pipeline(spark=spark)
    grouped = batch | hr.Create(events) | window | grouping
    in_batch = grouped | hr.Collect()
    asked_in_batch = grouped | "ask" >> hr.Select("page", **QUESTIONS) | "asked" >> hr.Collect()
    batch.run().wait()
    stream = hr.Pipeline(spark=spark)
    script = hr.TestStream().with_output_types(Visit)
    for step in steps:
        script = script.add(step)
    grouped = stream | script.finish().with_output_types(Visit) | window | grouping
    in_stream = grouped | hr.Collect()
    asked_in_stream = grouped | "ask" >> hr.Select("page", **QUESTIONS) | "asked" >> hr.Collect()
    stream.run().wait()

    found, streamed = rows(in_batch), rows(in_stream)
    assert len(found) == 6 and found.keys() == streamed.keys()
    for place, row in found.items():
        for name, aggregation in AGGREGATIONS.items():
            if name not in ANY_BITS:
                assert getattr(row, name) == getattr(streamed[place], name), (name, place)
            values = [
                getattr(each.value, aggregation.column)
                for each in events
                if each.value.page == place[0] and place[1].start <= each.timestamp < place[1].end
            ]
            for answer in (getattr(row, name), getattr(streamed[place], name)):
                check(name, answer, aggregation.fn, values)
    asked = rows(asked_in_batch)
    assert asked == rows(asked_in_stream)
    for place, row in found.items():
        codes, users = hr.ThetaSketch(row.codes), hr.ThetaSketch(row.users)
        frequency, seen = hr.CountMinSketch(row.visits).frequency("u1"), "u1" in hr.BloomFilter(row.seen)
        wanted = (place[0], (codes & users).estimate, [*users.bounds()], frequency, seen, None)
        assert asked[place] == wanted

    for name in ("users", "visits", "uneven", "seen"):
        aggregation = AGGREGATIONS[name]
        elements = [[(e.value.page, getattr(e.value, aggregation.column), e.timestamp / 1e6) for e in s] for s in steps]
        panes = play(
            window=hr.Sessions(5),
            combine=aggregation.fn,
            script=[*(("input", each) for each in elements), ("watermark", float("inf"))],
        )
        played = {(pane.key, pane.window[0] * 1e6): pane.values for step in panes for pane in step}
        assert played == {(page, window.start): [getattr(row, name)] for (page, window), row in found.items()}


def check(name: str, answer: Any, fn: Any, values: list[Any]) -> None:
    """Checks an answer that may be any within the error."""
    if name == "some":
        assert len(answer) == min(5, len(values)) and all(answer.count(each) <= values.count(each) for each in answer)
    elif name == "names":
        assert answer == pytest.approx(len(set(values)), rel=4 * 0.016)
    elif name == "fast":
        assert answer == pytest.approx(sum(each <= 10 for each in values) / len(values), abs=2 * 0.0133)
    elif name == "times":
        wanted = [sum(0 <= each < 10 for each in values), sum(10 <= each <= 100 for each in values)]
        assert [count for _, _, count in answer] == pytest.approx(wanted, abs=2 * 0.0165 * len(values))
    else:
        assert answer == fn.finish(fn.add_all(fn.zero(), values))
