"""Storm's word count: 5 tasks emit sentences, 8 split them into words, 12 count the words.

    python examples/storm_wordcount.py [SECONDS]

Prints the topology's status and the most frequent words, and checks the counts against a recount in plain Python. To
run it in the background and control it from the command line:

    headrace storm submit examples/storm_wordcount.py word-count
    headrace storm status word-count
"""

import random
import sys
import tempfile
import time
from collections import Counter

from headrace import storm
from headrace.log import Log

SENTENCES = [
    "the cow jumped over the moon",
    "an apple a day keeps the doctor away",
    "four score and seven years ago",
    "snow white and the seven dwarfs",
    "i am at two with nature",
]


class RandomSentence(storm.Spout):
    """Emits random sentences; each task has its own seed."""

    fields = ("sentence",)

    def open(self, context: storm.TopologyContext) -> None:
        self.begin(context.task)

    def begin(self, task: int) -> None:
        self.random, self.number = random.Random(task), 0

    def next_tuple(self) -> None:
        self.number += 1
        self.emit([self.pick()], message_id=self.number)

    def pick(self) -> str:
        return self.random.choice(SENTENCES)


class SplitSentence(storm.Bolt):
    """Splits sentences into words, anchored to their sentence."""

    fields = ("word",)

    def execute(self, tup: storm.Tuple) -> None:
        for word in tup["sentence"].split():
            self.emit([word], anchors=[tup])
        self.ack(tup)


class WordCount(storm.BasicBolt):
    """Counts words, and emits the new count with each word."""

    fields = ("word", "count")

    def prepare(self, context: storm.TopologyContext) -> None:
        self.counts: dict[str, int] = {}

    def execute(self, tup: storm.Tuple) -> None:
        word = tup["word"]
        self.counts[word] = self.counts.get(word, 0) + 1
        self.emit([word, self.counts[word]])


def build(log: str) -> storm.Topology:
    """Builds the topology, which writes to a topic of this log."""
    builder = storm.TopologyBuilder()
    builder.set_spout("spout", RandomSentence(), parallelism=5)
    builder.set_bolt("split", SplitSentence(), parallelism=8).shuffle_grouping("spout")
    builder.set_bolt("count", WordCount(), parallelism=12).fields_grouping("split", ["word"])
    builder.set_bolt("out", storm.ToTopic("word-counts", log=log, key="word")).fields_grouping("count", ["word"])
    return builder.create()


def counted(log: str) -> Counter[str]:
    """Reads the last count of each word that the topology wrote."""
    counts: Counter[str] = Counter()
    for record in Log(log).topic("word-counts").read(0):
        counts[record.value["word"]] = max(counts[record.value["word"]], record.value["count"])
    return counts


def recounted(status: storm.TopologyStatus) -> Counter[str]:
    """Counts the words of all sentences that were acked, in plain Python: each task draws the same ones again."""
    counts: Counter[str] = Counter()
    for task in status.of("spout"):
        spout = RandomSentence()
        spout.begin(task.task)
        for _ in range(task.acked):
            counts.update(spout.pick().split())
    return counts


def main(seconds: float = 30) -> None:
    log = tempfile.mkdtemp()
    with storm.LocalCluster() as cluster:
        cluster.submit("word-count", build(log), storm.Config(message_timeout="10min", max_spout_pending=2000))
        while not any(task.acked for task in cluster.status("word-count").of("spout")):  # Spark has to warm up
            cluster.running("word-count").check()
            time.sleep(0.1)
        time.sleep(seconds)
        cluster.deactivate("word-count")
        settled = cluster.running("word-count").settle(300)
        status = cluster.status("word-count")
    print(status)
    counts = counted(log)
    print(*(f"{word} {count:,}" for word, count in counts.most_common(5)), "...", sep="  ")
    sentences = sum(task.acked for task in status.of("spout"))
    if not settled or counts != recounted(status):
        sys.exit(f"✗ the counts of {sentences:,} sentences differ from the recount")
    print(f"✓ {sentences:,} sentences were acked, and their {counts.total():,} words were counted once: as the recount")


if __name__ == "__main__":
    main(*map(float, sys.argv[1:]))
elif __name__ == "headrace_topology":
    topology, config = build("out/storm"), storm.Config(max_spout_pending=1000)
