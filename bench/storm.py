"""Storm topologies on the engine, in one run, on data it makes.

    python bench/storm.py [--quick] [--only words,latency]

words     word count over sentences that are in the log, at least and at most once   rival: FlatMap | Count.per_element
latency   1,000 tuples/s through the same topology: from emit to ack                 beside it: an almost empty batch

Of `words` the first batch is not counted. What state and trees cost by themselves tells `bench/stormtasks.py`. The last
line is JSON.
"""

from __future__ import annotations

import itertools
import json
import statistics
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from _sections import Bench, Verdict, run
from storm_wordcount import SplitSentence, WordCount

import headrace as hr
from headrace import storm
from headrace.dialects.storm.cluster.spoutlog import SpoutLog
from headrace.dialects.storm.graph.pipelinebuilder import PipelineBuilder
from headrace.dialects.storm.graph.topologytopics import TopologyTopics
from headrace.dialects.storm.task.loggedtuple import LoggedTuple
from headrace.log import Log

WORDS_EACH = 10
SPOUTS = 2


class Sentences(storm.Spout):
    """Emits `rate` sentences a second."""

    fields = ("sentence",)

    def __init__(self, rate: float = 0) -> None:
        self.rate = rate

    def open(self, context: storm.TopologyContext) -> None:
        self.began, self.sent = time.time(), 0

    def next_tuple(self) -> None:
        if self.sent < (time.time() - self.began) * self.rate:
            self.sent += 1
            self.emit(["the cow jumped over the moon and came down again"], message_id=self.sent)


def word_count(rate: float = 0) -> storm.Topology:
    builder = storm.TopologyBuilder()
    builder.set_spout("sentences", Sentences(rate), parallelism=SPOUTS)
    builder.set_bolt("split", SplitSentence(), parallelism=2).shuffle_grouping("sentences")
    builder.set_bolt("count", WordCount(), parallelism=2).fields_grouping("split", ["word"])
    return builder.create()


def sentences(count: int) -> list[str]:
    random = np.random.default_rng(1)
    vocabulary = [f"word{number}" for number in range(5_000)]
    picked = (random.zipf(1.3, (count, WORDS_EACH)) - 1) % len(vocabulary)
    return [" ".join([vocabulary[at] for at in row]) for row in picked.tolist()]


def durations(handle: Any, batches: int) -> list[float]:
    """Seconds of each batch that read something, once there were so many."""
    while True:
        found = []
        for progress in handle.query.recentProgress:
            told = json.loads(progress.json)
            source = told["sources"][0]
            start, end = source["startOffset"] or {}, source["endOffset"] or {}
            if sum(end.values()) > sum(start.values()):
                found.append(told["durationMs"]["triggerExecution"] / 1000)
        if len(found) >= batches:
            handle.stop()
            return found[:batches]
        if handle.status().state != "running":
            handle.wait()
        time.sleep(0.2)


def words(bench: Bench) -> Iterator[Verdict]:
    size, batches = (20_000, 3) if bench.quick else (100_000, 5)
    texts = sentences(size * batches)
    numbers = itertools.count()

    def topology(guarantee: Any) -> float:
        topics = TopologyTopics(f"words{next(numbers)}", str(bench.folder / "log"))
        wanted, config = word_count(), storm.Config(guarantee=guarantee)
        topics.create(wanted)
        topic = Log(topics.log).topic(topics.spout("sentences"))
        for index in range(SPOUTS):
            mine = texts[index::SPOUTS]
            sent = [LoggedTuple(index, at, "default", (text,), message_id=at) for at, text in enumerate(mine)]
            SpoutLog(topic, index).append(sent, time=0)
        p = hr.Pipeline(spark=bench.spark)
        PipelineBuilder(p, wanted, config, topics, {}, None).apply()
        return rate(p.run(checkpoint=str(bench.folder / topics.name), max_records_per_batch=size))

    def pipeline() -> float:
        name = f"texts{next(numbers)}"
        topic = Log(bench.folder / "log").create(name, partitions=SPOUTS)
        for index in range(SPOUTS):
            mine: list[object] = list(texts[index::SPOUTS])
            topic.append(index, topic.batch(mine, timestamps=[0] * len(mine)))
        p = hr.Pipeline(spark=bench.spark)
        (
            p
            | hr.ReadTopic(name, log=str(bench.folder / "log"))
            | hr.FlatMap(str.split)
            | hr.WindowInto(hr.GlobalWindows(), trigger=hr.Always(), accumulation="accumulating")
            | hr.Count.per_element()
            | hr.ForEachBatch(lambda elements, batch: None)
        )
        return rate(p.run(checkpoint=str(bench.folder / name), max_records_per_batch=size))

    def rate(handle: Any) -> float:
        took = durations(handle, batches)
        per_second = size * WORDS_EACH * (batches - 1) / sum(took[1:])
        bench.say(f"{per_second:12,.0f} words/s   batches of {[round(each, 2) for each in took]} s")
        return per_second

    told: dict[str, list[float]] = {"rival": [], "at_most_once": [], "at_least_once": []}
    for _ in range(1 if bench.quick else 3):
        bench.say("FlatMap | Count")
        told["rival"].append(pipeline())
        for guarantee in ("at_most_once", "at_least_once"):
            bench.say(guarantee.replace("_", " "))
            told[guarantee].append(topology(guarantee))
    median = {name: statistics.median(each) for name, each in told.items()}
    remedy = "see what of a batch is spent in split, in count and between them"
    yield Verdict("words against FlatMap | Count", median["at_least_once"] / median["rival"], 0.6, True, remedy)
    cost = median["at_most_once"] / median["at_least_once"] - 1
    yield Verdict("what acking costs more", cost, 0.2, False, "see the ledger and the acker")


def latency(bench: Bench) -> Iterator[Verdict]:
    seconds = 20 if bench.quick else 60
    told: dict[float, tuple[list[float], float]] = {}
    with storm.LocalCluster(bench.folder / "cluster", spark=bench.spark) as cluster:
        for rate in (1, 1000):  # of all spout tasks
            name = f"rate{rate}"
            cluster.submit(name, word_count(rate / SPOUTS), storm.Config(max_spout_pending=20_000))
            running = cluster.running(name)
            hosts = list(running._hosts.values())
            while sum(host.counts.acked for host in hosts) < 2 * rate:
                running.check()
                time.sleep(0.1)
            for host in hosts:
                host.counts.latest.clear()
            time.sleep(seconds)
            latest = [each for host in hosts for each in host.counts.latest]
            progress = [json.loads(each.json) for each in running.handle.query.recentProgress[-30:]]
            told[rate] = latest, statistics.median(each["durationMs"]["triggerExecution"] / 1000 for each in progress)
            cluster.kill(name, "20s")
    floor, latest = told[1][1], told[1000][0]
    p50, p99 = np.percentile(latest, [50, 99]).tolist()
    bench.say(f"{len(latest):,} tuples, p50 {p50:.2f} s, p99 {p99:.2f} s; a batch took {told[1000][1]:.2f} s")
    bench.say(f"an almost empty batch through the three stages took {floor:.2f} s: {floor / 3:.2f} s a stage")
    yield Verdict("p50 against the floor", p50 / floor, 2, False, "see how long batches are against their floor")


if __name__ == "__main__":
    run("storm", __doc__, words, latency)
