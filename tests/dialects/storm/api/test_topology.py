"""Topologies that cannot run are refused, with what is wrong and what to do."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
from storm_wordcount import SplitSentence

from headrace import storm
from tests.dialects.storm.driver import Sink, Source
from tests.dialects.storm.task.test_small_topologies import Exclaim


class Unfinished(storm.Bolt):
    fields = ("word",)


def started() -> storm.TopologyBuilder:
    return storm.TopologyBuilder().set_spout("words", Source("word", "time"))


def cycle(builder: storm.TopologyBuilder) -> None:
    builder.set_bolt("one", Exclaim()).shuffle_grouping("words").shuffle_grouping("two")
    builder.set_bolt("two", Exclaim()).shuffle_grouping("one")


def mixed(builder: storm.TopologyBuilder) -> None:
    builder.set_bolt("one", Exclaim()).direct_grouping("words")
    builder.set_bolt("two", Exclaim()).shuffle_grouping("words")


class TwoDefaults(storm.Bolt):
    fields = ("a",)
    streams = {"default": ["b"]}


def declaring(**declared: Any) -> storm.Bolt:
    return type("Declaring", (storm.Bolt,), declared)()


WRONG: list[tuple[Callable[[storm.TopologyBuilder], Any], str]] = [
    (
        lambda b: b.set_bolt("a", Exclaim()).shuffle_grouping("word"),
        "reads from 'word', which does not exist; there",
    ),
    (
        lambda b: b.set_bolt("a", Exclaim()).fields_grouping("words", ["wrd"]),
        "groups by the field 'wrd', but .* 'word', ",
    ),
    (lambda b: b.set_bolt("a", Exclaim()).partial_key_grouping("words", ["x"]), "groups by the field 'x'"),
    (
        lambda b: b.set_bolt("a", Exclaim()).shuffle_grouping("words", stream="late"),
        "stream 'late' of 'words', which de",
    ),
    (
        lambda b: (
            b.set_bolt("a", Sink()).shuffle_grouping("words"),
            b.set_bolt("b", Sink()).shuffle_grouping("a"),
        ),
        "reads the stream 'default' of 'a', which declares no streams",
    ),
    (cycle, "'one', 'two' read from each other in a cycle"),
    (mixed, "read by direct grouping and by others"),
    (lambda b: b.set_bolt("words", Exclaim()), "has a component 'words' already"),
    (lambda b: b.set_bolt("a", Exclaim()), "the bolt 'a' reads nothing; add an input, e.g. "),
    (
        lambda b: b.set_bolt("a", Exclaim()).shuffle_grouping("words").all_grouping("words"),
        "twice; remove one of",
    ),
    (lambda b: b.set_bolt("a", Exclaim), r"pass an object, not the class: Exclaim\(\)"),
    (lambda b: b.set_bolt("a", Source("x")), "'a': expected a bolt, got "),
    (lambda b: b.set_spout("a", Exclaim()), "'a': expected a spout, got "),
    (
        lambda b: b.set_bolt("a", Exclaim(), parallelism=0),
        "parallelism of 'a' is a whole number from 1 to 1,000,",
    ),
    (lambda b: b.set_bolt("a", Exclaim(), parallelism=10**9), "is a whole number from 1 to 1,000, got 1000000000"),
    (
        lambda b: b.set_bolt("a", Exclaim(), num_tasks=1.5),
        "num_tasks of 'a' is a whole number from 1 to 1,000,",
    ),
    (lambda b: b.set_bolt("__a", Exclaim()), "the id of a component is letters, digits"),
    (lambda b: b.set_bolt("a/b", Exclaim()), "the id of a component is letters, digits"),
    (lambda b: b.set_bolt("a", TwoDefaults()), "declares the stream 'default' twice"),
    (lambda b: b.set_bolt("a", declaring(fields="word")), r"are a list of names, got 'word'; write fields = \[...\]"),
    (lambda b: b.set_bolt("a", declaring(fields=["x", "x"])), "has a field twice"),
    (lambda b: b.set_bolt("a", declaring(fields=["__x"])), "do not begin with '__'"),
    (lambda b: b.set_bolt("a", declaring(streams={"s": []})), "the stream 's' of 'a' has no fields"),
    (
        lambda b: b.set_bolt("a", Exclaim()).fields_grouping("words", "word"),
        r"a list of names, got 'word'; .*\['word'\]",
    ),
    (lambda b: b.set_bolt("a", Exclaim()).custom_grouping("words", str), "an object of a subclass of CustomGrouping"),
]


@pytest.mark.parametrize(("write", "message"), WRONG, ids=[message for _, message in WRONG])
def test_what_is_wrong_is_told(write: Callable[[storm.TopologyBuilder], Any], message: str) -> None:
    builder = started()
    with pytest.raises(storm.TopologyError, match=message):
        write(builder)
        builder.create()


def test_a_topology_without_spout_is_none() -> None:
    builder = storm.TopologyBuilder()
    builder.set_bolt("a", Exclaim()).shuffle_grouping("a")
    with pytest.raises(storm.TopologyError, match="has no spout"):
        builder.create()


def test_settings_are_checked() -> None:
    for settings, message in (
        ({"message_timeout": "0s"}, "message_timeout must be longer than 0"),
        ({"guarantee": "exactly_once"}, "guarantee is one of at_least_once, at_most_once, effectively_once, got 'exac"),
        ({"max_spout_pending": 0}, "max_spout_pending is a whole number of at least 1, got 0"),
        ({"max_retries": -1}, "max_retries is a whole number of at least 0"),
        ({"max_task_parallelism": True}, "max_task_parallelism is a whole number"),
        ({"tick": "-1s"}, "tick must be longer than 0"),
    ):
        with pytest.raises(ValueError, match=message):
            storm.Config(**settings)


def test_levels_are_by_the_longest_way() -> None:
    builder = started()
    builder.set_bolt("late", Exclaim()).shuffle_grouping("words").shuffle_grouping("middle")
    builder.set_bolt("middle", Exclaim()).shuffle_grouping("words")
    builder.set_bolt("other", Exclaim()).shuffle_grouping("words")
    assert builder.create().levels == (("middle", "other"), ("late",))


def test_a_topology_travels() -> None:
    builder = started()
    builder.set_bolt("split", SplitSentence(), parallelism=3).shuffle_grouping("words")
    topology = builder.create()
    assert topology.levels == (("split",),)  # also after it was asked something
    again = pickle.loads(pickle.dumps(topology))
    assert [(node.id, node.tasks, node.inputs) for node in again.nodes] == [
        (node.id, node.tasks, node.inputs) for node in topology.nodes
    ]
    assert again.component_of(3) == ("split", 2)
    with pytest.raises(storm.TopologyError, match="has no component 'x', only 'words', 'split'"):
        again.node("x")


def test_components_without_their_method_say_so() -> None:
    with pytest.raises(NotImplementedError, match=r"Unfinished is a bolt without execute\(\)"):
        Unfinished().execute(storm.Tuple.of({"word": "x"}))
    with pytest.raises(NotImplementedError, match=r"Source is a spout without next_tuple\(\)"):
        Source("x").next_tuple()
