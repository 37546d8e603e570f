"""The topology that is killed: words by a spout of two tasks, counted by two tasks, every count to a topic.

    python tests/chaos/stormjob.py FOLDER

begins the topology of a folder, or goes on with it, and ends when all words are counted.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path
from typing import Final

from job import Output

from headrace import storm
from headrace.dialects.storm.cluster.spouthost import SpoutHost
from headrace.engine.spark.session import spark_session
from headrace.log import Log

LANDMARKS: Final = (
    "cluster/words/checkpoint-0/spark/offsets/[0-4]",
    "cluster/log/topics/words.words/[01]/*.index",
    "cluster/words/checkpoint-0/spark/commits/[0-4]",
    "results/topics/counts/0/*.index",
    "cluster/words/spouts/words-[01]/pending.json",
    "cluster/log/topics/words..outcomes/0/*.index",
    "cluster/words/checkpoint-0/spark/state/*/*/[1-4].changelog",
)
"""Files whose names are the same in every run."""

EACH: Final = 60
"""How many words a task of the spout emits."""


class Words(storm.Spout):
    fields = ("word",)

    def open(self, context: storm.TopologyContext) -> None:
        self.at = 0

    def next_tuple(self) -> None:
        if self.at < EACH:
            self.emit([f"w{self.at % 7}"], message_id=self.at)
            self.at += 1


class Count(storm.ToTopic):
    """Counts words, and writes every count; one level of tasks less than two bolts, which starts sooner."""

    def prepare(self, context: storm.TopologyContext) -> None:
        self.counts: dict[str, int] = {}

    def execute(self, tup: storm.Tuple) -> None:
        word = tup["word"]
        self.counts[word] = self.counts.get(word, 0) + 1
        self._write({"word": word, "count": self.counts[word]})


def run(folder: Path) -> None:
    builder = storm.TopologyBuilder()
    builder.set_spout("words", Words(), parallelism=2)
    count = Count("counts", log=str(folder / "results"))
    builder.set_bolt("count", count, parallelism=2).fields_grouping("words", ["word"])
    # The count is exact in any of the guarantees, unless a tuple takes longer than the timeout and is replayed.
    config = storm.Config(guarantee="effectively_once", max_spout_pending=10, message_timeout="1 hour")
    play(folder, builder.create(), config)


def play(folder: Path, topology: storm.Topology, config: storm.Config) -> None:
    """Runs a topology until its spout has emitted all there is, and knows what became of it."""
    spark = spark_session("local[2]", {"spark.log.level": "OFF", "spark.sql.shuffle.partitions": "2"})
    with storm.LocalCluster(folder / "cluster", spark=spark) as cluster:
        cluster.submit("words", topology, config)
        running = cluster.running("words")
        while not all(map(over, running._hosts.values())):
            running.check()
            time.sleep(0.1)


def over(host: SpoutHost) -> bool:
    """Whether all tuples of a task are in the log, its host knows of them, and waits for none."""
    emitted = sum(not each.attempt for each in host.log.read(0) if each.tracked)
    return emitted == EACH and host.pending.emissions == host.log.end() and not len(host.pending)


def output(folder: Path) -> Output:
    """Every count of every word that was written, as a multiset."""
    topic = Log(folder / "results").topic("counts")
    return {"counts": Counter(repr((record.value["word"], record.value["count"])) for record in topic.read(0))}


if __name__ == "__main__":
    run(Path(sys.argv[1]))
