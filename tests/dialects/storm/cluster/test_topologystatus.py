"""What a status counts, against the simplest way to count it: tuples of streams, percentiles, throttled time."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace import storm
from headrace.dialects.storm.api.groupings import describe_grouping
from headrace.dialects.storm.cluster.topologystatus import InputStatus, bolt_status, component_statuses, spout_status
from headrace.dialects.storm.graph.enginetasks import EngineBoltTask, rebalance_bolt
from tests.dialects.storm.cluster.test_spouthost import Numbers, World, outcome_at
from tests.dialects.storm.driver import Driver, Sink, Source
from tests.scale import examples


class Sort(storm.BasicBolt):
    """Sends odd numbers to another stream."""

    fields = ("n",)
    streams = {"odd": ["n"]}

    def execute(self, tup: storm.Tuple) -> None:
        self.emit([tup["n"]], stream="odd" if tup["n"] % 2 else "default")


def sorting() -> storm.Topology:
    builder = storm.TopologyBuilder()
    builder.set_spout("numbers", Source("n"), parallelism=2)
    builder.set_bolt("sort", Sort(), parallelism=2).shuffle_grouping("numbers")
    builder.set_bolt("all", Sink(), parallelism=3).fields_grouping("sort", ["n"]).all_grouping("sort", "odd")
    return builder.create()


@examples(20)
@given(st.lists(st.lists(st.integers(0, 9), max_size=8), max_size=5))
def test_streams_count_what_came_over_them(batches: list[list[int]]) -> None:
    driver, counts = Driver(sorting()), {(name, at): Counter[str]() for name in ("sort", "all") for at in range(3)}
    for numbers in batches:
        if numbers:
            driver.batch({"numbers": [[n] for n in numbers]})
            for name, index, outcome in driver.outputs:
                if name != "numbers":
                    counts[name, index].update(outcome.counts.received)
    counts_by_task = {
        name: [{f"from {stream}": n for stream, n in each.items()} for (of, _), each in counts.items() if of == name]
        for name in ("sort", "all")
    }
    numbers = [n for batch in batches for n in batch]
    odd = sum(n % 2 for n in numbers)
    spout, sort, all_ = component_statuses(driver.topology, counts_by_task)
    assert (spout.id, spout.kind, spout.tasks, spout.inputs) == ("numbers", "spout", 2, ())
    assert sort.inputs == (InputStatus("numbers", "default", "shuffle", len(numbers)),)
    assert all_.inputs == (
        InputStatus("sort", "default", "fields n", len(numbers) - odd),
        InputStatus("sort", "odd", "all", 3 * odd),
    )


def test_the_counts_of_a_task_outlive_it_and_a_rebalance() -> None:
    topology, config = sorting(), storm.Config()
    driver = Driver(topology)
    driver.batch({"numbers": [[1], [2], [3]]})
    [sent] = [sent for name, _, outcome in driver.outputs if name == "numbers" for sent in outcome.batches][:1]
    task = EngineBoltTask(topology, config, "sort", 1, 0)
    list(task.run([sent.batch], 0))
    blocks = task.changes()
    counted = task.counts()
    assert counted["from numbers default"] == counted["queued"] == counted["executed"] == sent.batch.num_rows > 0
    assert bolt_status("sort", 2, counted).queued == sent.batch.num_rows
    assert bolt_status("sort", 2, {}).queued is None  # nothing is known yet
    list(task.run([], 0))
    assert task.counts() == {**counted, "queued": 0, "seconds": task.counts()["seconds"]}
    for again in (blocks, rebalance_bolt(topology, config, "sort", [blocks, []], 3)[0]):
        other = EngineBoltTask(topology, config, "sort", 1, 0)
        other.load(again)
        assert other.counts() == {**counted, "queued": 0}


@given(st.lists(st.floats(0, 100), max_size=40))
def test_percentiles_are_of_what_was_measured(seconds: list[float]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        host = World(Path(folder), Numbers()).host()
        host.counts.latest.extend(seconds)
        status = spout_status(host)
        for share, quantile in ((0.5, status.complete_p50_ms), (0.99, status.complete_p99_ms)):
            enough = [each for each in seconds if sum(other <= each for other in seconds) >= share * len(seconds)]
            assert quantile == (1000 * min(enough) if enough else None)


STEPS = st.lists(
    st.tuples(st.integers(0, 9), st.sampled_from(["turn", "ack", "activate", "deactivate"])), min_size=1, max_size=30
)


@examples(40)
@given(STEPS)
def test_a_spout_is_throttled_from_the_turn_that_finds_no_room_to_the_one_that_does(
    steps: list[tuple[int, str]],
) -> None:
    """At every turn it is full or not; from one that finds it full to the next that does not, it was throttled."""
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), Numbers(), max_spout_pending=2)
        host, expected, throttled = world.host(), 0, False
        for number, (passes, what) in enumerate(steps):
            world.now += passes * 1_000_000
            expected += passes if throttled else 0
            if what == "ack":
                host.outcomes.put(outcome_at(number, acked=tuple(host.pending.tuples)[:1]))
            elif what != "turn":
                host.active = what == "activate"
            acked = 1 if what == "ack" and len(host.pending) else 0
            throttled = host.active and len(host.pending) - acked == 2
            host.turn()
            status = spout_status(host)
            assert (status.throttled, status.throttled_seconds) == (throttled, expected)


def test_groupings_have_names() -> None:
    class ByHand(storm.CustomGrouping):
        pass

    declarer: Any = storm.TopologyBuilder().set_bolt("b", Sink())
    declarer.shuffle_grouping("a").fields_grouping("b", ["x", "y"]).partial_key_grouping("c", ["x"]).all_grouping("d")
    declarer.global_grouping("e").direct_grouping("f").local_or_shuffle_grouping("g").none_grouping("h")
    declarer.custom_grouping("i", ByHand())
    assert [describe_grouping(each.grouping) for each in declarer.inputs] == [
        "shuffle",
        "fields x, y",
        "partial key x",
        "all",
        "global",
        "direct",
        "local or shuffle",
        "none",
        "custom ByHand",
    ]


def test_a_status_can_be_written_down() -> None:
    [spout, *_] = component_statuses(sorting(), {})
    assert asdict(spout) == {"id": "numbers", "kind": "spout", "tasks": 2, "inputs": ()}
