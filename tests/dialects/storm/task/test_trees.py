"""Trees through whole topologies: what is said of them follows from the fates of all their tuples, and nothing else.

The fate of a tuple is drawn from its label and the bolt it comes to, so that a recursion over labels knows it as well.
"""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace import storm
from headrace.dialects.storm.task.acker import COMPLETE, FAILED, TIMED_OUT
from tests.dialects.storm.driver import Driver, Source
from tests.scale import examples

TIMEOUT = 30_000_000


def drawn(seed: int, bolt: str, label: str) -> tuple[str, int, int]:
    """What becomes of a tuple: its fate, and how many tuples it makes, by stream."""
    rng = random.Random(f"{seed} {bolt} {label}")
    [fate] = rng.choices(["ack", "fail", "lose"], [seed % 40, 1, 1])
    return fate, rng.choice([0, 1, 1, 2]), rng.choice([0, 0, 1])


class Fated(storm.Bolt):
    fields = ("label",)
    streams = {"side": ["label"]}

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def execute(self, tup: storm.Tuple) -> None:
        label = tup["label"]
        fate, children, side = drawn(self.seed, self.context.component, label)
        for number in range(children):
            self.emit([f"{label}.{number}"], anchors=[tup])
        for number in range(side):
            self.emit([f"{label}-{number}"], anchors=[tup], stream="side")
        if fate == "ack":
            self.ack(tup)
        elif fate == "fail":
            self.fail(tup)


def built(seed: int) -> storm.Topology:
    builder = storm.TopologyBuilder()
    builder.set_spout("spout", Source("label"), parallelism=2)
    builder.set_bolt("a", Fated(seed), parallelism=3).shuffle_grouping("spout")
    builder.set_bolt("b", Fated(seed), parallelism=2).all_grouping("spout")
    c = builder.set_bolt("c", Fated(seed), parallelism=2).fields_grouping("a", ["label"])
    c.fields_grouping("b", ["label"]).partial_key_grouping("a", ["label"], stream="side")
    builder.set_bolt("d", Fated(seed)).global_grouping("c").global_grouping("b", stream="side").shuffle_grouping("a")
    return builder.create()


COPIES = {"b": 2}  # for each of its tasks
READERS = {
    ("spout", "default"): ["a", "b"],
    ("a", "default"): ["c", "d"],
    ("a", "side"): ["c"],
    ("b", "default"): ["c"],
    ("b", "side"): ["d"],
    ("c", "default"): ["d"],
}


def fates(seed: int, source: str, stream: str, label: str) -> list[str]:
    """The fates of all copies of a tuple, and of all that is made of them."""
    met = []
    for bolt in READERS.get((source, stream), []):
        fate, children, side = drawn(seed, bolt, label)
        tree_fates = [fate]
        for number in range(children):
            tree_fates += fates(seed, bolt, "default", f"{label}.{number}")
        for number in range(side):
            tree_fates += fates(seed, bolt, "side", f"{label}-{number}")
        met += tree_fates * COPIES.get(bolt, 1)
    return met


@examples(60)
@given(
    seed=st.integers(0, 10_000), batches=st.lists(st.integers(1, 6), min_size=1, max_size=3), restarted=st.booleans()
)
def test_a_tree_ends_as_the_fates_of_its_tuples_say(seed: int, batches: list[int], restarted: bool) -> None:
    driver = Driver(built(seed), seed=seed)
    expected: dict[tuple[int, int], int] = {}
    ended: list[Any] = []
    places = [0, 0]
    for turn, count in enumerate(batches):
        labels = [f"{turn}:{number}" for number in range(count)]
        for number, label in enumerate(labels):  # shared between the two spout tasks in turns
            met = fates(seed, "spout", "default", label)
            verdict = FAILED if "fail" in met else TIMED_OUT if "lose" in met else COMPLETE
            expected[number % 2, places[number % 2]] = verdict
            places[number % 2] += 1
        ended += driver.batch({"spout": [[label] for label in labels]}, now=turn)
        if restarted:
            driver.restart()
    assert {(task, place): verdict for task, place, verdict in ended} == {
        tree: verdict for tree, verdict in expected.items() if verdict != TIMED_OUT
    }
    ended += driver.batch({}, now=len(batches) + TIMEOUT)
    assert len(ended) == len(expected)
    assert {(task, place): verdict for task, place, verdict in ended} == expected
    assert sum(acker.pending for acker in driver.trees) == 0
