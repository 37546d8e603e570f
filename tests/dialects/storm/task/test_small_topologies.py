"""Small topologies with known answers, on the tests' own driver."""

from __future__ import annotations

from collections import Counter

import pytest
from storm_wordcount import SplitSentence, WordCount

from headrace import storm
from headrace.dialects.storm.task.acker import COMPLETE, FAILED, TIMED_OUT
from tests.dialects.storm.driver import Driver, Sink, Source

SECOND = 1_000_000


class Exclaim(storm.BasicBolt):
    fields = ("word",)

    def execute(self, tup: storm.Tuple) -> None:
        self.emit([tup[0] + "!"])


def word_count(guarantee: str = "at_least_once") -> Driver:
    builder = storm.TopologyBuilder()
    builder.set_spout("spout", Source("sentence"), parallelism=5)
    builder.set_bolt("split", SplitSentence(), parallelism=8).shuffle_grouping("spout")
    builder.set_bolt("count", WordCount(), parallelism=12).fields_grouping("split", ["word"])
    builder.set_bolt("sink", Sink()).global_grouping("count")
    return Driver(builder.create(), storm.Config(guarantee=guarantee))


SENTENCES = [
    ["the cow jumped over the moon"],
    ["an apple a day keeps the doctor away"],
    ["four score and seven years ago"],
    ["snow white and the seven dwarfs"],
    ["i am at two with nature"],
]


@pytest.mark.parametrize("guarantee", ["at_least_once", "at_most_once", "effectively_once"])
def test_word_count_is_right_and_every_tree_is_done(guarantee: str) -> None:
    driver, expected, ended = word_count(guarantee), Counter(), []
    for turn in range(6):
        sentences = SENTENCES * (turn + 1)
        expected.update(word for [sentence] in sentences for word in sentence.split())
        ended += driver.batch({"spout": sentences}, now=turn * SECOND)
        if turn == 3:
            driver.restart()
    tasks = driver.instances("count")
    assert sum((Counter(task.counts) for task in tasks), Counter()) == expected
    assert sum(len(task.counts) for task in tasks) == len(expected)  # each word in one task
    assert Counter(dict.fromkeys(word for word, _ in driver.got("sink"))).keys() == expected.keys()
    tracked = guarantee != "at_most_once"
    assert len(ended) == (len(SENTENCES) * 21 if tracked else 0)
    assert {verdict for _, _, verdict in ended} <= {COMPLETE}
    assert sum(acker.pending for acker in driver.trees) == 0


def test_a_counting_bolt_counts_nathan_twice() -> None:
    builder = storm.TopologyBuilder()
    builder.set_spout("names", Source("word"))
    builder.set_bolt("count", WordCount()).fields_grouping("names", ["word"])
    builder.set_bolt("sink", Sink()).global_grouping("count")
    driver = Driver(builder.create())
    driver.batch({"names": [["nathan"], ["bob"], ["joey"], ["nathan"]]})
    assert driver.got("sink") == [("nathan", 1), ("bob", 1), ("joey", 1), ("nathan", 2)]


def test_exclamation_fed_by_both() -> None:
    builder = storm.TopologyBuilder()
    builder.set_spout("words", Source("word"), parallelism=10)
    builder.set_bolt("exclaim1", Exclaim(), parallelism=3).shuffle_grouping("words")
    builder.set_bolt("exclaim2", Exclaim(), parallelism=5).shuffle_grouping("exclaim1").shuffle_grouping("words")
    builder.set_bolt("sink", Sink()).global_grouping("exclaim2")
    driver = Driver(builder.create())
    ended = driver.batch({"words": [["Hi"]] * 20})
    assert Counter(driver.got("sink")) == {("Hi!!",): 20, ("Hi!",): 20}
    assert len(ended) == 20 and all(verdict == COMPLETE for _, _, verdict in ended)


def test_tasks_and_executors_of_blue_green_and_yellow() -> None:
    builder = storm.TopologyBuilder()
    builder.set_spout("blue", Source("x"), parallelism=2)
    builder.set_bolt("green", Exclaim(), parallelism=2, num_tasks=4).shuffle_grouping("blue")
    builder.set_bolt("yellow", Exclaim(), parallelism=6).shuffle_grouping("green")
    topology = builder.create()
    assert [(node.parallelism, node.tasks) for node in topology.nodes] == [(2, 2), (2, 4), (6, 6)]
    assert [list(topology.tasks_of(name)) for name in ("blue", "green")] == [[0, 1], [2, 3, 4, 5]]
    assert topology.levels == (("green",), ("yellow",))
    assert [node.tasks for node in topology.capped(3).nodes] == [2, 3, 3]


class Forgetful(storm.Bolt):
    """Never acks 'lost', fails 'bad', and cannot work on 'poison'."""

    def execute(self, tup: storm.Tuple) -> None:
        match tup["word"]:
            case "lost":
                return
            case "bad":
                self.fail(tup)
            case "poison":
                raise RuntimeError("cannot digest it")
            case _:
                self.ack(tup)


def test_what_is_never_acked_fails_after_the_timeout_while_its_neighbours_are_acked() -> None:
    builder = storm.TopologyBuilder()
    builder.set_spout("words", Source("word"))
    builder.set_bolt("forgetful", Forgetful(), parallelism=2).shuffle_grouping("words")
    driver = Driver(builder.create(), storm.Config(message_timeout="30s"))
    words = ["a", "lost", "b", "bad", "c", "poison", "d"]
    assert driver.batch({"words": [[word] for word in words]}, now=0) == [
        (0, 0, COMPLETE),
        (0, 2, COMPLETE),
        (0, 3, FAILED),
        (0, 4, COMPLETE),
        (0, 5, FAILED),
        (0, 6, COMPLETE),
    ]
    [error] = [error for _, _, outcome in driver.outputs for error in outcome.errors]
    assert (error.component, error.error) == ("forgetful", "RuntimeError: cannot digest it")
    driver.restart()
    assert driver.batch({"words": [["e"]]}, now=29 * SECOND) == [(0, 7, COMPLETE)]
    assert driver.batch({}, now=30 * SECOND) == [(0, 1, TIMED_OUT)]
    assert sum(acker.pending for acker in driver.trees) == 0


class Pair(storm.Bolt):
    """Joins every two tuples to one that is anchored to both."""

    fields = ("pair",)

    def prepare(self, context: storm.TopologyContext) -> None:
        self.waiting: list[storm.Tuple] = []

    def execute(self, tup: storm.Tuple) -> None:
        self.waiting.append(tup)
        if len(self.waiting) == 2:
            self.emit(["+".join(each["word"] for each in self.waiting)], anchors=self.waiting)
            for each in self.waiting:
                self.ack(each)
            self.waiting.clear()


@pytest.mark.parametrize("restarted", [False, True])
def test_a_tuple_with_two_anchors_belongs_to_both_trees_also_from_batch_to_batch(restarted: bool) -> None:
    builder = storm.TopologyBuilder()
    builder.set_spout("words", Source("word"))
    builder.set_bolt("pair", Pair()).global_grouping("words")
    builder.set_bolt("forgetful", Fussy()).global_grouping("pair")
    driver = Driver(builder.create())
    assert driver.batch({"words": [["a"], ["b"], ["c"]]}, now=0) == [(0, 0, COMPLETE), (0, 1, COMPLETE)]
    if restarted:
        driver.restart()
    # c waited for d; what both became is not liked, so both trees fail
    assert driver.batch({"words": [["d"], ["e"]]}, now=1) == [(0, 2, FAILED), (0, 3, FAILED)]
    assert driver.batch({"words": [["f"]]}, now=2) == [(0, 4, COMPLETE), (0, 5, COMPLETE)]


class Fussy(storm.Bolt):
    def execute(self, tup: storm.Tuple) -> None:
        if tup["pair"] == "c+d":
            self.fail(tup)
        else:
            self.ack(tup)


class Sorting(storm.Bolt):
    """Several streams, one of them direct."""

    streams = {"even": ["n"], "odd": ["n"], "named": ["n"]}

    def execute(self, tup: storm.Tuple) -> None:
        n = tup["n"]
        self.emit([n], anchors=[tup], stream="odd" if n % 2 else "even")
        self.emit_direct(self.context.tasks("chosen")[n % 3], [n], anchors=[tup], stream="named")
        self.ack(tup)


def test_streams_and_direct_grouping() -> None:
    builder = storm.TopologyBuilder()
    builder.set_spout("numbers", Source("n"))
    builder.set_bolt("sort", Sorting(), parallelism=2).shuffle_grouping("numbers")
    builder.set_bolt("even", Sink()).shuffle_grouping("sort", stream="even")
    builder.set_bolt("all", Sink(), parallelism=2).all_grouping("sort", "even").all_grouping("sort", stream="odd")
    builder.set_bolt("chosen", Sink(), parallelism=3).direct_grouping("sort", stream="named")
    driver = Driver(builder.create())
    ended = driver.batch({"numbers": [[n] for n in range(12)]})
    assert sorted(driver.got("even")) == [(n,) for n in range(0, 12, 2)]
    assert [sorted(task.got) for task in driver.instances("all")] == [[(n,) for n in range(12)]] * 2
    assert [sorted(task.got) for task in driver.instances("chosen")] == [
        [(n,) for n in range(place, 12, 3)] for place in range(3)
    ]
    assert len(ended) == 12 and all(verdict == COMPLETE for _, _, verdict in ended)


class Rolling(storm.Bolt):
    fields = ("word", "count")

    def prepare(self, context: storm.TopologyContext) -> None:
        self.counter = storm.SlidingCounter(2)

    def execute(self, tup: storm.Tuple) -> None:
        if tup.is_tick:
            for word, count in sorted(self.counter.advance().items()):
                self.emit([word, count])
        else:
            self.counter.add(tup["word"])
            self.ack(tup)


def test_ticks_come_once_a_period_and_after_the_tuples() -> None:
    builder = storm.TopologyBuilder()
    builder.set_spout("words", Source("word"))
    builder.set_bolt("rolling", Rolling(), tick="5s").fields_grouping("words", ["word"])
    builder.set_bolt("sink", Sink()).global_grouping("rolling")
    driver = Driver(builder.create())
    seen = []
    for slot, count in enumerate([3, 2, 0, 0, 1, 0, 0, 0]):
        driver.batch({"words": [["x"]] * count}, now=(5 * slot) * SECOND + SECOND)  # no tick is due
        driver.restart()
        driver.batch({}, now=5 * (slot + 1) * SECOND)
        got = driver.got("sink")
        seen.append(got[-1][1] if len(got) > len(seen) - seen.count(0) else 0)
    assert seen == [3, 5, 2, 0, 1, 1, 0, 0]


def test_after_a_pause_there_are_many_ticks_but_not_too_many() -> None:
    builder = storm.TopologyBuilder()
    builder.set_spout("words", Source("word"))
    builder.set_bolt("sink", Sink(), tick="1s").global_grouping("words")
    driver = Driver(builder.create())
    ticks = []
    for now in (0, 1, 1, 4, 3604):
        driver.batch({}, now=now * SECOND)
        [outcome] = [outcome for _, _, outcome in driver.outputs]
        ticks.append((outcome.counts.ticks, outcome.counts.ticks_skipped))
    assert ticks == [(0, 0), (1, 0), (0, 0), (3, 0), (100, 3500)]
