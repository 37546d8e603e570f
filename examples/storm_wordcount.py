"""Storm's word count: 5 tasks of sentences, 8 that split them, 12 that count words, on one machine.

    python examples/storm_wordcount.py [SECONDS]

or, to let it run and be commanded from elsewhere:

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
    fields = ("sentence",)

    def open(self, context: storm.TopologyContext) -> None:
        self.random, self.number = random.Random(context.task), 0

    def next_tuple(self) -> None:
        self.number += 1
        self.emit([self.random.choice(SENTENCES)], message_id=self.number)


class SplitSentence(storm.Bolt):
    fields = ("word",)

    def execute(self, tup: storm.Tuple) -> None:
        for word in tup["sentence"].split():
            self.emit([word], anchors=[tup])
        self.ack(tup)


class WordCount(storm.BasicBolt):
    fields = ("word", "count")

    def prepare(self, context: storm.TopologyContext) -> None:
        self.counts: dict[str, int] = {}

    def execute(self, tup: storm.Tuple) -> None:
        word = tup["word"]
        self.counts[word] = self.counts.get(word, 0) + 1
        self.emit([word, self.counts[word]])


def build(log: str) -> storm.Topology:
    builder = storm.TopologyBuilder()
    builder.set_spout("spout", RandomSentence(), parallelism=5)
    builder.set_bolt("split", SplitSentence(), parallelism=8).shuffle_grouping("spout")
    builder.set_bolt("count", WordCount(), parallelism=12).fields_grouping("split", ["word"])
    builder.set_bolt("out", storm.ToTopic("word-counts", log=log, key="word")).fields_grouping("count", ["word"])
    return builder.create()


def latest(log: str) -> Counter[str]:
    """The last count of each word."""
    topic = Log(log).topic("word-counts")
    counts: Counter[str] = Counter()
    for partition in range(len(topic.partitions)):
        for record in topic.read(partition):
            counts[record.value["word"]] = max(counts[record.value["word"]], record.value["count"])
    return counts


def main(seconds: float = 60) -> None:
    log = tempfile.mkdtemp()
    with storm.LocalCluster() as cluster:
        cluster.submit("word-count", build(log), storm.Config(message_timeout="60s", max_spout_pending=1000))
        time.sleep(seconds)
        cluster.deactivate("word-count")
        cluster.running("word-count").settle(60)
        print(cluster.status("word-count"))
    for word, count in latest(log).most_common(5):
        print(f"{word:10} {count:,}")


if __name__ == "__main__":
    main(*map(float, sys.argv[1:]))
elif __name__ == "headrace_topology":
    topology, config = build("out/storm"), storm.Config(max_spout_pending=1000)
