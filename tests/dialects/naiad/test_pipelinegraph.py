"""Graphs of vertices in pipelines on Spark: Naiad's examples, epochs, restarts, status, errors."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from pyspark.sql import SparkSession

import headrace as hr
from headrace import naiad

Time = tuple[int, ...]


class DistinctCount(naiad.Vertex):
    """Sends at once what it has not seen in an epoch, and the number of it when the epoch is over: Naiad's example."""

    outputs = ("distinct", "counts")

    def __init__(self) -> None:
        self.seen: dict[Time, set[Any]] = {}

    def on_recv(self, message: Any, time: Time) -> None:
        if time not in self.seen:
            self.seen[time] = set()
            self.notify_at(time)
        if message not in self.seen[time]:
            self.seen[time].add(message)
            self.send_by("distinct", message, time)

    def on_notify(self, time: Time) -> None:
        self.send_by("counts", len(self.seen.pop(time)), time)


class WordCount(naiad.Vertex):
    """Counts words over all epochs, and sends those that an epoch changed."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.changed: dict[Time, Counter[str]] = {}

    def on_recv(self, message: str, time: Time) -> None:
        self.notify_at(time)
        self.changed.setdefault(time, Counter()).update(message.split())

    def on_notify(self, time: Time) -> None:
        self.counts += self.changed[time]
        for word in sorted(self.changed.pop(time)):
            self.send((word, self.counts[word]), time)


class Spread(naiad.Vertex):
    """Labels nodes with the least that they are connected with; labels improve from round to round, and over epochs."""

    def __init__(self) -> None:
        self.neighbours: dict[Any, list[Any]] = {}
        self.labels: dict[Any, Any] = {}

    def on_recv_edges(self, message: tuple[Any, Any], time: Time) -> None:
        node, other = message
        self.neighbours.setdefault(node, []).append(other)
        self.on_recv_labels((node, node), time)
        self.send((other, self.labels[node]), time)

    def on_recv_labels(self, message: tuple[Any, Any], time: Time) -> None:
        node, label = message
        if node not in self.labels or label < self.labels[node]:
            self.labels[node] = label
            for other in self.neighbours.get(node, ()):
                self.send((other, label), time)


class Search(naiad.Vertex):
    """Breadth-first search: a round is a step, and a node is reached once."""

    def __init__(self) -> None:
        self.neighbours: dict[Any, list[Any]] = {}
        self.reached: set[Any] = set()
        self.fresh: dict[Time, list[Any]] = {}

    outputs = ("to", "steps")

    def on_recv_edges(self, message: tuple[Any, Any], time: Time) -> None:
        self.neighbours.setdefault(message[0], []).append(message[1])

    def on_recv_nodes(self, message: Any, time: Time) -> None:
        self.fresh.setdefault(time, []).append(message)
        self.notify_at(time)

    def on_notify(self, time: Time) -> None:
        for node in self.fresh.pop(time):
            if node not in self.reached:
                self.reached.add(node)
                self.send_by("steps", (node, time[1]), time)
                for other in self.neighbours.get(node, ()):
                    self.send(other, time)


def connected(graph: naiad.Graph, edges: naiad.Stream) -> naiad.Stream:
    """Changes of labels: all that were sent in an epoch, of which the least of a node is its label."""
    loop = graph.loop("spreading")
    back = loop.feedback()
    labels = graph.stage(
        Spread,
        {"edges": loop.enter(edges).by(lambda edge: edge[0]), "labels": back.by(lambda label: label[0])},
        vertices=3,
    )
    back.connect(labels)
    return loop.leave(labels)


def by_epoch(out: Any) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    for message, time in out:
        found.setdefault(time[0], []).append(message)
    return {epoch: sorted(messages) for epoch, messages in sorted(found.items())}


def both_ways(roads: str) -> list[tuple[str, str]]:
    return [way for road in roads.split() for way in ((road[0], road[1]), (road[1], road[0]))]


def labels_of(out: Any, epoch: int) -> dict[str, str]:
    """The labels after an epoch; a node on its own sends nothing, and has none."""
    labels: dict[str, str] = {}
    for (node, label), time in out:
        if time[0] <= epoch:
            labels[node] = min(label, labels.get(node, label))
    return labels


def test_naiads_examples_in_a_stream_by_batches(spark: SparkSession) -> None:
    p = hr.Pipeline(spark=spark)
    script = hr.TestStream().add(both_ways("ab bc de")).add(both_ways("cd")).add(both_ways("ab"))
    edges = p | script.finish()
    graph = naiad.Graph()
    read = graph.input("edges", edges)
    distinct = graph.stage(DistinctCount, read)
    names = graph.stage(WordCount, graph.input("names", edges | hr.Map(" ".join)))
    labels = connected(graph, read)
    one, counts, words, spread = naiad.messages(distinct, distinct["counts"], names, labels)
    collected = [each | f"collect {n}" >> hr.Collect() for n, each in enumerate((one, counts, words, spread))]
    handle = p.run(stream=True)
    handle.wait()
    assert by_epoch(collected[0]) == {
        0: sorted(both_ways("ab bc de")),
        1: sorted(both_ways("cd")),
        2: [*both_ways("ab")],
    }
    assert by_epoch(collected[1]) == {0: [6], 1: [2], 2: [2]}
    assert by_epoch(collected[2]) == {
        0: [("a", 2), ("b", 4), ("c", 2), ("d", 2), ("e", 2)],
        1: [("c", 4), ("d", 4)],
        2: [("a", 4), ("b", 6)],
    }
    found = list(collected[3])
    assert labels_of(found, 0) == {"a": "a", "b": "a", "c": "a", "d": "d", "e": "d"}
    assert labels_of(found, 1) == dict.fromkeys("abcde", "a")
    counted = handle.status().exchanges["graph"].counts[0]  # type: ignore[attr-defined]
    assert counted["notices"] == 6 and counted["late"] == 0 and counted["rounds"] > 2 and "epoch" not in counted
    assert "1 task, stages DistinctCount, WordCount, Spread, all in one shard" in p.explain(stream=True)


def test_breadth_first_search_in_a_batch_and_a_stream(spark: SparkSession) -> None:
    ways = [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4), (9, 8)]

    def search(nodes: Any, edges: Any, **options: Any) -> Any:
        graph = naiad.Graph()
        loop = graph.loop()
        back = loop.feedback()
        first = graph.stage(Both, {"new": loop.enter(graph.input("nodes", nodes)), "old": back})
        entered = loop.enter(graph.input("edges", edges))
        found = graph.stage(Search, {"edges": entered, "nodes": first})
        back.connect(found["to"])
        return naiad.messages(loop.leave(found["steps"]), **options)

    expected = [(0, 0), (1, 1), (2, 1), (3, 2), (4, 3)]
    p = hr.Pipeline(spark=spark)
    steps = search(p | "nodes" >> hr.Create([0]), p | "edges" >> hr.Create(ways)) | hr.Collect()
    p.run().wait()
    assert sorted(sent.message for sent in steps) == expected
    p = hr.Pipeline(spark=spark)
    timed = p | "ways" >> hr.TestStream().add([hr.TimestampedValue(way, 0) for way in ways]).finish()
    root = p | "root" >> hr.TestStream().add([hr.TimestampedValue(0, 1)]).finish()
    steps = search(root, timed, epochs="time") | hr.Collect()
    p.run(stream=True).wait()
    assert sorted(sent.message for sent in steps) == expected and {sent.time for sent in steps} == {(1,)}


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
