"""The interval join against a nested loop: in a batch, and over any order and batching of a stream."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.engine.plan import lowering
from headrace.engine.plan.translation import stateful_fn
from headrace.engine.shard.clocks import Clocks
from headrace.engine.shard.intervaljoin import ToSides
from headrace.engine.shard.rows import to_pairs
from headrace.engine.shard.senders import ToShards
from headrace.engine.stateful.processor import StatefulWork
from headrace.engine.worker.bundles import Bundle
from headrace.model.times import SECOND
from tests.scale import examples

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


# In a stream

late_by = st.sampled_from([0, 7])
seconds = st.integers(0, 30)
events = st.lists(st.tuples(st.integers(0, 1), st.sampled_from("ab"), seconds), max_size=25)


@examples(150)
@given(events, st.data(), st.sampled_from(INTERVALS), late_by)
def test_a_stream_joins_like_a_nested_loop_in_any_order(
    events: list[Any], data: st.DataObject, interval: tuple[int, int], lateness: int
) -> None:
    """Elements come in any order and batching that the watermark and the allowed lateness admit.

    The join of encoded pairs, and the stateful DoFn that joins elements of panes.
    """
    p = hr.Pipeline()
    lenient = hr.WindowInto(hr.GlobalWindows(), trigger=hr.Repeatedly(hr.AfterCount(1)), allowed_lateness=lateness)
    both = p | hr.TestStream() | lenient
    _ = (both, both) | hr.IntervalJoin(*interval)
    line = lowering.lower(p.graph(), shards=1, partitions=1)
    (exchange,) = line.exchanges
    (output,) = [each for each in line.outputs if isinstance(each, ToShards)]
    node = next(node for node in p.graph() if node.label == exchange.label)
    assert isinstance(node.transform, hr.ParDo) and isinstance(output.rows, ToSides)
    works: list[tuple[Any, Any]] = [
        (exchange.work, output.rows),
        (
            StatefulWork(stateful_fn(node, node.transform)),
            to_pairs("join", node.inputs[0].windowing, retractable=False),
        ),
    ]
    processors = [work.processor() for work, _ in works]
    left, right = (
        [(key, f"{side} {number}", time) for number, (of, key, time) in enumerate(events) if of == side]
        for side in (0, 1)
    )
    coming = data.draw(st.permutations([(0, each) for each in left] + [(1, each) for each in right]))
    found: list[Counter[Any]] = [Counter(), Counter()]
    watermark = -(10**6)
    blocks = [processor.dump() for processor in processors]
    while coming:
        count = data.draw(st.integers(1, 6))
        batch, coming = coming[:count], coming[count:]
        bundle = Bundle(
            [(key, (side, value)) for side, (key, value, _) in batch],
            np.array([time * SECOND for _, (_, _, time) in batch], np.int64),
        )
        reach = min((time for _, (_, _, time) in coming), default=60) + lateness
        watermark = max(watermark, data.draw(st.integers(-5, reach)))
        again = data.draw(st.booleans())
        for number, (work, rows) in enumerate(works):
            step = processors[number].step(rows.batch(bundle), Clocks(watermark * SECOND))
            for _, given_ in work.bundles(step.panes):
                timed_values = zip(given_.elements, given_.all_times().tolist(), strict=True)
                found[number].update((*value, time) for value, time in timed_values)
            blocks[number] += processors[number].changes()
            if again:
                processors[number] = work.processor()
                processors[number].load(blocks[number])
    for processor, matches in zip(processors, found, strict=True):
        assert matches == nested_loop(left, right, *interval)
        assert processor.step(None, Clocks(200 * SECOND)).held == 0  # nothing is kept that cannot find a partner


def test_on_spark_with_late_elements_across_micro_batches(spark: SparkSession) -> None:
    def at(side: str, key: str, value: str, second: int) -> hr.TimestampedValue:
        return hr.TimestampedValue((side, key, value), second)

    script = (
        hr.TestStream()
        .add([at("order", "amy", "book", 10), at("order", "bob", "pen", 12)])
        .advance_watermark(15)
        .add([at("payment", "amy", "7 EUR", 18), at("payment", "bob", "1 EUR", 40)])
        .advance_watermark(20)
        .add([at("order", "amy", "ink", 16), at("order", "amy", "mug", 5)])  # late: one finds its payment, one cannot
        .finish()
    )
    p = hr.Pipeline(spark=spark)
    events = p | script | hr.WindowInto(hr.GlobalWindows(), allowed_lateness=5)

    def of(side: str) -> Any:
        picked = events | side >> hr.Filter(lambda each: each[0] == side)
        return picked | f"pair {side}" >> hr.Map(lambda each: each[1:])

    joined = {"orders": of("order"), "payments": of("payment")} | "paid" >> hr.IntervalJoin("-1 second", "10 seconds")
    paid = joined | hr.Collect()
    windowed = joined | hr.WindowInto(hr.FixedWindows(10)) | "keys" >> hr.Keys() | hr.Count.per_element()
    counts = windowed | "collect counts" >> hr.Collect()
    handle = p.run()
    handle.wait()
    by_batch = {batch: [(e.value, e.timestamp // SECOND) for e in each] for batch, each in paid.batches.items()}
    assert {batch: each for batch, each in by_batch.items() if each} == {
        2: [(("amy", ("book", "7 EUR")), 18)],
        4: [(("amy", ("ink", "7 EUR")), 18)],
    }
    assert [(e.value, e.window.start // SECOND) for e in counts.windowed] == [(("amy", 1), 10)]
    assert handle.metrics()["paid/join"]["late"] == 0
