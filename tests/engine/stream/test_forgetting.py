"""A stream that goes on without some of its groupings, whose state is removed, or with new ones at reserved levels."""

from __future__ import annotations

import pathlib
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import headrace as hr
from headrace.engine.shard.wire import exchange_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERY = hr.WindowInto(hr.GlobalWindows(), trigger=hr.Repeatedly(hr.AfterCount(1)), accumulation="accumulating")
STEPS = [[("a", 1), ("b", 2)], [("a", 10), ("c", 3)], [("b", 20), ("a", 100)]]


@pytest.mark.slow("streams are started six times")
def test_groupings_are_forgotten_and_come_back_empty(spark: SparkSession, tmp_path: pathlib.Path) -> None:
    checkpoint = str(tmp_path / "checkpoint")

    def run(
        steps: int,
        *labels: str,
        forget: list[str] | None = None,
        levels: int | None = None,
        checkpoint: str = checkpoint,
    ) -> tuple[dict[str, list[Any]], Any]:
        p = hr.Pipeline(spark=spark)
        script = hr.TestStream()
        for step in STEPS[:steps]:
            script = script.add([hr.TimestampedValue(pair, 1) for pair in step])
        events = p | "events" >> script | EVERY
        given: dict[str, list[Any]] = {label: [] for label in ("sums", *labels)}

        def take(pc: Any, label: str) -> None:
            def add(elements: list[Any], batch: int) -> None:
                given[label] += [each.value for each in elements]

            _ = pc | f"take {label}" >> hr.ForEachBatch(add)

        sums = events | "sums" >> hr.CombinePerKey(sum)
        take(sums, "sums")
        if "counts" in labels:
            take(events | "counts" >> hr.Count.per_key(), "counts")
        if "deep" in labels:
            take(sums | "deep" >> hr.Count.per_key(), "deep")
        handle: Any = p.run(checkpoint=checkpoint, forget=forget, levels=levels)
        handle.wait()
        return {label: sorted(each) for label, each in given.items()}, handle

    def stored() -> list[Counter[int | None]]:
        """How many shards of each grouping have state, level by level."""
        reader = spark.read.format("statestore").option("path", f"{checkpoint}/spark").option("stateVarName", "cells")
        # Spark numbers operators from the end of the query.
        rows = [reader.option("operatorId", operator).load().collect() for operator in (1, 0)]
        return [Counter(map(exchange_of, {row["key"][0] for row in each})) for each in rows]

    given, _ = run(1, "counts", "deep")
    assert given == {"sums": [("a", 1), ("b", 2)], "counts": [("a", 1), ("b", 1)], "deep": [("a", 1), ("b", 1)]}
    before = stored()
    assert set(before[0]) == {0, 1} and set(before[1]) == {2}
    with pytest.raises(hr.PipelineError, match=r"(?s)'counts' is gone, .*run\(forget=\['counts'\]\)"):
        run(2)
    given, handle = run(2, forget=["counts", "deep"])
    assert given == {"sums": [("a", 11), ("c", 3)]}
    assert [note for note in handle.status().notes if "grouping" in note] == [
        "the grouping 'counts' is gone, and its state is removed",
        "the grouping 'deep' is gone, and its state is removed",
    ]
    assert stored() == [Counter({0: before[0][0]}), Counter()]
    given, _ = run(3, "counts", "deep")
    assert given == {"sums": [("a", 111), ("b", 22)], "counts": [("a", 1), ("b", 1)], "deep": [("a", 1), ("b", 1)]}
    assert set(stored()[0]) == {0, 3} and set(stored()[1]) == {4}
    reserved = str(tmp_path / "reserved")
    given, _ = run(1, levels=2, checkpoint=reserved)
    assert given == {"sums": [("a", 1), ("b", 2)]}
    given, handle = run(2, "deep", checkpoint=reserved)
    assert given == {"sums": [("a", 11), ("c", 3)], "deep": [("a", 1), ("c", 1)]}
    assert "the grouping 'deep' is new: it begins empty" in handle.status().notes


def test_what_is_forgotten_has_labels(spark: SparkSession) -> None:
    p = hr.Pipeline(spark=spark)
    _ = p | hr.TestStream().finish() | hr.Collect()
    with pytest.raises(hr.PipelineError, match="levels is a number of levels of groupings, at least 1, got 0"):
        p.run(levels=0)
    with pytest.raises(hr.PipelineError, match=r"forget takes a list of labels, got 'sums'; write forget=\['totals'\]"):
        p.run(forget="sums")
