"""Storm's exclamation topology: two bolts add an exclamation mark to words; the second reads the words and the first.

    python examples/storm_exclamation.py [SECONDS]

So each word comes out as "Hi!", through the second bolt only, and as "Hi!!", through both. Prints the topology's status
and some counts, and checks them: each word that was acked must have come out once in both forms.
"""

import sys
import tempfile
import time
from collections import Counter

from headrace import storm
from headrace.log import Log

WORDS = ["Hi", "nathan", "mike", "jackson", "golda", "bertels"]


class Words(storm.Spout):
    """Emits the words of a list, over and over."""

    fields = ("word",)

    def open(self, context: storm.TopologyContext) -> None:
        self.number = 0

    def next_tuple(self) -> None:
        self.emit([WORDS[self.number % len(WORDS)]], message_id=self.number)
        self.number += 1


class Exclaim(storm.BasicBolt):
    """Adds an exclamation mark to each word."""

    fields = ("word",)

    def execute(self, tup: storm.Tuple) -> None:
        self.emit([tup["word"] + "!"])


def build(log: str) -> storm.Topology:
    """Builds the topology, which writes to a topic of this log."""
    builder = storm.TopologyBuilder()
    builder.set_spout("words", Words(), parallelism=10)
    builder.set_bolt("exclaim1", Exclaim(), parallelism=3).shuffle_grouping("words")
    builder.set_bolt("exclaim2", Exclaim(), parallelism=5).shuffle_grouping("words").shuffle_grouping("exclaim1")
    builder.set_bolt("out", storm.ToTopic("exclaimed", log=log)).global_grouping("exclaim2")
    return builder.create()


def exclaimed(log: str) -> Counter[str]:
    """Counts the words that the topology wrote."""
    return Counter(record.value["word"] for record in Log(log).topic("exclaimed").read(0))


def expected(status: storm.TopologyStatus) -> Counter[str]:
    """Counts the words that it should have written: each acked word, with one mark and with two."""
    counts: Counter[str] = Counter()
    for task in status.of("words"):
        for number in range(task.acked):
            word = WORDS[number % len(WORDS)]
            counts.update([f"{word}!", f"{word}!!"])
    return counts


def main(seconds: float = 30) -> None:
    log = tempfile.mkdtemp()
    with storm.LocalCluster() as cluster:
        cluster.submit("exclamation", build(log), storm.Config(message_timeout="10min", max_spout_pending=500))
        while not any(task.acked for task in cluster.status("exclamation").of("words")):  # Spark has to warm up
            cluster.running("exclamation").check()
            time.sleep(0.1)
        time.sleep(seconds)
        cluster.deactivate("exclamation")
        settled = cluster.running("exclamation").settle(300)
        status = cluster.status("exclamation")
    print(status)
    counts = exclaimed(log)
    print(*(f"{word} {count:,}" for word, count in sorted(counts.items())[:4]), "...", sep="  ")
    if not settled or counts != expected(status):
        sys.exit("✗ the words written are not the words that were acked, each with one mark and with two")
    words = sum(task.acked for task in status.of("words"))
    print(f"✓ {words:,} words were acked, and each was written with one mark and with two")


if __name__ == "__main__":
    main(*map(float, sys.argv[1:]))
