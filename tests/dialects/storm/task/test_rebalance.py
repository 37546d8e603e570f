"""State for another number of tasks: nothing is lost, and every key is where its tuples go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import storm
from headrace.dialects.storm.task.acker import COMPLETE
from headrace.dialects.storm.task.rebalance import rebalance
from tests.dialects.storm.driver import Driver, Sink, Source
from tests.scale import examples


class Count(storm.BasicBolt):
    fields = ("user", "word", "count")

    def prepare(self, context: storm.TopologyContext) -> None:
        self.counts: Counter[Any] = Counter()
        self.words: dict[Any, list[str]] = {}

    def execute(self, tup: storm.Tuple) -> None:
        key = (tup["user"], tup["word"])
        self.counts[key] += 1
        self.words.setdefault(key, []).append(tup["word"])
        self.emit([*key, self.counts[key]])


class Total(storm.BasicBolt):
    """Stores a number, which no key says how to divide."""

    def prepare(self, context: storm.TopologyContext) -> None:
        self.total = 0

    def execute(self, tup: storm.Tuple) -> None:
        self.total += 1


class Shared(Total):
    def split(self, tasks: int) -> Sequence[Mapping[str, Any]]:
        return [{"total": self.total // tasks + (place < self.total % tasks)} for place in range(tasks)]

    def merge(self, attributes: Mapping[str, Any]) -> None:
        self.total += attributes["total"]


def topology(bolt: storm.Bolt, tasks: int, grouping: str = "fields") -> storm.Topology:
    builder = storm.TopologyBuilder()
    builder.set_spout("words", Source("user", "word"), parallelism=2)
    declarer = builder.set_bolt("bolt", bolt, parallelism=tasks, tick="1s")
    if grouping == "fields":
        declarer.fields_grouping("words", ["user", "word"])
    elif grouping == "shuffle":
        declarer.shuffle_grouping("words")
    else:
        declarer.global_grouping("words")
    if bolt.declared():
        builder.set_bolt("sink", Sink(), parallelism=2).shuffle_grouping("bolt")
    return builder.create()


def with_tasks(driver: Driver, tasks: int) -> Driver:
    """The driver's topology with another number of tasks, where it was."""
    before = driver.topology
    states = [driver.states["bolt", index] for index in range(before.node("bolt").tasks)]
    after = Driver(before.with_tasks({"bolt": tasks}), driver.config)
    after.emitted, after.acker_states = driver.emitted, driver.acker_states
    for key, blocks in driver.states.items():
        after.states[key] = blocks
    for index, blocks in enumerate(rebalance(before, driver.config, "bolt", states, tasks)):
        after.states["bolt", index] = list(blocks)
    after.restart()
    return after


class Ticked(Count):
    """Leaves ticks alone."""

    def execute(self, tup: storm.Tuple) -> None:
        if not tup.is_tick:
            super().execute(tup)


ROWS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["x", "y", "z", "tree", "river"])), max_size=12)


@examples(25)
@given(first=st.integers(1, 5), steps=st.lists(st.tuples(ROWS, st.integers(1, 7)), min_size=1, max_size=5))
def test_counts_after_any_rebalances_are_those_of_a_counter(first: int, steps: list[tuple[Any, int]]) -> None:
    driver, expected, ended, got = Driver(topology(Ticked(), first)), Counter(), [], Counter()
    for turn, (rows, tasks) in enumerate(steps):
        expected.update(rows)
        ended += driver.batch({"words": rows}, now=turn)
        got.update(driver.got("sink"))
        for task in driver.instances("sink"):
            task.got.clear()
        driver = with_tasks(driver, tasks)
        counts = [task.counts for task in driver.instances("bolt")]
        assert sum(counts, Counter()) == expected
        assert all(isinstance(each, Counter) for each in counts)
        assert sum(map(len, counts)) == len(expected)  # each key in one task
        items = [(key, words) for task in driver.instances("bolt") for key, words in task.words.items()]
        assert dict(items) == {key: [key[1]] * count for key, count in expected.items()}
    # Every key is where its tuples go: each one more counts on from what there is.
    driver.batch({"words": list(expected)}, now=100)
    assert sum((task.counts for task in driver.instances("bolt")), Counter()) == expected + Counter(list(expected))
    assert sum(len(task.counts) for task in driver.instances("bolt")) == len(expected)
    assert len(ended) == sum(len(rows) for rows, _ in steps) and {verdict for *_, verdict in ended} <= {COMPLETE}


def test_a_bolt_says_itself_how_a_number_is_shared() -> None:
    driver = Driver(topology(Shared(), 3, "shuffle"))
    driver.batch({"words": [("a", "x")] * 17}, now=0)
    for tasks in (5, 1, 4):
        driver = with_tasks(driver, tasks)
        assert sum(task.total for task in driver.instances("bolt")) == 17
        assert len(driver.instances("bolt")) == tasks


def test_what_cannot_be_shared_is_refused() -> None:
    for grouping, why in (("fields", "its attribute 'total' is not a dict"), ("shuffle", "does not read by fields")):
        driver = Driver(topology(Total(), 2, grouping))
        driver.batch({"words": [("a", "x"), ("b", "y"), ("c", "z"), ("a", "y")]}, now=0)
        with pytest.raises(storm.TopologyError, match=f"the bolt 'bolt' cannot be divided .*{why}.* split"):
            with_tasks(driver, 3)


class Stranger(storm.BasicBolt):
    def prepare(self, context: storm.TopologyContext) -> None:
        self.numbers: dict[str, int] = {}

    def execute(self, tup: storm.Tuple) -> None:
        self.numbers["all"] = self.numbers.get("all", 0) + 1


def test_a_dict_with_other_keys_than_the_groupings_is_refused() -> None:
    driver = Driver(topology(Stranger(), 4))
    driver.batch({"words": [(user, word) for user in "abcdef" for word in "xyz"]}, now=0)
    with pytest.raises(storm.TopologyError, match="'numbers' has the key 'all', which is not a value of the grouping"):
        with_tasks(driver, 3)


def test_the_first_task_of_a_global_grouping_keeps_its_state() -> None:
    driver = Driver(topology(Total(), 1, "global"))
    driver.batch({"words": [("a", "x")] * 4}, now=0)
    driver = with_tasks(with_tasks(driver, 3), 2)
    assert [task.total for task in driver.instances("bolt")] == [4, 0]


def test_bolts_without_state_have_any_number_of_tasks() -> None:
    class Nothing(storm.BasicBolt):
        def execute(self, tup: storm.Tuple) -> None:
            pass

    driver = Driver(topology(Nothing(), 2, "shuffle"))
    driver.batch({"words": [("a", "x")]}, now=0)
    assert len(with_tasks(driver, 5).instances("bolt")) == 5


def test_ticks_go_on_after_a_rebalance() -> None:
    driver = Driver(topology(Ticked(), 2))
    driver.batch({}, now=5_000_000)
    driver = with_tasks(driver, 3)
    driver.batch({}, now=6_000_000)
    assert [outcome.counts.ticks for name, _, outcome in driver.outputs if name == "bolt"] == [1, 1, 1]
