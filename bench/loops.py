"""Loops over collections that change, on the engine, in one run, on data it makes.

    python bench/loops.py [--quick] [--only batch,changes] [--edges 100000]

batch     connected components of a random graph, once                 rival: the same algorithm on DataFrames by hand
changes   the same in a stream: then 100 edges change at a time        rival: the micro-batch that had all edges
rounds    a loop of 200 rounds that move 1,000 messages each           rival: a micro-batch of the same stages
epochs    what progress tracking takes of 10,000 epochs of one record  rival: the micro-batch that has them

The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Iterator
from typing import Any

from _sections import Bench, Verdict, run
from changing_graphs import components
from pyspark.sql import DataFrame, functions

import headrace as hr
from headrace import naiad
from headrace.engine.columns.packedlists import pack_list
from headrace.engine.timely.graphtask import GraphTask
from headrace.log import Log
from headrace.model.timely.progress import Progress
from headrace.model.times import SECOND

ROUNDS = 200
MESSAGES = 1_000
EPOCHS = 10_000


def edges_of(bench: Bench) -> list[tuple[int, int]]:
    """Random edges, on average four at a node, none twice."""
    count = bench.asked.edges or (20_000 if bench.quick else 100_000)
    rng = random.Random(1)
    found: dict[tuple[int, int], None] = {}
    while len(found) < count:
        found[rng.randrange(count // 2), rng.randrange(count // 2)] = None
    return list(found)


def batch(bench: Bench) -> Iterator[Verdict]:
    edges = edges_of(bench)
    frame = bench.spark.createDataFrame(edges, "one long, other long")
    frame.write.parquet(str(bench.folder / "edges"))
    bench.spark.range(10).count()  # the session is warm

    def ours() -> dict[int, int]:
        with hr.Pipeline(spark=bench.spark) as p:
            rows = p | hr.ReadParquet(str(bench.folder / "edges"))
            pairs = hr.collection(rows | hr.Map(lambda row: (row.one, row.other)))
            out = hr.changes(components(pairs)) | hr.Collect()
        return dict(change.element for change in out)

    answers, seconds = {}, {}
    for name, compute in {"by hand": lambda: by_hand(bench), "hr.iterate": ours}.items():
        began = time.monotonic()
        answers[name] = compute()
        seconds[name] = time.monotonic() - began
        bench.say(f"{name:12} {seconds[name]:8.1f} s   {len(edges):,} edges, {len(answers[name]):,} nodes")
    assert answers["by hand"] == answers["hr.iterate"]
    ratio = seconds["hr.iterate"] / seconds["by hand"]
    yield Verdict("batch against DataFrames by hand", ratio, 1.3, False, "see which functions of a loop are called")


def by_hand(bench: Bench) -> dict[int, int]:
    """The least label of each node's neighbours, again and again, with the lineage cut after each round."""
    one_way = bench.spark.read.parquet(str(bench.folder / "edges"))
    both = one_way.union(one_way.select("other", "one")).toDF("node", "other").localCheckpoint()
    labels: DataFrame = both.select("node", functions.col("node").alias("label")).distinct().localCheckpoint()
    while True:
        offered = both.join(labels, "node").select(functions.col("other").alias("node"), "label")
        new = labels.union(offered).groupBy("node").agg(functions.min("label").alias("label")).localCheckpoint()
        moved = new.join(labels.withColumnRenamed("label", "before"), "node").where("label != before").count()
        labels = new
        if not moved:
            return {row.node: row.label for row in labels.collect()}


class Followed:
    """A stream over a topic of changes, whose micro-batches are timed."""

    def __init__(self, bench: Bench, name: str, program: Any) -> None:
        self.topic = Log(bench.folder / "log").create(name)
        p = hr.Pipeline(spark=bench.spark)
        records = p | hr.ReadTopic(name, log=str(bench.folder / "log"))
        changes = hr.collection(records | hr.Map(lambda record: hr.Change((record[0], record[1]), record[2])))
        hr.changes(program(changes), "changes") | hr.ForEachBatch(lambda elements, batch: None)
        self._pipeline, self._checkpoint, self._done = p, str(bench.folder / f"checkpoint-{name}"), 0
        self.handle: Any = None

    def seconds(self, changes: list[tuple[int, int, int]]) -> float:
        """Sends changes, and returns how long the micro-batch took that read them."""
        self.topic.append(0, self.topic.batch([list(each) for each in changes], timestamps=[0] * len(changes)))
        if self.handle is None:
            self.handle = self._pipeline.run(checkpoint=self._checkpoint)
        self._done += 1
        while True:
            found = [json.loads(progress.json) for progress in self.handle.query.recentProgress]
            read = [each for each in found if each["numInputRows"] and each["sources"][0]["endOffset"]]
            moved = [each for each in read if each["sources"][0]["startOffset"] != each["sources"][0]["endOffset"]]
            if len(moved) >= self._done:
                return float(moved[self._done - 1]["durationMs"]["triggerExecution"]) / 1000
            if self.handle.status().state != "running":
                self.handle.wait()
            time.sleep(0.1)


def changes(bench: Bench) -> Iterator[Verdict]:
    edges = edges_of(bench)
    rng = random.Random(2)
    stream = Followed(bench, "edges", components)
    stream.seconds([(0, 0, 1)])  # Spark's first micro-batch
    whole = stream.seconds([(*edge, 1) for edge in edges])
    went = stream.handle.status().exchanges["changes"].counts[0]
    bench.say(
        f"{len(edges):,} edges           {whole:8.2f} s   {went['rounds']:.0f} rounds, {went['changes']:,.0f} changes"
    )
    took = []
    for _ in range(5):
        gone = rng.sample(edges, 50)
        new = [(rng.randrange(len(edges)), rng.randrange(len(edges))) for _ in range(50)]
        took.append(stream.seconds([*((*edge, -1) for edge in gone), *((*edge, 1) for edge in new)]))
        went = stream.handle.status().exchanges["changes"].counts[0]
        bench.say(
            f"100 of them change   {took[-1]:8.2f} s   {went['rounds']:.0f} rounds, {went['changes']:,.0f} changes"
        )
        edges = [*(set(edges) - set(gone)), *new]
    stream.handle.stop()
    ratio = whole / statistics.median(took)
    yield Verdict("changes against from scratch", ratio, 20, True, "see how many of a key's values are looked at")


def rounds(bench: Bench) -> Iterator[Verdict]:
    def moving(times: int) -> Any:
        return lambda numbers: hr.iterate(
            numbers, lambda each: each.map(lambda pair: (pair[0], pair[1] + 1)).distinct(), iterations=times
        )

    took = {}
    for times in (1, ROUNDS):
        stream = Followed(bench, f"rounds{times}", moving(times))
        stream.seconds([(-1, 0, 1)])
        each = [stream.seconds([(batch * MESSAGES + n, 0, 1) for n in range(MESSAGES)]) for batch in range(4)]
        stream.handle.stop()
        took[times] = statistics.median(each[1:])
        bench.say(f"{times:4} rounds of {MESSAGES:,} messages   {took[times]:8.2f} s")
    per_round = (took[ROUNDS] - took[1]) / (ROUNDS - 1)
    bench.say(f"a round: {1000 * per_round:.1f} ms")
    yield Verdict("a round against a micro-batch", per_round / took[1], 1.2, False, "see what a round moves")


class Count(naiad.Vertex):
    """Counts the messages of each epoch."""

    def __init__(self) -> None:
        self.counts: dict[tuple[int, ...], int] = {}

    def on_recv(self, message: Any, time: tuple[int, ...]) -> None:
        if time not in self.counts:
            self.notify_at(time)
        self.counts[time] = self.counts.get(time, 0) + 1

    def on_notify(self, time: tuple[int, ...]) -> None:
        self.send(self.counts.pop(time), time)


class Recorded:
    """Progress whose calls are recorded, so that they can be made again without anything else."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def __getattr__(self, method: str) -> Any:
        def call(*args: Any) -> Any:
            self.calls.append((method, args))
            return getattr(self._progress, method)(*args)

        return call


def epochs(bench: Bench) -> Iterator[Verdict]:
    topic = Log(bench.folder / "log").create("epochs")
    producer = naiad.Producer(topic, "bench", durable=False)
    p = hr.Pipeline(spark=bench.spark)
    graph = naiad.Graph()
    read = p | hr.ReadTopic("epochs", log=str(bench.folder / "log"), watermark="stream")
    counted = naiad.messages(graph.stage(Count, graph.input("in", read)), epochs="time")
    sent: list[int] = []
    counted | hr.ForEachBatch(lambda elements, batch: sent.append(len(list(elements))))
    handle: Any = p.run(checkpoint=str(bench.folder / "checkpoint-epochs"))
    took = []
    for batch in range(3):
        for epoch in range(EPOCHS):
            producer.send("x", epoch=batch * EPOCHS + epoch)
        began = time.monotonic()
        producer.advance_to((batch + 1) * EPOCHS)
        while sum(sent) < (batch + 1) * EPOCHS:
            if handle.status().state != "running":
                handle.wait()
            time.sleep(0.01)
        took.append(time.monotonic() - began)
    handle.stop()
    recorded = naiad.Graph()
    task = GraphTask(recorded, {"out": recorded.stage(Count, recorded.input("in"))}, "time")
    task.executor.progress = record = Recorded(task.executor.progress)  # type: ignore[assignment]
    list(task.run([pack_list("in", [("x", epoch) for epoch in range(EPOCHS)])], 0))
    list(task.advance(EPOCHS * SECOND))
    progress = Progress(recorded.loops, [(("in", (0,)), 1)])
    calls = [(getattr(progress, method), args) for method, args in record.calls]
    began = time.perf_counter()
    for method, args in calls:
        method(*args)
    tracking = time.perf_counter() - began
    bench.say(
        f"{EPOCHS:,} epochs in a stream {took[-1]:8.2f} s   of which progress {tracking:.2f} s, {len(calls):,} calls"
    )
    yield Verdict("progress of a stream's epochs", tracking / min(took[1:]), 0.1, False, "see Progress.is_safe")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--edges", type=int, help="edges of the graph; 100,000, or 20,000 with --quick")


if __name__ == "__main__":
    run("loops", __doc__, batch, changes, rounds, epochs, options=options)
