"""Topologies on Spark: their results after a crash and a rebalance, and what becomes of failures."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace import storm
from headrace.log import Log
from tests.scale import only_full

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORDS = [f"w{n % 7}" for n in range(60)]


class Words(storm.Spout):
    """Emits its words once; where it is, is an attribute and so survives."""

    fields = ("word",)

    def __init__(self, words: list[str]) -> None:
        self.words = words

    def open(self, context: storm.TopologyContext) -> None:
        self.at = 0

    def next_tuple(self) -> None:
        if self.at < len(self.words):
            self.emit([self.words[self.at]], message_id=self.at)
            self.at += 1


class Count(storm.BasicBolt):
    """Counts words."""

    fields = ("word", "count", "task")

    def prepare(self, context: storm.TopologyContext) -> None:
        self.counts: dict[str, int] = {}

    def execute(self, tup: storm.Tuple) -> None:
        word = tup["word"]
        self.counts[word] = self.counts.get(word, 0) + 1
        self.emit([word, self.counts[word], self.context.index])


def until(cluster: storm.LocalCluster, name: str, reached: Callable[[], bool], seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not reached():
        cluster.running(name).check()
        assert time.monotonic() < deadline, cluster.status(name)
        time.sleep(0.05)


def word_count(folder: Path, words: list[str]) -> storm.Topology:
    builder = storm.TopologyBuilder()
    builder.set_spout("words", Words(words), parallelism=2)
    builder.set_bolt("count", Count(), parallelism=2).fields_grouping("words", ["word"])
    builder.set_bolt("out", storm.ToTopic("counts", log=str(folder / "results"))).global_grouping("count")
    return builder.create()


def done(cluster: storm.LocalCluster) -> int:
    """How many tuples were acked in all the life of the topology."""
    hosts = cluster.running("wc")._hosts.values()
    known = [sum(each.tracked for each in host.log.read(0, host.pending.emissions)) for host in hosts]
    return sum(known) - sum(len(host.pending) for host in hosts)


def assert_exact(folder: Path, words: list[str]) -> list[dict[str, Any]]:
    """Every count of every word was written once."""
    written = [record.value for record in Log(folder / "results").topic("counts").read(0)]
    assert Counter((row["word"], row["count"]) for row in written) == Counter(
        (word, number) for word, count in Counter(2 * words).items() for number in range(1, count + 1)
    )
    return written


# A loaded machine is no reason to drop a tuple.
EXACT = storm.Config(max_spout_pending=8, guarantee="effectively_once", message_timeout="1 hour")


@only_full("test_topology_faults.py aborts topologies, test_topologies_on_spark.py rebalances one")
@pytest.mark.slow("a topology runs three times")
@pytest.mark.timeout(900)
def test_counts_are_exact_after_a_crash_and_a_rebalance(spark: SparkSession, tmp_path: Path) -> None:
    with storm.LocalCluster(tmp_path / "cluster", spark=spark) as cluster:
        cluster.submit("wc", word_count(tmp_path, WORDS), EXACT)
        until(cluster, "wc", lambda: done(cluster) >= 20)
        # The driver dies: hosts write nothing more down, and the stream stops wherever it is.
        running = cluster._running.pop("wc")
        for host in running._hosts.values():
            host._stopping.set()
            assert host._thread is not None
            host._thread.join()
        running._stopping.set()
        running.handle.stop()
    with storm.LocalCluster(tmp_path / "cluster", spark=spark) as cluster:
        cluster.submit("wc", word_count(tmp_path, WORDS), EXACT)
        until(cluster, "wc", lambda: done(cluster) >= 60)
        cluster.rebalance("wc", count=3)
        until(cluster, "wc", lambda: done(cluster) >= 2 * len(WORDS))
        status = cluster.status("wc")
        assert (cluster.errors("wc"), cluster.dead_letters("wc")) == ([], [])
        assert {row["task"] for row in assert_exact(tmp_path, WORDS)} == {0, 1, 2}
        assert len(status.of("count")) == 3
        assert sum(task.executed for task in status.of("count")) == 2 * len(WORDS)
        cluster.kill("wc")
        assert cluster.names() == []
        assert not (tmp_path / "cluster" / "wc").exists()


class Work(storm.Bolt):
    """Acks most tuples; some it cannot bear, some it forgets, some it fails, and each takes its time."""

    fields = ("word",)

    def execute(self, tup: storm.Tuple) -> None:
        time.sleep(0.002)
        word = tup["word"]
        if word == "poison":
            raise ValueError("cannot bear it")
        if word == "failing":
            self.fail(tup)
        elif word != "forgotten":
            self.emit([word], anchors=[tup])
            self.ack(tup)


@only_full("test_topology_faults.py has tuples that are replayed and given up, too")
@pytest.mark.slow("a topology runs with replays")
@pytest.mark.timeout(900)
def test_what_fails_is_replayed_and_given_up_while_the_rest_is_done(spark: SparkSession, tmp_path: Path) -> None:
    words = ["good"] * 25 + ["poison", "failing", "forgotten"] + ["good"] * 25
    builder = storm.TopologyBuilder()
    builder.set_spout("words", Words(words))
    builder.set_bolt("work", Work(), parallelism=2).shuffle_grouping("words")
    builder.set_bolt("out", storm.ToTopic("done", log=str(tmp_path))).global_grouping("work")
    config = storm.Config(message_timeout="4s", max_spout_pending=10, max_retries=1)
    most = 0
    with storm.LocalCluster(spark=spark) as cluster:
        cluster.submit("work", builder.create(), config)

        def over() -> bool:
            nonlocal most
            (spout,) = cluster.status("work").of("words")
            most = max(most, spout.pending or 0)
            return len(cluster.dead_letters("work")) == 3 and spout.acked == 50

        until(cluster, "work", over)
        letters = {letter.values[0]: (letter.why, letter.attempts) for letter in cluster.dead_letters("work")}
        assert letters == {"poison": ("failed", 2), "failing": ("failed", 2), "forgotten": ("timed_out", 2)}
        assert [error.error for error in cluster.errors("work")] == ["ValueError: cannot bear it"] * 2
        status = cluster.status("work")
        assert sum(task.executed for task in status.of("work")) == len(words) + 3
        assert sum(task.failed for task in status.of("work")) == 4
        assert all((task.execute_ms or 0) >= 2 for task in status.of("work"))
        assert status.of("words")[0].complete_ms is not None
        assert status.trees == 0
        assert most <= 10  # a slow bolt slows its spout
    assert [record.value for record in Log(tmp_path).topic("done").read(0)] == [{"word": "good"}] * 50
