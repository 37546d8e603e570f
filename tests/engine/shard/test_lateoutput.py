"""Late outputs: what the definition calls late is given, whole, and nothing else changes; and in pipelines."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given

import headrace as hr
from headrace.engine.aggregation.accumulators import RowKind
from headrace.engine.plan.lowering import lower
from headrace.engine.shard.processor import ShardProcessor
from headrace.engine.shard.work import Grouping
from headrace.model.collected import Collected
from headrace.model.panes import NO_PANE, Windowing
from headrace.model.times import SECOND
from headrace.model.windows import CountWindows, GlobalWindows
from tests.engine.shard.test_processor_properties import Move, moves, reference_steps, rows_of, windowings
from tests.scale import examples

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

at = hr.TimestampedValue


@examples(300)
@given(windowing=windowings, script=moves)
def test_what_is_late_is_given_and_panes_are_as_ever(windowing: Windowing, script: list[Move]) -> None:
    work, plain, seen = Grouping(windowing, late=True), ShardProcessor(windowing), 0
    shard = work.processor()
    for elements, clocks, reference, _ in reference_steps(windowing, script):
        rows = rows_of(elements, windowing.window)
        panes = [bundle for _, bundle in Grouping(windowing).bundles(plain.step(rows, clocks).panes)]
        given = list(work.bundles(shard.step(rows, clocks).panes))
        assert [bundle.elements for tag, bundle in given if tag is None] == [bundle.elements for bundle in panes]
        late: Counter[Any] = Counter()
        for bundle in (bundle for tag, bundle in given if tag == "late"):
            assert bundle.pane == NO_PANE and not bundle.retraction
            late.update(zip(bundle.elements, bundle.all_times().tolist(), strict=True))
            if not isinstance(windowing.window, CountWindows | GlobalWindows):
                bounds = zip(bundle.elements, bundle.all_times().tolist(), bundle.windows(), strict=True)
                assert all(window in windowing.window.windows_of(t, key) for (key, _), t, window in bounds)
        expected = [((each.key, each.value), each.time) for each in reference.late[seen:]]
        assert late == Counter(expected)
        seen = len(reference.late)


def test_elements_whose_late_ones_are_asked_for_travel_one_by_one() -> None:
    p = hr.Pipeline()
    pairs = p | hr.TestStream() | hr.WindowInto(hr.FixedWindows(10))
    _ = pairs | "plain" >> hr.CombinePerKey(sum)
    _ = pairs | "late" >> hr.CombinePerKey(sum).with_late_output()
    exchanges: dict[str, Any] = {each.label: each for each in lower(p.graph(), shards=2, partitions=2).exchanges}
    assert {label: each.work.rows is RowKind.ACCUMULATORS for label, each in exchanges.items()} == {
        "plain": True,
        "late": False,
    }
    plain, late = (each.work for each in exchanges.values())
    assert (
        plain.describe() == late.describe() and plain.identity() == late.identity()
    )  # state is the same, asked or not


def built(p: hr.Pipeline, source: Any) -> dict[str, tuple[Collected, Collected]]:
    pairs = p | source.with_output_types(tuple[str, int])
    windowed = pairs | hr.WindowInto(hr.SlidingWindows(20, 10))
    groups: dict[str, Any] = {
        "group": hr.GroupByKey(),
        "combine": hr.Sum.per_key(),
        "globally": hr.Count.globally(),
        "per element": hr.Count.per_element(),
        "columns": hr.GroupBy("_1").aggregate(total=hr.sum("_2"), last=hr.last("_2")),
    }
    given = {name: windowed | name >> transform.with_late_output() for name, transform in groups.items()}
    return {
        name: (both.main | f"main {name}" >> hr.Collect(), both.late | f"late {name}" >> hr.Collect())
        for name, both in given.items()
    }


def test_late_elements_in_a_stream_and_none_in_a_batch(spark: SparkSession) -> None:
    elements = [at(("a", 1), 3), at(("a", 2), 14), at(("b", 5), 25), at(("a", 4), 12)]
    p = hr.Pipeline(spark=spark)
    script = hr.TestStream().add(elements[:3]).advance_watermark(20).add(elements[3:]).finish()
    streamed = built(p, script)
    handle = p.run()
    handle.wait()
    # 12 is in the windows from 0 and from 10, of which the first is over.
    for name, (_, late) in streamed.items():
        (each,) = late.windowed
        assert (each.value, each.timestamp // SECOND) == (("a", 4), 12), name
        assert (each.window.start // SECOND, each.window.end // SECOND) == (0, 20), name
        assert each.pane.timing == "unknown"
    assert {handle.metrics()[label]["late"] for label in ("group", "combine", "columns")} == {1}
    totals = sorted((e.window.start // SECOND, e.value[1]) for e in streamed["combine"][0].windowed)
    assert totals == [(-10, 1), (0, 3), (10, 5), (10, 6), (20, 5)]
    rows = sorted((e.window.start // SECOND, tuple(e.value)) for e in streamed["columns"][0].windowed)
    assert rows == [(-10, ("a", 1, 1)), (0, ("a", 3, 2)), (10, ("a", 6, 2)), (10, ("b", 5, 5)), (20, ("b", 5, 5))]

    p = hr.Pipeline(spark=spark)
    batched = built(p, hr.Create(elements))
    p.run().wait()
    assert [list(late) for _, late in batched.values()] == [[]] * 5
    assert sorted(value for _, value in batched["combine"][0]) == [1, 5, 5, 6, 7]


def test_both_outputs_have_names() -> None:
    p = hr.Pipeline()
    both = p | hr.Create([("a", 1)]) | hr.GroupByKey().with_late_output()
    assert set(both) == {"main", "late"}
    with pytest.raises(KeyError, match="no output tagged 'bad'; there are 'main', 'late'"):
        both["bad"]
