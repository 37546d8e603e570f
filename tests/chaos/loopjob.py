"""The loops that are killed: connected components of edges that come and go, and vertices that search a graph.

Both read a topic, and each writes one.

    python tests/chaos/loopjob.py FOLDER

begins the stream of a folder, or goes on with it, and leaves its output there.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Final

from job import Output
from pyspark.errors import StreamingQueryException

import headrace as hr
from headrace import naiad
from headrace.engine.spark.session import spark_session
from headrace.log import Log

LANDMARKS: Final = (
    "embedded/topics/labels/0/*.index",
    "checkpoint/spark/offsets/[!.]*",
    "checkpoint/spark/commits/[!.]*",
    "checkpoint/spark/state/*/*/*.changelog",
    "checkpoint/headrace-*.json",
)
"""Files whose names are the same in every run. The topic that is written begins a segment with each batch."""

BATCHES: Final = 20
SIZE: Final = 30
"""How many micro-batches there are, and changes in each."""


def edges(folder: Path, batches: int = BATCHES) -> Log:
    """A log with all changes in it, and the topic that is written. It appears whole or not at all."""
    if not (folder / "embedded").exists():
        new = Log(folder / "embedded.new")
        topic = new.create("edges")
        rng = random.Random(1)
        present: set[tuple[int, int]] = set()
        for _ in range(batches):
            changes: list[object] = []
            for _ in range(SIZE):
                # So few edges at a time that components fall apart and grow together in every batch.
                edge = rng.choice(sorted(present)) if len(present) > SIZE else (rng.randrange(40), rng.randrange(40))
                changes.append([*edge, -1 if edge in present else 1])
                present ^= {edge}
            topic.append(0, topic.batch(changes, timestamps=[0] * SIZE))
        new.create("labels", segment_bytes=1)
        new.create("steps")
        new.path.rename(folder / "embedded")
    return Log(folder / "embedded")


def spread(collection: hr.Collection) -> hr.Collection:
    """Labels each node with the least node that it is connected with."""
    both = collection.concat(collection.map(lambda edge: (edge[1], edge[0])))
    nodes = both.map(lambda edge: (edge[0], edge[0])).distinct()
    return hr.iterate(
        nodes, lambda labels: labels.join(both, lambda node, label, other: (other, label)).concat(nodes).reduce(min)
    )


class Search(naiad.Vertex):
    """Breadth-first search from node 0 over all edges that there ever were: a notice ends each round."""

    outputs = ("further", "steps")

    def __init__(self) -> None:
        self.neighbours: dict[int, list[int]] = {}
        self.steps: dict[int, int] = {}
        self.reached: dict[tuple[int, ...], dict[int, int]] = {}

    def on_recv_edges(self, message: list[int], time: tuple[int, ...]) -> None:
        node, other, _ = message
        self.neighbours.setdefault(node, []).append(other)
        if node == 0:
            self.on_recv_nodes((0, 0), time)
        if node in self.steps:
            self.send((other, self.steps[node] + 1), time)

    def on_recv_nodes(self, message: tuple[int, int], time: tuple[int, ...]) -> None:
        node, steps = message
        reached = self.reached.setdefault(time, {})
        reached[node] = min(steps, reached.get(node, steps))
        self.notify_at(time)

    def on_notify(self, time: tuple[int, ...]) -> None:
        for node, steps in sorted(self.reached.pop(time).items()):
            if steps < self.steps.get(node, steps + 1):
                self.steps[node] = steps
                self.send_by("steps", [node, steps, *time], time)
                for other in self.neighbours.get(node, ()):
                    self.send((other, steps + 1), time)


def search(graph: naiad.Graph, edges: naiad.Stream) -> naiad.Stream:
    """Adds the loop of a search by three vertices."""
    loop = graph.loop()
    back = loop.feedback()
    inputs = {"edges": loop.enter(edges).by(lambda edge: edge[0]), "nodes": back.by(lambda node: node[0])}
    found = graph.stage(Search, inputs, vertices=3)
    back.connect(found["further"])
    return loop.leave(found["steps"])


def as_record(change: hr.Change) -> list[Any]:
    return [*change.element, change.diff]


def run(folder: Path, batches: int = BATCHES, shards: int = 1) -> None:
    log = str(edges(folder, batches).path)
    p = hr.Pipeline(spark=spark_session("local[2]", {"spark.log.level": "OFF", "spark.sql.shuffle.partitions": "2"}))
    # Without an end: what is bounded would be computed once, from scratch, and not in epochs.
    edges_read = p | hr.ReadTopic("edges", log=log)
    read = edges_read | hr.Map(lambda edge: hr.Change((edge[0], edge[1]), edge[2]))
    assert not read.bounded
    graph = naiad.Graph()
    steps = naiad.messages(search(graph, graph.input("edges", edges_read)), shards=shards)
    steps | "step" >> hr.Map(lambda sent: sent.message) | "steps" >> hr.WriteTopic("steps", log=log)
    labels = hr.changes(spread(hr.collection(read)), shards=shards)
    labels | "record" >> hr.Map(as_record) | hr.WriteTopic("labels", log=log)
    handle: Any = p.run(checkpoint=str(folder / "checkpoint"), max_records_per_batch=SIZE)
    while True:
        try:
            handle.query.processAllAvailable()
            break
        except StreamingQueryException:
            handle.wait(1)  # raises what it failed with, unless the handle starts the query again
    handle.stop()


def output(folder: Path) -> Output:
    """All changes of labels, as a multiset, and what they add up to; and all steps that were sent."""
    records = [record.value for record in Log(folder / "embedded").topic("labels").read(0)]
    labels: Counter[str] = Counter()
    for node, label, diff in records:
        labels[f"{node} {label}"] += diff
    steps = [record.value for record in Log(folder / "embedded").topic("steps").read(0)]
    return {
        "changes": Counter(map(repr, records)),
        "labels": Counter(dict(sorted((+labels).items()))),
        "steps": Counter(map(repr, steps)),
    }


if __name__ == "__main__":
    run(Path(sys.argv[1]))
