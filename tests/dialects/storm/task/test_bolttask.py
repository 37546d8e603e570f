"""One task over a batch: replays, errors, counts, and what it refuses."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from storm_wordcount import SplitSentence, WordCount

from headrace import storm
from headrace.dialects.storm.api.collectors import SpoutOutputCollector
from headrace.dialects.storm.task.acker import COMPLETE, FAIL, FAILED
from headrace.dialects.storm.task.bolttask import BoltTask
from headrace.dialects.storm.task.incoming import Incoming
from headrace.dialects.storm.task.spouttask import SpoutTask
from headrace.dialects.storm.task.taskoutput import TaskOutput
from tests.dialects.storm.driver import Driver, Sink, Source
from tests.scale import examples


def task_of(bolt: storm.Bolt, *, direct: str | None = None, **settings: Any) -> tuple[SpoutTask, BoltTask]:
    """A bolt between a spout of words and two sinks."""
    builder = storm.TopologyBuilder()
    builder.set_spout("words", Source("sentence"))
    builder.set_bolt("bolt", bolt).shuffle_grouping("words")
    for stream in bolt.declared():
        sink = builder.set_bolt(f"sink-{stream}", Sink(), parallelism=2)
        if stream == direct:
            sink.direct_grouping("bolt", stream)
        else:
            sink.shuffle_grouping("bolt", stream)
    topology, config = builder.create(), storm.Config(**settings)
    return SpoutTask(topology, config, "words", 0), BoltTask(topology, config, "bolt", 0)


def run(bolt: storm.Bolt, words: list[str], **settings: Any) -> TaskOutput:
    spout, task = task_of(bolt, **settings)
    sent = spout.run("default", pa.record_batch({"sentence": words}), np.arange(len(words)), now=0).batches
    return task.run([each.batch for each in sent], now=0)


@examples(15)
@given(
    batches=st.lists(st.lists(st.text("ab ", max_size=9), min_size=1, max_size=8), min_size=1, max_size=4),
    order=st.randoms(use_true_random=False),
)
def test_a_replay_is_identical_whatever_the_order_of_arrival(batches: list[list[str]], order: Any) -> None:
    builder = storm.TopologyBuilder()
    builder.set_spout("words", Source("sentence"), parallelism=2)
    builder.set_bolt("split", SplitSentence(), parallelism=2).shuffle_grouping("words")
    builder.set_bolt("count", WordCount(), parallelism=2).partial_key_grouping("split", ["word"])
    builder.set_bolt("sink", Sink(), parallelism=2).shuffle_grouping("count")
    drivers = [Driver(builder.create(), seed=seed) for seed in (1, order.randrange(100))]
    for turn, sentences in enumerate(batches):
        ended = [driver.batch({"words": [[each] for each in sentences]}, now=turn) for driver in drivers]
        assert ended[0] == ended[1]
        assert described(drivers[0]) == described(drivers[1])
        drivers[order.randrange(2)].restart()


def described(driver: Driver) -> Any:
    outcomes = []
    for name, index, each in driver.outputs:
        sent = [(one.target, one.task, one.batch.schema.metadata, one.batch.to_pydict()) for one in each.batches]
        outcomes.append((name, index, sent, each.acks.to_pydict()))
    return outcomes, dict(driver.states)


class Emits(storm.Bolt):
    """Emits as the test wants it to."""

    fields = ("a", "b")
    streams = {"named": ["c"]}

    def __init__(self, emit: Any) -> None:
        self.wanted = emit

    def execute(self, tup: storm.Tuple) -> None:
        self.wanted(self, tup)
        self.ack(tup)


@pytest.mark.parametrize(
    ("emit", "message"),
    [
        (
            lambda bolt, tup: bolt.emit([1], [tup]),
            r"'default' of 'bolt' has the fields \['a', 'b'\], got 1 values: \[1\]",
        ),
        (lambda bolt, tup: bolt.emit([1, 2], stream="x"), "'bolt' declares no stream 'x', only 'default', 'named'"),
        (lambda bolt, tup: bolt.emit([1, 2], tup), r"anchors are a list of tuples, got Tuple\(.*write anchors=\[tup\]"),
        (lambda bolt, tup: bolt.emit([1, 2], ["x"]), r"anchors are a list of tuples, got \['x'\]"),
        (lambda bolt, tup: bolt.emit([1], stream="named"), "is read by direct grouping: emit_direct names the task"),
        (
            lambda bolt, tup: bolt.emit_direct(3, [1, 2]),
            "nobody reads the stream 'default' of 'bolt' by direct grouping",
        ),
        (lambda bolt, tup: bolt.emit_direct(2, [1], stream="named"), "the task 2 does not read .* these do: 4, 5"),
        (lambda bolt, tup: tup["word"], "the tuple from 'words' has no field 'word'; it has sentence"),
    ],
)
def test_mistakes_fail_the_tuple_and_are_reported(emit: Any, message: str) -> None:
    outcome = run(Emits(emit), ["x"], direct="named")
    [error] = outcome.errors
    with pytest.raises(Exception, match=message):
        raise RuntimeError(error.error)
    assert (outcome.counts.failed, outcome.counts.acked, outcome.counts.errors) == (1, 0, 1)
    assert outcome.acks.column("mark").to_pylist() == [FAIL]
    assert outcome.batches == []
    assert "test_bolttask.py" in error.details


class Poisoned(storm.BasicBolt):
    fields = ("word",)

    def execute(self, tup: storm.Tuple) -> None:
        self.emit([tup["sentence"]])
        if tup["sentence"].startswith("bad"):
            raise ValueError(tup["sentence"])


def test_an_error_in_one_tuple_leaves_the_others_alone() -> None:
    outcome = run(Poisoned(), ["good", "bad", "fine"])
    counts = outcome.counts
    assert (counts.executed, counts.acked, counts.failed, counts.emitted, counts.sent) == (3, 2, 1, 3, 3)
    assert [error.error for error in outcome.errors] == ["ValueError: bad"]
    assert sorted(outcome.acks.column("mark").to_pylist()) == [FAIL, -1, -1, -1]


def test_of_a_great_many_errors_some_are_shown_and_all_are_counted() -> None:
    outcome = run(Poisoned(), [f"bad{number}" for number in range(300)])
    assert (len(outcome.errors), outcome.counts.errors, outcome.counts.failed) == (20, 300, 300)


def test_at_most_once_tracks_nothing() -> None:
    outcome = run(Poisoned(), ["good", "bad"], guarantee="at_most_once")
    assert outcome.acks.num_rows == 0
    assert all(sent.batch.schema.names == ["word"] for sent in outcome.batches)


class Twice(storm.Bolt):
    """Acks twice, and emits without anchors."""

    fields = ("word",)

    def execute(self, tup: storm.Tuple) -> None:
        self.emit([tup[0]])
        self.ack(tup)
        self.ack(tup)


def test_what_is_acked_twice_is_acked_and_what_is_not_anchored_is_not_waited_for() -> None:
    spout, task = task_of(Twice())
    begun = spout.run("default", pa.record_batch({"sentence": ["x"]}), np.arange(1), now=0)
    outcome = task.run([each.batch for each in begun.batches], now=0)
    assert outcome.acks.column("xor").to_pylist() == begun.acks.column("xor").to_pylist()  # which cancels out
    [sent] = outcome.batches
    assert sent.batch.column("__root").to_pylist() == [0]


def test_tuples_without_a_message_id_are_not_tracked() -> None:
    spout, task = task_of(SplitSentence())
    rows = pa.record_batch({"sentence": ["a b", "c d"]})
    begun = spout.run("default", rows, np.arange(2), now=0, tracked=np.array([True, False]))
    assert begun.acks.num_rows == 1
    outcome = task.run([each.batch for each in begun.batches], now=0)
    assert set(outcome.acks.column("root").to_pylist()) == set(begun.acks.column("root").to_pylist())


class Listed(storm.BasicBolt):
    """Emits what cannot be sent: a list to group by, and a lock."""

    fields = ("key", "value")

    def execute(self, tup: storm.Tuple) -> None:
        word = tup["sentence"]
        self.emit([[word] if word == "list" else word, threading.Lock() if word == "lock" else 1])


@pytest.mark.parametrize("guarantee", ["at_least_once", "at_most_once"])
def test_what_cannot_be_sent_fails_its_tuple_and_no_other(guarantee: str) -> None:
    builder = storm.TopologyBuilder()
    builder.set_spout("words", Source("sentence"))
    builder.set_bolt("listed", Listed()).shuffle_grouping("words")
    builder.set_bolt("sink", Sink(), parallelism=2).fields_grouping("listed", ["key"])
    driver = Driver(builder.create(), storm.Config(guarantee=guarantee))
    ended = driver.batch({"words": [["a"], ["list"], ["b"], ["lock"], ["c"]]}, now=0)
    assert sorted(driver.got("sink")) == [("a", 1), ("b", 1), ("c", 1)]
    tracked = guarantee == "at_least_once"
    assert [verdict for *_, verdict in ended] == ([COMPLETE, FAILED, COMPLETE, FAILED, COMPLETE] if tracked else [])
    [listed] = [outcome for name, _, outcome in driver.outputs if name == "listed"]
    assert len(listed.errors) == 2
    assert "a key of type list has no encoding" in listed.errors[0].error
    assert "pickle" in listed.errors[1].error


def test_what_a_spout_emitted_and_cannot_be_sent_fails_at_once() -> None:
    builder = storm.TopologyBuilder()
    builder.set_spout("words", Source("sentence"))
    builder.set_bolt("sink", Sink(), parallelism=2).fields_grouping("words", ["sentence"])
    driver = Driver(builder.create())
    ended = driver.batch({"words": [["a"], [["list"]], ["b"]]}, now=0)
    assert ended == [(0, 0, COMPLETE), (0, 1, FAILED), (0, 2, COMPLETE)]
    assert sorted(driver.got("sink")) == [("a",), ("b",)]
    [error] = [error for _, _, outcome in driver.outputs for error in outcome.errors]
    assert error.component == "words"
    assert sum(acker.pending for acker in driver.trees) == 0


def test_tuples_of_a_spout_come_in_its_order_however_they_were_read() -> None:
    spout, task = task_of(Sink())
    parts = [
        spout.run("default", pa.record_batch({"sentence": [str(place) for place in places]}), np.array(places), now=9)
        for places in ([4, 5], [0, 1, 2, 3], [6])
    ]
    task.run([sent.batch for part in parts for sent in part.batches], now=9)
    assert task.bolt.got == [(str(place),) for place in range(7)]


def test_no_two_copies_of_tuples_have_the_same_number() -> None:
    builder = storm.TopologyBuilder()
    builder.set_spout("words", Source("sentence"))
    builder.set_bolt("split", SplitSentence()).shuffle_grouping("words")
    builder.set_bolt("all", Sink(), parallelism=3).all_grouping("split").shuffle_grouping("words")
    builder.set_bolt("count", WordCount()).fields_grouping("split", ["word"])
    driver = Driver(builder.create())
    numbers: list[int] = []
    for now in range(3):
        driver.batch({"words": [["a b c"], ["d e"]]}, now=now)
        for _, _, outcome in driver.outputs:
            numbers += [number for sent in outcome.batches for number in Incoming.of([sent.batch], 0).ids.tolist()]
    assert len(numbers) == 3 * (2 + 2 + 5 * 3 + 5)
    assert len(set(numbers)) == len(numbers)


def test_a_bolt_has_a_context_and_an_end() -> None:
    ended = []

    class Ends(storm.Bolt):
        def prepare(self, context: storm.TopologyContext) -> None:
            assert (context.component, context.index, context.task) == ("bolt", 0, 1)
            assert list(context.tasks("words")) == [0]

        def cleanup(self) -> None:
            ended.append(self.context.component)

    task_of(Ends())[1].close()
    assert ended == ["bolt"]


def test_spouts_are_held_to_their_streams_too() -> None:
    collected = SpoutOutputCollector("words", 0, {"default": ("word",), "named": ("word",)}, {"named": frozenset([3])})
    spout = Source("word")
    spout._collector = collected
    spout.emit(["a"], message_id=1)
    spout.emit_direct(3, ["b"], stream="named")
    assert [(each.stream, each.task) for each in collected.take()] == [("default", None), ("named", 3)]
    for wrong, message in (
        (lambda: spout.emit(["a", "b"]), "got 2 values"),
        (lambda: spout.emit(["a"], stream="x"), "declares no stream 'x'"),
        (lambda: spout.emit(["a"], stream="named"), "one emits with emit_direct"),
        (lambda: spout.emit_direct(3, ["a"]), "one emits with emit$"),
        (lambda: spout.emit_direct(4, ["a"], stream="named"), "these do: 3"),
    ):
        with pytest.raises(ValueError, match=message):
            wrong()
    assert collected.take() == []
    spout.report_error(RuntimeError("broken"))
    assert [error.error for error in collected.errors] == ["RuntimeError: broken"]
