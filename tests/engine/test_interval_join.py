"""The interval join against a nested loop: in a batch, and over any order and batching of a stream."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import headrace as hr
from headrace.model.times import SECOND

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Timed = tuple[str, str, int]  # key, value, second
INTERVALS = [(-2, 5), (0, 0), (1, 4), (-6, -3)]


def nested_loop(left: list[Timed], right: list[Timed], lower: int, upper: int) -> Counter[Any]:
    return Counter(
        (key, (a, b), max(s, t) * SECOND)
        for key, a, s in left
        for other, b, t in right
        if key == other and s + lower <= t <= s + upper
    )


def sample(seed: int, count: int) -> tuple[list[Timed], list[Timed]]:
    rng = random.Random(seed)
    left, right = (
        [(rng.choice("abc"), f"{side}{number}", rng.randrange(40)) for number in range(count)] for side in "lr"
    )
    return left, right


def timed(elements: list[Timed]) -> list[hr.TimestampedValue]:
    return [hr.TimestampedValue((key, value), time) for key, value, time in elements]


def joined(p: hr.Pipeline, left: Any, right: Any) -> list[Any]:
    results = []
    for lower, upper in INTERVALS:
        join = hr.IntervalJoin(lower=lower, upper=upper)
        results.append((left, right) | f"{lower} to {upper}" >> join | f"collect {lower} to {upper}" >> hr.Collect())
    return results


def found(collected: Any) -> Counter[Any]:
    return Counter((*each.value, each.timestamp) for each in collected.windowed)


@pytest.mark.parametrize("seed", range(3))
def test_a_batch_joins_like_a_nested_loop(spark: SparkSession, seed: int) -> None:
    left, right = sample(seed, 60)
    p = hr.Pipeline(spark=spark)
    results = joined(p, p | "l" >> hr.Create(timed(left)), p | "r" >> hr.Create(timed(right)))
    p.run().wait()
    for (lower, upper), collected in zip(INTERVALS, results, strict=True):
        expected = nested_loop(left, right, lower, upper)
        assert expected and found(collected) == expected


def test_it_takes_two_collections_and_an_interval_that_is_one() -> None:
    p = hr.Pipeline()
    pairs = p | hr.Create([("a", 1)])
    with pytest.raises(hr.PipelineError, match=r"'IntervalJoin\(0 s, 5 s\)': it joins two collections, got 3"):
        (pairs, pairs, pairs) | hr.IntervalJoin(upper=5)
    with pytest.raises(hr.PipelineError, match="lower must not be above upper, got 2 s and 1 s"):
        hr.IntervalJoin(lower=2, upper=1)
