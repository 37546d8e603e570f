"""Graphs of vertices in pipelines on Spark: Naiad's examples, epochs, restarts, status, errors."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import timely_vertices as timely
from pyspark.sql import SparkSession
from timely_vertices import DistinctCount, WordCount, both_ways

import headrace as hr
from headrace import naiad
from headrace.log import Log
from tests.scale import only_full
from tests.waiting import wait_for

Time = tuple[int, ...]


def by_epoch(out: Any) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    for message, time in out:
        found.setdefault(time[0], []).append(message)
    return {epoch: sorted(messages) for epoch, messages in sorted(found.items())}


def least(out: Any, until: int) -> dict[str, Any]:
    """The least value of each town in the epochs up to one."""
    found: dict[str, Any] = {}
    for (town, value), time in out:
        if time[0] <= until:
            found[town] = min(value, found.get(town, value))
    return found


@pytest.mark.parametrize("shards", [1, 2])
def test_naiads_examples_in_a_stream_by_batches(spark: SparkSession, shards: int) -> None:
    p = hr.Pipeline(spark=spark)
    script = hr.TestStream().add(both_ways("a-b b-c d-e")).add(both_ways("c-d")).add(both_ways("a-e"))
    edges = p | script.finish()
    graph = naiad.Graph()
    read = graph.input("roads", edges)
    distinct = graph.stage(DistinctCount, read)
    names = graph.stage(WordCount, graph.input("names", edges | hr.Map(" ".join)))
    components = timely.components(graph, read)
    streams = naiad.messages(distinct, distinct["counts"], names, components, shards=shards)
    once, counts, words, labels = [each | f"collect {n}" >> hr.Collect() for n, each in enumerate(streams)]
    handle = p.run(stream=True)
    handle.wait()
    assert by_epoch(once) == {0: sorted(both_ways("a-b b-c d-e")), 1: both_ways("c-d"), 2: both_ways("a-e")}
    assert by_epoch(counts) == {0: [6], 1: [2], 2: [2]}
    assert by_epoch(words) == {
        0: [("a", 2), ("b", 4), ("c", 2), ("d", 2), ("e", 2)],
        1: [("c", 4), ("d", 4)],
        2: [("a", 4), ("e", 4)],
    }
    assert least(labels, 0) == {"a": "a", "b": "a", "c": "a", "d": "d", "e": "d"}
    assert least(labels, 1) == dict.fromkeys("abcde", "a")
    assert least(labels, 2) == least(labels, 1)
    counts_by_shard = handle.status().exchanges["graph"].counts  # type: ignore[attr-defined]
    assert sum(each["notices"] for each in counts_by_shard.values()) == 6
    for counted in counts_by_shard.values():
        assert counted["late"] == 0 and counted["rounds"] > 1 and "epoch" not in counted
    where = "1 task, stages {}, all in one shard" if shards == 1 else "2 tasks, stages {}, a round a micro-batch"
    assert where.format("DistinctCount, WordCount, Spread") in p.explain(stream=True)


@pytest.mark.parametrize("bounded", [pytest.param(True, marks=only_full("docs/naiad.md has batches of graphs")), False])
def test_distances_in_a_batch_and_in_a_stream(spark: SparkSession, *, bounded: bool) -> None:
    roads = {0: "ash-b b-c c-d x-y", 1: "ash-c", 3: "d-y"}
    ways = [hr.TimestampedValue(way, epoch) for epoch, listed in roads.items() for way in both_ways(listed)]
    p = hr.Pipeline(spark=spark)
    source = hr.Create(ways) if bounded else hr.TestStream().add(ways[4:]).add(ways[:4]).finish()
    graph = naiad.Graph()
    found = naiad.messages(timely.distances(graph, graph.input("roads", p | source)), epochs="time") | hr.Collect()
    p.run(stream=not bounded).wait()
    steps = list(found)
    assert least(steps, 0) == {"b": 1, "c": 2, "d": 3}
    assert least(steps, 1) == least(steps, 2) == {"b": 1, "c": 1, "d": 2}
    assert least(steps, 3) == {"b": 1, "c": 1, "d": 2, "y": 3, "x": 4}


class Both(naiad.Vertex):
    """Puts two streams together."""

    def on_recv_new(self, message: Any, time: Time) -> None:
        self.send(message, time)

    on_recv_old = on_recv_new


def test_the_watermark_closes_epochs_and_what_is_late_is_counted(spark: SparkSession) -> None:
    def words(texts: str, epoch: int) -> list[Any]:
        return [hr.TimestampedValue(word, epoch) for word in texts.split()]

    p = hr.Pipeline(spark=spark)
    script = (
        hr.TestStream()
        .add(words("a b a", 0) + words("c", 2))
        .advance_watermark(1)
        .add(words("d", 1) + words("late", 0))
        .add(words("a", 2))
        .advance_watermark(3)
    )
    graph = naiad.Graph()
    distinct = graph.stage(DistinctCount, graph.input("words", p | script.advance_watermark(math.inf)))
    new, counts = naiad.messages(distinct, distinct["counts"], epochs="time")
    out, counted = new | "new" >> hr.Collect(), counts | "counts" >> hr.Collect()
    grouped = counts | "pair" >> hr.Map(lambda sent: ("all", sent.message)) | hr.WindowInto(hr.FixedWindows(2))
    totals = grouped | hr.Sum.per_key() | "totals" >> hr.Collect()
    handle = p.run(stream=True)
    handle.wait()
    assert by_epoch(out) == {0: ["a", "b"], 1: ["d"], 2: ["a", "c"]}
    when = {batch: [each.value for each in values] for batch, values in counted.batches.items() if values}
    assert when == {1: [naiad.Sent(2, (0,))], 4: [naiad.Sent(1, (1,)), naiad.Sent(2, (2,))]}
    status = handle.status().exchanges  # type: ignore[attr-defined]
    assert status["graph"].counts[0]["late"] == 1
    assert sorted(totals) == [("all", 2), ("all", 3)] and all(each.late == 0 for each in status.values())


def written_so_far(written: dict[int, list[Any]], expected: dict[int, list[Any]]) -> bool:
    return by_epoch([sent for batch in dict(written).values() for sent in batch]) == expected


@pytest.mark.slow("a stream is started three times")
def test_an_input_is_as_far_as_its_slowest_producer_also_after_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    topic = Log(tmp_path / "log").create("words", partitions=2)
    fast, slow = naiad.Producer(topic, "fast"), naiad.Producer(topic, "slow")
    p = hr.Pipeline(spark=spark)
    read = p | hr.ReadTopic("words", log=str(tmp_path / "log"), watermark="stream")
    graph = naiad.Graph()
    distinct = graph.stage(DistinctCount, graph.input("words", read))
    counts: dict[int, list[Any]] = {}
    labels: dict[int, list[Any]] = {}
    found = naiad.messages(distinct["counts"], epochs="time")
    found | hr.ForEachBatch(lambda values, batch: counts.__setitem__(batch, [each.value for each in values]))
    pairs = hr.collection(read | "pairs" >> hr.Map(lambda word: (word[0], word)))
    least = hr.changes(pairs.reduce(min), "least", epochs="time")
    least | "labels" >> hr.ForEachBatch(lambda values, batch: labels.__setitem__(batch, [*values]))

    def run(expected: dict[int, list[Any]]) -> Any:
        handle: Any = p.run(checkpoint=str(tmp_path / "checkpoint"))
        try:
            wait_for(partial(written_so_far, counts, expected), seconds=180)
            handle.query.processAllAvailable()
        finally:
            handle.stop()
        return handle.status()

    for word in ("ash", "elm", "ash"):
        fast.send(word)
    fast.advance_to(2)
    slow.send("apple")
    slow.send("beech", epoch=1)
    slow.advance_to(1)
    status = run({0: [3]})
    assert status.exchanges["graph"].counts[0]["epoch"] == 1
    assert status.exchanges["graph"].waiting.why == "waits for the input 'words', which is in epoch 1"
    assert "graph has not fired the notice of epoch 1 of the stage 'DistinctCount'" in str(status)
    fast.send("fir")
    fast.flush()
    slow.advance_to(3)
    run({0: [3], 1: [1]})
    fast.close()
    status = run({0: [3], 1: [1], 2: [1]})
    assert status.exchanges["graph"].waiting is None and status.exchanges["graph"].counts[0]["late"] == 0
    every = sorted((each.timestamp // 1_000_000, *each.value) for values in labels.values() for each in values)
    assert every == [(0, ("a", "apple"), 1), (0, ("e", "elm"), 1), (1, ("b", "beech"), 1), (2, ("f", "fir"), 1)]


def test_what_goes_back_in_time_ends_the_stream(spark: SparkSession) -> None:
    p = hr.Pipeline(spark=spark)
    graph = naiad.Graph()
    back = graph.stage(Back, graph.input("numbers", p | hr.TestStream().add([1]).finish()))
    naiad.messages(back) | hr.Collect()
    with pytest.raises(hr.HeadraceError, match=r"'Back' was called at \(0,\) and sends at \(-1,\), back in time"):
        p.run(stream=True).wait()


class Back(naiad.Vertex):
    """Sends into the past."""

    def on_recv(self, message: Any, time: Time) -> None:
        self.send(message, (time[0] - 1,))


def test_what_has_no_meaning_is_refused() -> None:
    p = hr.Pipeline()
    numbers = p | hr.Create([1])
    graph = naiad.Graph()
    read = graph.input("numbers", numbers)
    both = graph.stage(Back, read)
    loop = graph.loop()
    inside = loop.enter(read)

    def refused(why: str, build: Any) -> None:
        with pytest.raises(hr.PipelineError, match=why):
            build()

    refused("messages takes streams of a graph", lambda: naiad.messages())
    refused("messages takes streams of a graph", lambda: naiad.messages(numbers))
    refused("streams outside of loops", lambda: naiad.messages(inside))
    refused("streams of one graph", lambda: naiad.messages(both, naiad.Graph().input("x")))
    refused("epochs must be 'batch'", lambda: naiad.messages(both, epochs="day"))  # type: ignore[arg-type]
    naiad.messages(both)
    refused("go to a pipeline already; give all streams at once", lambda: naiad.messages(both))
    refused("the graph is complete", lambda: graph.stage(Back, read, name="more"))
    bare = naiad.Graph()
    refused("gets its messages from nowhere", lambda: naiad.messages(bare.input("x")))


def test_an_element_without_a_time_has_no_epoch(spark: SparkSession) -> None:
    p = hr.Pipeline(spark=spark)
    graph = naiad.Graph()
    naiad.messages(graph.stage(Both, {"new": graph.input("n", p | hr.Create([1]))}), epochs="time") | hr.Collect()
    with pytest.raises(hr.HeadraceError, match="an epoch is an event time in whole seconds from 0 on"):
        p.run().wait()
