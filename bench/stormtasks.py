"""Tasks of a Storm topology by themselves: one process, no Spark, on data it makes.

    python bench/stormtasks.py [--quick] [--only words,emit,state,trees]

words    words/s of a split and a count bolt, at least once    rivals: the same at most once; a Counter in a loop
emit     ns of an `emit` of a word with an anchor, beyond the loop    beside it: a function that does nothing
state    what is written of a dict of 100,000 counts after 10 of them have changed, and how long finding out takes
trees    the acker with 10,000 trees under way: bytes, and updates/s

Times are of the processor, the least of several rounds in turn, so that others on the machine disturb less. The last
line is JSON.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
from _sections import Bench, Verdict, run
from storm_wordcount import RandomSentence, SplitSentence, WordCount

from headrace import storm
from headrace.dialects.storm.api.collectors import OutputCollector
from headrace.dialects.storm.task.acker import Acker, acks
from headrace.dialects.storm.task.boltstate import BoltState
from headrace.dialects.storm.task.bolttask import BoltTask
from headrace.dialects.storm.task.spouttask import SpoutTask
from headrace.dialects.storm.task.tupleids import root_ids, tuple_ids


class Words:
    """A spout, two tasks of each bolt, and an acker."""

    def __init__(self, guarantee: str) -> None:
        builder = storm.TopologyBuilder()
        builder.set_spout("sentences", RandomSentence())
        builder.set_bolt("split", SplitSentence(), parallelism=2).shuffle_grouping("sentences")
        builder.set_bolt("count", WordCount(), parallelism=2).fields_grouping("split", ["word"])
        topology, config = builder.create(), storm.Config(guarantee=guarantee)
        self.spout = SpoutTask(topology, config, "sentences", 0)
        self.bolts = {
            bolt: [BoltTask(topology, config, bolt, index) for index in range(2)]
            for level in topology.levels
            for bolt in level
        }
        self.acker = Acker(config.message_timeout)
        self.batches = self.done = 0

    def batch(self, sentences: pa.RecordBatch) -> None:
        """One batch, all the way."""
        self.batches += 1
        count = sentences.num_rows
        outcome = self.spout.run("default", sentences, np.arange(count) + count * self.batches, self.batches)
        sent, told = list(outcome.batches), [outcome.acks]
        for bolt, tasks in self.bolts.items():
            outcomes = [
                task.run([each.batch for each in sent if (each.target, each.task) == (bolt, index)], self.batches)
                for index, task in enumerate(tasks)
            ]
            sent = [each for outcome in outcomes for each in outcome.batches]
            told += [outcome.acks for outcome in outcomes]
            for task in tasks:
                task.changes()
        self.done += self.acker.step(told, self.batches).num_rows


def least(rounds: int, *works: Callable[[], object]) -> list[float]:
    """The least time of each, in seconds of the processor; they take turns."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(rounds):
        for mine, work in zip(times, works, strict=True):
            start = time.process_time()
            work()
            mine.append(time.process_time() - start)
    return [min(mine) for mine in times]


def words(bench: Bench) -> Iterator[Verdict]:
    """A word count in both guarantees."""
    rng, count = random.Random(1), 2_000 if bench.quick else 20_000
    vocabulary = [f"word{number}" for number in range(5_000)]
    sentences = [" ".join(rng.choices(vocabulary, k=10)) for _ in range(count)]
    rows = pa.record_batch({"sentence": sentences})
    once, most = Words("at_least_once"), Words("at_most_once")
    counter: Counter[str] = Counter()

    def plain() -> None:
        for sentence in sentences:
            for word in sentence.split():
                counter[word] += 1

    rounds = 5 if bench.quick else 15
    tracked, untracked, looped = least(rounds, lambda: once.batch(rows), lambda: most.batch(rows), plain)
    got: Counter[str] = Counter()
    for task in once.bolts["count"]:
        got.update(task.bolt.counts)
    if got != counter or once.done != rounds * count:
        raise RuntimeError("the word count is wrong")
    for name, seconds in (("at least once", tracked), ("at most once", untracked), ("a Counter in a loop", looped)):
        bench.say(f"{name:34} {count * 10 / seconds / 1000:8.0f} k words/s")
    yield Verdict("acking against at most once", tracked / untracked, 1.2, False, "look at Ledger and Acker")
    yield Verdict("a Counter in a loop against it", tracked / looped, 10, False, "look at Bolt.emit and BoltTask")


class Idle(storm.Bolt):
    """A bolt of words."""

    fields = ("word",)

    def nothing(self, values: list[str], anchors: list[storm.Tuple]) -> None:
        """What a call takes that does nothing."""


def emit(bench: Bench) -> Iterator[Verdict]:
    """Emits one word after the other."""
    count, bolt = 50_000, Idle()  # as many as a task has in a batch
    bolt._collector = OutputCollector("idle", 0, bolt.declared(), {})
    tup = storm.Tuple.of({"sentence": "the cow"})
    tup.row = 0

    def emitted() -> None:
        bolt._collector.begin(0, 0)
        for _ in range(count):
            bolt.emit(["word"], anchors=[tup])

    def called() -> None:
        for _ in range(count):
            bolt.nothing(["word"], anchors=[tup])

    def looped() -> None:
        for _ in range(count):
            pass

    whole, call, loop = (seconds * 1e9 / count for seconds in least(9 if bench.quick else 50, emitted, called, looped))
    if len(bolt._collector.outputs["default"].flat) != count:
        raise RuntimeError("not all was emitted")
    bench.say(f"{'a call that does nothing':34} {call - loop:8.0f} ns")
    yield Verdict("ns an emit", whole - loop, 150, False, "look at Bolt.emit")


def state(bench: Bench) -> Iterator[Verdict]:
    """A large dict of which little changes."""
    bolt = WordCount()
    bolt.counts = {f"word{number}": number for number in range(100_000)}
    kept = BoltState(bolt)
    bolt.counts["word0"] += 1
    kept.touch()
    kept.changes()
    written: list[int] = []

    def change() -> None:
        for number in range(0, 100_000, 10_000):
            bolt.counts[f"word{number}"] += 1
        kept.touch()
        written.append(sum(map(len, kept.changes())))

    [seconds] = least(5, change)
    yield Verdict("bytes written for 10 of 100,000", written[-1], 4_000, False, "look at blocks")
    yield Verdict("ns an item to find them", seconds * 1e9 / 100_000, 200, False, "look at state._Items")


def trees(bench: Bench) -> Iterator[Verdict]:
    """Many trees under way."""
    acker, count = Acker(30_000_000), 10_000
    roots = root_ids(0, np.arange(count))
    acker.step([acks(roots, tuple_ids(1, 0, count), 0)], now=0)
    updates = acks(np.tile(roots, 10), tuple_ids(2, 0, 10 * count))
    [seconds] = least(10, lambda: acker.step([updates], now=1))
    bench.say(f"{'updates':34} {10 * count / seconds / 1000:8.0f} k/s")
    yield Verdict("kB of 10,000 trees", sum(map(len, acker.dump())) / 1000, 1_000, False, "look at acker._TREE")


if __name__ == "__main__":
    run("stormtasks", __doc__, words, emit, state, trees)
