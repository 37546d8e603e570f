"""From a spout to the tasks that read of it: through the host, a real log, and what sends records on."""

from __future__ import annotations

import copy
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace import storm
from headrace.dialects.storm.cluster.spouthost import SpoutHost
from headrace.dialects.storm.cluster.spoutlog import SpoutLog
from headrace.dialects.storm.graph.enginetasks import ACKER, ERRORS, SpoutSender
from headrace.dialects.storm.task.loggedtuple import WAKE
from headrace.log import Log
from tests.dialects.storm.cluster.test_spouthost import outcome_at
from tests.dialects.storm.driver import Sink

SECOND = 1_000_000


class Scripted(storm.Spout):
    """Emits what the test puts in front of it."""

    fields = ("n",)
    streams = {"other": ["n", "word"], "named": ["n"]}

    def open(self, context: storm.TopologyContext) -> None:
        self.script: list[str] = []
        self.n = 0

    def next_tuple(self) -> None:
        if not self.script:
            return
        self.n += 1
        match self.script.pop(0):
            case "default":
                self.emit([self.n], message_id=self.n)
            case "other":
                self.emit([self.n, "same"], message_id=self.n, stream="other")
            case "named":
                tasks = self.context.tasks("chosen")
                self.emit_direct(tasks[self.n % len(tasks)], [self.n], message_id=self.n, stream="named")
            case "untracked":
                self.emit([self.n])


class World:
    """A spout of two tasks, read in several ways; tasks of the stream are made anew whenever the test says so."""

    def __init__(self, **config: Any) -> None:
        self.config = storm.Config(**{"max_retries": 9, **config})
        builder = storm.TopologyBuilder()
        builder.set_spout("spout", Scripted(), parallelism=2)
        builder.set_bolt("turns", Sink(), parallelism=3).shuffle_grouping("spout")
        builder.set_bolt("others", Sink(), parallelism=2).shuffle_grouping("spout", stream="other")
        builder.set_bolt("two", Sink(), parallelism=8).partial_key_grouping("spout", ["word"], stream="other")
        builder.set_bolt("chosen", Sink(), parallelism=3).direct_grouping("spout", stream="named")
        self.topology = builder.create()
        self.folder = Path(tempfile.mkdtemp())
        self.topic = Log(self.folder / "log").create("spout", partitions=2)
        self.now, self.read = 0, [0, 0]
        self.outcomes = [0, 0]
        self.hosts = [self.host(index) for index in range(2)]
        self.sent: dict[tuple[str, int], Counter[int]] = defaultdict(Counter)  # by reader and task of the spout
        self.got: dict[str, list[tuple[int, Any]]] = defaultdict(list)
        self.begun = 0

    def host(self, index: int) -> SpoutHost:
        return SpoutHost(
            copy.deepcopy(self.topology.node("spout").component),  # type: ignore[arg-type]
            storm.TopologyContext(self.topology, self.config, "spout", index),
            SpoutLog(self.topic, index),
            self.folder / str(index),
            read_to=lambda: self.read[index],
            report=lambda errors: None,
            bury=lambda letters: None,
            clock=lambda: self.now,
            wakes=lambda: SECOND,
        )

    def send(self, index: int, bundles: int) -> None:
        """What is new of a task of the spout goes on its way, in so many parts."""
        records = [record.value for record in self.topic.read(index, self.read[index])]
        self.read[index] += len(records)
        sending = SpoutSender(self.topology, self.config, "spout", ackers=2)
        sending.setup()
        for part in range(bundles):
            size = -(-len(records) // bundles)
            sending.start_bundle()
            for record in records[part * size : (part + 1) * size]:
                sending.process(record)
            for output in sending.finish_bundle():
                task, batch = output.value
                if output.tag == ACKER:
                    self.begun += batch.num_rows
                else:
                    assert output.tag != ERRORS
                    self.sent[output.tag, index][task] += batch.num_rows
                    self.got[output.tag] += [(task, n) for n in batch.column("n").to_pylist()]


steps = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.one_of(
            st.lists(st.sampled_from(["default", "other", "named", "untracked"]), min_size=1, max_size=5),
            st.sampled_from(["wake", "fail", "restart"]),
        ),
        st.integers(1, 3),
    ),
    max_size=25,
)


@given(steps)
def test_a_shuffle_is_even_whatever_else_a_spout_emits(script: list[Any]) -> None:
    """Other streams, replays, restarts and what only wakes the stream take places in the log, but no turns."""
    world = World()
    for index, step, bundles in script:
        host = world.hosts[index]
        match step:
            case list():
                host.spout.script = list(step)  # type: ignore[attr-defined]
                host.turn()
            case "wake":
                world.now += SECOND
                host.turn()
            case "fail":
                host.outcomes.put(outcome_at(world.outcomes[index], failed=tuple(host.pending.tuples)[:1]))
                world.outcomes[index] += 1
                host.turn()
            case "restart":
                world.hosts[index] = world.host(index)
        world.send(index, bundles)
        for reader, tasks in (("turns", 3), ("others", 2)):
            counts = [world.sent[reader, index][task] for task in range(tasks)]
            assert max(counts) - min(counts) <= 1
    logged = [record.value for index in range(2) for record in world.topic.read(index)]
    emitted = Counter(record[2] for record in logged)
    assert emitted["default"] == len(world.got["turns"])
    assert emitted["other"] == len(world.got["others"]) == len(world.got["two"])
    assert sorted(world.got["chosen"]) == sorted(
        (n[0] % 3, n[0]) for _, _, stream, n, *_ in logged if stream == "named"
    )
    assert world.begun == sum(message is not None for _, _, stream, _, message, *_ in logged if stream != WAKE)


def test_few_tuples_of_each_task_are_spread_as_well() -> None:
    world = World()
    for index, host in enumerate(world.hosts):
        host.spout.script = ["default"]  # type: ignore[attr-defined]
        host.turn()
        world.send(index, 1)
    assert len({task for task, _ in world.got["turns"]}) == 2


def test_a_key_has_two_tasks_that_share_it_also_one_tuple_at_a_time() -> None:
    world = World()
    for _ in range(20):
        world.hosts[0].spout.script = ["other"]  # type: ignore[attr-defined]
        world.hosts[0].turn()
        world.send(0, 1)
    assert sorted(world.sent["two", 0].values()) == [10, 10]
