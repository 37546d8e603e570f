"""Rolling top words, as in Storm's starter: counts over the last nine seconds, three times each ranked and merged.

    python examples/storm_top_words.py [SECONDS]

words -> count (by word, a tick every 3 s) -> rank (by word) -> total (one task) -> topic
"""

import random
import sys
import tempfile
import time
from typing import Any

from headrace import storm
from headrace.log import Log

WORDS = ["mill", "wheel", "water", "stone", "corn", "flour", "sluice", "race"]
SLOTS, TOP = 3, 3


class Words(storm.Spout):
    fields = ("word",)

    def open(self, context: storm.TopologyContext) -> None:
        self.random, self.number = random.Random(context.task), 0

    def next_tuple(self) -> None:
        self.number += 1
        # Early words are more frequent, and which one leads changes.
        lead = self.number // 20_000 % len(WORDS)
        self.emit([WORDS[(lead + int(self.random.expovariate(1))) % len(WORDS)]], message_id=self.number)


class RollingCount(storm.BasicBolt):
    """Counts words over the last slots, and tells of each tick what it has counted."""

    fields = ("word", "count")

    def prepare(self, context: storm.TopologyContext) -> None:
        self.counter = storm.SlidingCounter(SLOTS)

    def execute(self, tup: storm.Tuple) -> None:
        if tup.is_tick:
            for word, count in self.counter.advance().items():
                self.emit([word, count])
        else:
            self.counter.add(tup["word"])


class Rank(storm.BasicBolt):
    """Keeps the counts it hears of, and tells of each tick which are the highest."""

    fields = ("ranks",)

    def prepare(self, context: storm.TopologyContext) -> None:
        self.counts: dict[str, int] = {}

    def execute(self, tup: storm.Tuple) -> None:
        if tup.is_tick:
            self.emit([sorted(self.counts.items(), key=lambda item: (-item[1], item[0]))[:TOP]])
        elif "ranks" in tup:
            self.counts.update(map(tuple, tup["ranks"]))
        else:
            self.counts[tup["word"]] = tup["count"]


def build(log: str) -> storm.Topology:
    builder = storm.TopologyBuilder()
    builder.set_spout("words", Words(), parallelism=2)
    builder.set_bolt("count", RollingCount(), parallelism=4, tick="3s").fields_grouping("words", ["word"])
    builder.set_bolt("rank", Rank(), parallelism=2, tick="3s").fields_grouping("count", ["word"])
    builder.set_bolt("total", Rank(), tick="3s").global_grouping("rank")
    builder.set_bolt("out", storm.ToTopic("top-words", log=log)).global_grouping("total")
    return builder.create()


def main(seconds: float = 60) -> None:
    log = tempfile.mkdtemp()
    with storm.LocalCluster() as cluster:
        cluster.submit("top-words", build(log), storm.Config(max_spout_pending=2000))
        time.sleep(seconds)
    for record in list(Log(log).topic("top-words").read(0))[-5:]:
        ranks: Any = record.value["ranks"]
        print("  ".join(f"{word} {count:,}" for word, count in ranks))


if __name__ == "__main__":
    main(*map(float, sys.argv[1:]))
