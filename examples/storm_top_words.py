"""Rolling top words, as in Storm's starter: counts words over the last nine seconds, ranks them and merges the ranks.

    python examples/storm_top_words.py [SECONDS]

words -> count (by word, a tick every 3 s) -> rank (by word) -> merge (one task) -> topic
             └-> topic of all counts

The most frequent word changes every 5,000 words of a task; it leads the ranking three ticks later at the latest. Prints
the topology's status and the last rankings, and checks that each word was counted in the totals of three ticks.
"""

import random
import sys
import tempfile
import time
from collections import Counter

from headrace import storm
from headrace.log import Log

WORDS = ["mill", "wheel", "water", "stone", "corn", "flour", "sluice", "race"]
SLOTS, TOP = 3, 3


class Words(storm.Spout):
    """Emits random words; the ones shortly after the current leader in the list are more frequent."""

    fields = ("word",)

    def open(self, context: storm.TopologyContext) -> None:
        self.begin(context.task)

    def begin(self, task: int) -> None:
        self.random, self.number = random.Random(task), 0

    def next_tuple(self) -> None:
        word = self.pick()
        self.emit([word], message_id=self.number)

    def pick(self) -> str:
        lead = self.number // 5_000
        self.number += 1
        return WORDS[(lead + int(self.random.expovariate(1))) % len(WORDS)]


class RollingCount(storm.BasicBolt):
    """Counts words over the last slots, and emits the counts with each tick."""

    fields = ("word", "count")

    def prepare(self, context: storm.TopologyContext) -> None:
        self.counter = storm.SlidingCounter(SLOTS)

    def execute(self, tup: storm.Tuple) -> None:
        if tup.is_tick:
            for word, count in self.counter.advance().items():
                self.emit([word, count])
        else:
            self.counter.add(tup["word"])


Ranks = list[tuple[str, int]]


def highest(counts: dict[str, int]) -> Ranks:
    """Ranks the highest counts."""
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:TOP]


class Rank(storm.BasicBolt):
    """Stores the last count of each word, and emits the highest with each tick."""

    fields = ("ranks",)

    def prepare(self, context: storm.TopologyContext) -> None:
        self.counts: dict[str, int] = {}

    def execute(self, tup: storm.Tuple) -> None:
        if tup.is_tick:
            self.emit([highest(self.counts)])
        elif tup["count"]:
            self.counts[tup["word"]] = tup["count"]
        else:
            self.counts.pop(tup["word"], None)


class Merge(storm.BasicBolt):
    """Stores the last ranks of each Rank task, and emits the highest of all with each tick."""

    fields = ("ranks",)

    def prepare(self, context: storm.TopologyContext) -> None:
        self.ranks: dict[int, Ranks] = {}

    def execute(self, tup: storm.Tuple) -> None:
        if tup.is_tick:
            self.emit([highest(dict(rank for ranks in self.ranks.values() for rank in ranks))])
        else:
            self.ranks[tup.task] = tup["ranks"]


def build(log: str) -> storm.Topology:
    """Builds the topology, which writes to topics of this log."""
    builder = storm.TopologyBuilder()
    builder.set_spout("words", Words(), parallelism=2)
    builder.set_bolt("count", RollingCount(), parallelism=4, tick="3s").fields_grouping("words", ["word"])
    builder.set_bolt("rank", Rank(), parallelism=2, tick="3s").fields_grouping("count", ["word"])
    builder.set_bolt("merge", Merge(), tick="3s").global_grouping("rank")
    builder.set_bolt("out", storm.ToTopic("top-words", log=log)).global_grouping("merge")
    builder.set_bolt("counts", storm.ToTopic("counts", log=log)).global_grouping("count")
    return builder.create()


def rankings(log: str) -> list[Ranks]:
    """Reads all rankings that the topology wrote, the oldest first."""
    return [[(word, count) for word, count in record.value["ranks"]] for record in Log(log).topic("top-words").read(0)]


def counted(log: str) -> Counter[str]:
    """Adds up all counts that the topology wrote, by word."""
    counts: Counter[str] = Counter()
    for record in Log(log).topic("counts").read(0):
        counts[record.value["word"]] += record.value["count"]
    return counts


def expected(status: storm.TopologyStatus) -> Counter[str]:
    """Counts the acked words, in plain Python: each counts once per slot, when it has left all of them."""
    counts: Counter[str] = Counter()
    for task in status.of("words"):
        spout = Words()
        spout.begin(task.task)
        for _ in range(task.acked):
            counts[spout.pick()] += SLOTS
    return counts


def silence(cluster: storm.LocalCluster, name: str, log: str, seconds: float = 300) -> bool:
    """Stops the spouts and waits until no slot has a word; returns whether the counts are as expected then."""
    cluster.deactivate(name)
    cluster.running(name).settle(seconds)
    target, deadline = expected(cluster.status(name)), time.monotonic() + seconds
    while not (right := counted(log) == target and rankings(log)[-1] == []) and time.monotonic() < deadline:
        time.sleep(0.2)
    return right


def main(seconds: float = 45) -> None:
    log = tempfile.mkdtemp()
    with storm.LocalCluster() as cluster:
        cluster.submit("top-words", build(log), storm.Config(message_timeout="10min", max_spout_pending=2000))
        while not any(task.acked for task in cluster.status("top-words").of("words")):  # Spark has to warm up
            cluster.running("top-words").check()
            time.sleep(0.1)
        time.sleep(seconds)
        right = silence(cluster, "top-words", log)
        status = cluster.status("top-words")
    print(status)
    for ranks in rankings(log)[-12:]:
        print("  ".join(f"{word} {count:,}" for word, count in ranks) or "(nothing)")
    words = sum(task.acked for task in status.of("words"))
    if not right:
        sys.exit(f"✗ the totals of {words:,} words do not add up")
    print(f"✓ {words:,} words were acked; each was counted in the totals of {SLOTS} ticks and in no later one")


if __name__ == "__main__":
    main(*map(float, sys.argv[1:]))
