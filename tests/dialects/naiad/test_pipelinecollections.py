"""Collections that change, in pipelines on Spark: batches, streams, restarts, errors."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import changing_graphs as graphs
import pytest
from pyspark.sql import SparkSession

import headrace as hr
from headrace.log import Log, Producer
from tests.waiting import wait_for


def answer(out: Any) -> dict[Any, int]:
    counts: Counter[Any] = Counter()
    for change in out:
        counts[change.element] += change.diff
    return {element: count for element, count in counts.items() if count}


def is_answer(written: dict[int, list[hr.Change]], expected: dict[Any, int]) -> bool:
    return answer(change for batch in dict(written).values() for change in batch) == expected


def test_a_batch_computes_all_input_at_once(spark: SparkSession) -> None:
    with hr.Pipeline(spark=spark) as p:
        roads = hr.collection(p | "roads" >> hr.Create([road for batch in graphs.ROADS for road in batch]))
        built = hr.collection(p | "built" >> hr.Create([hr.Change(("bolt", "wheel"), 5), ("wheel", "cart")]))
        labels = hr.changes(graphs.components(roads), "labels") | hr.Collect()
        pieces = hr.changes(graphs.pieces(built), "pieces") | hr.Collect()
        none = hr.changes(roads.filter(lambda road: False), "none") | hr.Collect()
    towns = {"ash": "ash", "bay": "ash", "cove": "ash", "dale": "dale", "elm": "dale", "fen": "dale"}
    assert answer(labels) == dict.fromkeys(towns.items(), 1)
    assert answer(pieces) == {("bolt", "wheel"): 5, ("bolt", "cart"): 5, ("wheel", "cart"): 1}
    assert list(none) == []


@pytest.mark.slow("a stream is started three times")
@pytest.mark.parametrize("shards", [1, 2])
def test_a_stream_goes_on_from_its_checkpoint(spark: SparkSession, tmp_path: Path, shards: int) -> None:
    topic = Log(tmp_path / "log").create("roads", partitions=2)
    p = hr.Pipeline(spark=spark)
    roads = p | hr.ReadTopic("roads", log=str(tmp_path / "log"))
    edges = hr.collection(roads | hr.Map(lambda record: hr.Change(tuple(record["road"]), record["count"])))
    written: dict[int, list[hr.Change]] = {}
    labels = hr.changes(graphs.components(edges), "components", shards=shards)
    labels | hr.ForEachBatch(lambda changes, batch: written.__setitem__(batch, [change.value for change in changes]))
    epochs = 0.0
    for changes, expected in [
        ([("a", "b", 1), ("b", "c", 1), ("d", "e", 1)], "abc de"),
        ([("c", "d", 1)], "abcde"),
        ([("b", "c", -1)], "ab cde"),
    ]:
        with Producer(topic) as producer:
            for one, other, count in changes:
                producer.send({"road": [one, other], "count": count})
        groups = {(town, min(group)): 1 for group in expected.split() for town in group}
        handle: Any = p.run(checkpoint=str(tmp_path / "checkpoint"))
        try:
            wait_for(partial(is_answer, written, groups), seconds=180)
        finally:
            handle.stop()
        counts = handle.status().exchanges["components"].counts[0]
        assert counts["epochs"] > epochs and counts["rounds"] > 1
        assert shards > 1 or counts["changes"] > len(changes)
        epochs = counts["epochs"]
        assert len(list((tmp_path / "checkpoint/control/rounds").glob("*.parquet"))) <= 2


def test_several_shards_give_the_changes_of_an_epoch_at_once(spark: SparkSession) -> None:
    p = hr.Pipeline(spark=spark)
    script = hr.TestStream()
    for batch in graphs.ROADS:
        script = script.add([*batch])
    roads = hr.collection(p | script.finish())
    by_batch: dict[int, list[hr.Change]] = {}
    labels = hr.changes(graphs.components(roads), "labels", shards=3)
    labels | hr.ForEachBatch(lambda changes, batch: by_batch.__setitem__(batch, [change.value for change in changes]))
    p.run(stream=True).wait()
    total: Counter[Any] = Counter()
    answers = []
    for number in sorted(by_batch):
        for change in by_batch[number]:
            total[change.element] += change.diff
        answers.append("".join(sorted({label[0] for (_, label), count in total.items() if count})))
    assert answers == ["ad", "a", "ad"]


def test_a_loop_without_end_ends_the_stream_with_what_moves(spark: SparkSession) -> None:
    p = hr.Pipeline(spark=spark)
    numbers = hr.collection(p | hr.TestStream().add([1]).finish())
    hr.changes(hr.iterate(numbers, lambda each: each.map(lambda n: n + 1), limit=9)) | hr.Collect()
    with pytest.raises(hr.HeadraceError, match="gone round 9 times, its limit, and 2 changes still go round"):
        p.run(stream=True).wait()


def test_a_function_that_fails_is_blamed_with_its_element(spark: SparkSession) -> None:
    p = hr.Pipeline(spark=spark)
    numbers = hr.collection(p | hr.TestStream().add([1, 0]).finish())
    hr.changes(numbers.map(lambda n: 1 // n), "shares") | hr.Collect()
    with pytest.raises(hr.TransformError, match=r"'shares' failed: ZeroDivisionError: .* \(of the element 0\)"):
        p.run(stream=True).wait()


@pytest.mark.parametrize(
    ("build", "why"),
    [
        (
            lambda p: hr.collection([1]),  # type: ignore[arg-type]
            r"collection takes a collection of a pipeline, got \[1\]",
        ),
        (lambda p: hr.changes(hr.Collection.input("x")), "made of hr.collection"),
        (
            lambda p: hr.changes((one := p | hr.Create([1])) and hr.collection(one).concat(hr.collection(one))),
            "two inputs are called 'Create'",
        ),
    ],
)
def test_what_has_no_meaning_is_refused(build: Any, why: str) -> None:
    with pytest.raises(hr.PipelineError, match=why):
        build(hr.Pipeline())
