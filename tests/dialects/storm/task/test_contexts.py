"""What components know of their topology, and the ways in which they emit, report and group tuples."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import storm
from headrace.dialects.storm.api.groupings import All, ByFields, Shuffle
from headrace.dialects.storm.task.acker import COMPLETE
from tests.dialects.storm.driver import Driver, Sink, Source
from tests.scale import examples

SECOND = 1_000_000


class Curious(storm.Bolt):
    """Asks its context for all there is to know."""

    fields = ("word",)
    streams = {"errors": ["line", "reason"]}

    def prepare(self, context: storm.TopologyContext) -> None:
        self.place = context.component, context.index, context.task
        self.around = [list(context.tasks(each)) for each in ("words", "curious", "sink")]
        self.owners = [context.component_of(task) for task in range(7)]
        self.read, self.readers = context.sources, context.targets
        self.names = context.fields("words"), context.fields("curious", "errors")
        self.timeout = context.config.message_timeout


def test_a_task_knows_where_it_is() -> None:
    builder = storm.TopologyBuilder()
    builder.set_spout("words", Source("word", "time"), parallelism=2)
    builder.set_bolt("curious", Curious(), parallelism=1, num_tasks=3).fields_grouping("words", ["time", "word"])
    builder.set_bolt("sink", Sink(), parallelism=2).shuffle_grouping("curious").all_grouping("curious", "errors")
    driver = Driver(builder.create(), storm.Config(message_timeout="7s"))
    tasks = driver.instances("curious")
    assert [task.place for task in tasks] == [("curious", index, 2 + index) for index in range(3)]
    first = tasks[0]
    assert first.around == [[0, 1], [2, 3, 4], [5, 6]]
    assert first.owners == ["words"] * 2 + ["curious"] * 3 + ["sink"] * 2
    assert first.read == {("words", "default"): ByFields(("time", "word"))}
    assert first.readers == {"default": {"sink": Shuffle()}, "errors": {"sink": All()}}
    assert first.names == (("word", "time"), ("line", "reason"))
    assert first.timeout == 7 * SECOND


class Near(storm.CustomGrouping):
    """Half of the tasks are near to a task that emits: those whose numbers are odd, or even, as its own is."""

    def prepare(self, context: storm.TopologyContext, stream: str, tasks: int) -> None:
        assert (context.component, stream) == ("numbers", "default")
        self.near = [task for task in range(tasks) if task % 2 == context.index % 2]
        self.field = context.fields(context.component, stream).index("n")

    def choose(self, values: tuple[Any, ...], tasks: int) -> list[int]:
        return [self.near[values[self.field] // 2 % len(self.near)]]


def test_a_custom_grouping_is_prepared_for_each_task_that_emits() -> None:
    builder = storm.TopologyBuilder()
    builder.set_spout("numbers", Source("word", "n"), parallelism=2)
    builder.set_bolt("sink", Sink(), parallelism=4).custom_grouping("numbers", Near())
    driver = Driver(builder.create())
    for start in range(0, 40, 8):
        driver.batch({"numbers": [["x", n] for n in range(start, start + 8)]})  # the first task has those that are even
    got = [[n for _, n in task.got] for task in driver.instances("sink")]
    assert [sorted(each) for each in got] == [list(range(place, 40, 4)) for place in range(4)]


class Pass(storm.BasicBolt):
    fields = ("n",)

    def execute(self, tup: storm.Tuple) -> None:
        self.emit([tup["n"]])


@examples(25)
@given(
    batches=st.lists(st.integers(0, 9), min_size=1, max_size=12),
    sources=st.integers(1, 3),
    tasks=st.integers(1, 5),
    restarted=st.booleans(),
)
def test_shuffled_tasks_get_equally_many_over_small_batches(
    batches: list[int], sources: int, tasks: int, restarted: bool
) -> None:
    builder = storm.TopologyBuilder()
    builder.set_spout("numbers", Source("n"), parallelism=sources)
    builder.set_bolt("first", Pass(), parallelism=tasks).shuffle_grouping("numbers")
    builder.set_bolt("second", Sink(), parallelism=tasks).local_or_shuffle_grouping("first")
    builder.set_bolt("third", Sink(), parallelism=tasks).none_grouping("first")
    driver, executed = Driver(builder.create()), Counter[tuple[str, int]]()
    for size in batches:
        driver.batch({"numbers": [[n] for n in range(size)]})
        for name, index, outcome in driver.outputs:
            executed[name, index] += outcome.counts.executed
        if restarted:
            driver.restart()
        for bolt, emitting in (("first", sources), ("second", tasks), ("third", tasks)):
            counts = [executed[bolt, index] for index in range(tasks)]
            assert sum(counts) == sum(executed["first", index] for index in range(tasks))
            assert max(counts) - min(counts) <= emitting  # one for each task that takes turns


class Sort(storm.BasicBolt):
    """A basic bolt with several streams, one of them direct; complains of some tuples without failing them."""

    fields = ("n",)
    streams = {"odd": ["n", "word"], "named": ["n"]}

    def execute(self, tup: storm.Tuple) -> None:
        n = tup["n"]
        self.emit([n])
        if n % 2:
            self.emit([n, "odd"], stream="odd")
        self.emit_direct(self.context.tasks("named")[n % 2], [n], stream="named")
        if n == 3:
            self.report_error(ValueError("three is suspicious"))


class Origins(Sink):
    def execute(self, tup: storm.Tuple) -> None:
        self.got.append((tup.source, tup.stream, tup.task, tup.fields, tup.values))


def test_a_basic_bolt_with_several_streams_is_acked_by_itself_and_may_complain() -> None:
    builder = storm.TopologyBuilder()
    builder.set_spout("numbers", Source("n"))
    builder.set_bolt("sort", Sort(), parallelism=2).fields_grouping("numbers", ["n"])
    builder.set_bolt("all", Origins()).global_grouping("sort").global_grouping("sort", stream="odd")
    builder.set_bolt("named", Sink(), parallelism=2).direct_grouping("sort", stream="named")
    driver = Driver(builder.create())
    ended = driver.batch({"numbers": [[n] for n in range(6)]}, now=SECOND)
    assert ended == [(0, n, COMPLETE) for n in range(6)]
    tasks = set(driver.topology.tasks_of("sort"))
    assert {task for _, _, task, _, _ in driver.got("all")} <= tasks
    assert sorted((stream, fields, values) for _, stream, _, fields, values in driver.got("all")) == [
        *(("default", ("n",), (n,)) for n in range(6)),
        *(("odd", ("n", "word"), (n, "odd")) for n in (1, 3, 5)),
    ]
    assert [sorted(task.got) for task in driver.instances("named")] == [[(0,), (2,), (4,)], [(1,), (3,), (5,)]]
    [error] = [error for _, _, outcome in driver.outputs for error in outcome.errors]
    assert (error.component, error.error, error.time) == ("sort", "ValueError: three is suspicious", SECOND)
    assert error.task in tasks


class Ticked(storm.Bolt):
    def prepare(self, context: storm.TopologyContext) -> None:
        self.ticks: list[tuple[str, str, int]] = []

    def execute(self, tup: storm.Tuple) -> None:
        assert tup.is_tick
        self.ticks.append((tup.source, tup.stream, tup["period"]))
        self.ack(tup)  # as many bolts of Storm do; nobody waits for it


@pytest.mark.parametrize("guarantee", ["at_least_once", "at_most_once"])
def test_all_bolts_tick_as_the_settings_say_but_those_with_a_tick_of_their_own(guarantee: Any) -> None:
    builder = storm.TopologyBuilder()
    builder.set_spout("words", Source("word"))
    builder.set_bolt("often", Ticked(), tick="1s").shuffle_grouping("words")
    builder.set_bolt("seldom", Ticked(), parallelism=2).shuffle_grouping("words")
    driver = Driver(builder.create(), storm.Config(tick="5s", guarantee=guarantee))
    for second in range(11):
        assert driver.batch({}, now=second * SECOND) == []
        driver.restart()
    assert [len(each.ticks) for each in driver.instances("often")] == [10]
    assert [each.ticks for each in driver.instances("seldom")] == [[("__system", "__tick", 5 * SECOND)] * 2] * 2
