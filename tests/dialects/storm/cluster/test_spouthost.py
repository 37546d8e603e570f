"""Hosts of spouts, turn by turn, on a real log and a clock of the test: what they emit, replay and store."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import storm
from headrace.dialects.storm.api.failures import ErrorReport
from headrace.dialects.storm.cluster import spouthost
from headrace.dialects.storm.cluster.deadlettertopic import DeadLetterWriter, read_dead_letters
from headrace.dialects.storm.cluster.pending import PendingTuples
from headrace.dialects.storm.cluster.spouthost import SpoutHost
from headrace.dialects.storm.cluster.spoutlog import SpoutLog
from headrace.dialects.storm.graph.topologytopics import TopologyTopics
from headrace.dialects.storm.task.loggedtuple import WAKE, LoggedTuple
from headrace.dialects.storm.task.treeoutcomes import TreeOutcomes
from headrace.log import Log, LogError

SECOND = 1_000_000


def outcome_at(
    offset: int, acked: tuple[int, ...] = (), failed: tuple[int, ...] = (), timed_out: tuple[int, ...] = ()
) -> tuple[int, TreeOutcomes]:
    """Outcomes of the first spout task, with the offset of their record."""
    return offset, TreeOutcomes(0, acked, failed, timed_out)


class Numbers(storm.Spout):
    """Emits 1, 2, 3, ... and stores the calls it got. The number it has emitted is its state."""

    fields = ("n",)
    transient = ("calls",)
    most = 10**9

    def open(self, context: storm.TopologyContext) -> None:
        self.n = 0
        self.calls: list[tuple[str, Any]] = []

    def next_tuple(self) -> None:
        if self.n < self.most:
            self.n += 1
            self.emit([self.n], message_id=self.n)

    def ack(self, message_id: Any) -> None:
        self.calls.append(("ack", message_id))

    def activate(self) -> None:
        self.calls.append(("activate", None))

    def deactivate(self) -> None:
        self.calls.append(("deactivate", None))

    def close(self) -> None:
        self.calls.append(("close", None))


class Few(Numbers):
    most = 3


class Print(storm.Bolt):
    pass


class World:
    """A spout host with its log, its clock and its dead letters."""

    def __init__(
        self,
        folder: Path,
        spout: storm.Spout,
        bolt: storm.Bolt | None = None,
        grouping: storm.CustomGrouping | None = None,
        **config: Any,
    ) -> None:
        self.folder, self.spout, self.config = folder, spout, storm.Config(**config)
        builder = storm.TopologyBuilder()
        builder.set_spout("numbers", spout)
        reader = builder.set_bolt("print", bolt or Print())
        reader.custom_grouping("numbers", grouping) if grouping else reader.shuffle_grouping("numbers")
        self.topology = builder.create()
        log = Log(folder / "log")
        self.topic = log.create("numbers") if "numbers" not in log.topics() else log.topic("numbers")
        self.now, self.read_to = 0, 0
        self.errors: list[ErrorReport] = []
        self.dead = log.create("dead") if "dead" not in log.topics() else log.topic("dead")

    def host(self, wakes: Callable[[], int | None] = lambda: None) -> SpoutHost:
        return SpoutHost(
            copy.deepcopy(self.spout),
            storm.TopologyContext(self.topology, self.config, "numbers", 0),
            SpoutLog(self.topic, 0),
            self.folder / "host",
            read_to=lambda: self.read_to,
            report=self.errors.extend,
            bury=DeadLetterWriter(self.dead, "numbers-0", lambda: self.now).append,
            clock=lambda: self.now,
            wakes=wakes,
        )

    @property
    def letters(self) -> list[storm.DeadLetter]:
        return read_dead_letters(self.dead)

    def logged(self) -> list[LoggedTuple]:
        return [LoggedTuple.read(record.value) for record in self.topic.read(0)]

    def values(self) -> list[int]:
        return [each.values[0] for each in self.logged() if each.stream != WAKE]


@pytest.fixture
def make_world(tmp_path: Path) -> Callable[..., World]:
    return lambda spout, **config: World(tmp_path, spout, **config)


def calls(host: SpoutHost) -> list[tuple[str, Any]]:
    """Returns the calls of the spout after its activation."""
    first, *rest = host.spout.calls  # type: ignore[attr-defined]
    assert first == ("activate", None)
    return rest


def test_no_more_is_under_way_than_may_be(make_world: Callable[..., World]) -> None:
    host = make_world(Numbers(), max_spout_pending=5).host()
    assert host.turn()
    assert len(host.pending) == 5
    assert not host.turn()
    host.outcomes.put(outcome_at(0, acked=(0, 3)))
    host.turn()
    assert calls(host) == [("ack", 1), ("ack", 4)]
    assert sorted(host.pending.tuples) == [1, 2, 4, 5, 6]


def test_a_stream_that_is_behind_slows_spouts_that_nobody_acks(make_world: Callable[..., World]) -> None:
    world = make_world(Numbers(), guarantee="at_most_once")
    host = world.host()
    for _ in range(2 * spouthost.MAX_UNREAD // 1000):
        host.turn()
    assert host.log.end() == spouthost.MAX_UNREAD
    world.read_to = 700
    host.turn()
    assert host.log.end() == spouthost.MAX_UNREAD + 700
    assert calls(host)[:2] == [("ack", 1), ("ack", 2)]


def test_what_failed_is_replayed_and_at_last_given_up(make_world: Callable[..., World]) -> None:
    world = make_world(Few(), max_retries=2)
    host = world.host()
    host.turn()
    host.outcomes.put(outcome_at(0, acked=(0, 2), failed=(1,)))
    host.turn()
    host.outcomes.put(outcome_at(1, timed_out=(3,)))
    host.turn()
    assert [(each.values, each.attempt, each.original) for each in world.logged()[3:]] == [((2,), 1, 1), ((2,), 2, 1)]
    assert world.letters == []
    host.outcomes.put(outcome_at(2, failed=(4,)))
    host.turn()
    letter = storm.DeadLetter("numbers", 0, (2,), 2, attempts=3, why="failed")
    assert world.letters == [letter]
    assert calls(host) == [("ack", 1), ("ack", 3)]
    assert (host.counts.failed, host.counts.replayed, host.counts.dead, len(host.pending)) == (3, 2, 1, 0)


def test_a_spout_that_fails_by_itself_replays_by_itself(make_world: Callable[..., World]) -> None:
    class Own(Few):
        def fail(self, message_id: Any) -> None:
            self.calls.append(("fail", message_id))
            self.emit([message_id * 100], message_id=message_id)

    world = make_world(Own())
    host = world.host()
    host.turn()
    host.outcomes.put(outcome_at(0, failed=(1,)))
    host.turn()
    assert calls(host) == [("fail", 2)]
    assert world.values() == [1, 2, 3, 200]
    assert world.letters == []


def test_effectively_once_replays_nothing(make_world: Callable[..., World]) -> None:
    world = make_world(Few(), guarantee="effectively_once")
    host = world.host()
    host.turn()
    host.outcomes.put(outcome_at(0, failed=(1,)))
    host.turn()
    assert world.values() == [1, 2, 3]
    assert [letter.values for letter in world.letters] == [(2,)]


def test_errors_of_a_spout_are_reported_and_it_goes_on(make_world: Callable[..., World]) -> None:
    class Clumsy(Numbers):
        def next_tuple(self) -> None:
            super().next_tuple()
            if self.n % 2:
                raise ValueError(f"odd: {self.n}")

    world = make_world(Clumsy())
    host = world.host()
    host.turn()
    host.turn()
    assert world.errors[0].error == "ValueError: odd: 1"
    assert world.values()[:2] == [1, 2]  # what it had emitted before it failed counts


def test_nobody_else_may_append_to_a_spouts_topic(make_world: Callable[..., World]) -> None:
    world = make_world(Numbers(), max_spout_pending=1)
    host, other = world.host(), world.host()
    host.turn()
    with pytest.raises(LogError, match="something else has appended"):
        other.turn()


def test_a_spout_lives_as_in_storm(make_world: Callable[..., World]) -> None:
    world = make_world(Few())
    host = world.host()
    host.active = False  # before it has begun
    assert not host.turn()
    assert host.spout.calls == []  # type: ignore[attr-defined]
    host.active = True
    host.turn()
    host.active = False
    host.outcomes.put(outcome_at(0, acked=(0,)))  # what is under way goes on
    host.turn()
    assert not host.turn()
    host.active = True
    host.turn()
    host.stop()
    assert calls(host) == [("ack", 1), ("deactivate", None), ("activate", None), ("close", None)]
    assert world.values() == [1, 2, 3]


def test_it_has_not_settled_while_a_turn_emits_that_began_before(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or whoever kills the topology then would remove tuples that nobody has seen."""
    world, seen = make_world(Few()), []
    host, append = world.host(), SpoutLog.append

    def appending(log: SpoutLog, *args: Any, **options: Any) -> None:
        host.active = False
        seen.append(host.settled)
        append(log, *args, **options)

    monkeypatch.setattr(SpoutLog, "append", appending)
    host.turn()
    world.read_to = 3
    host.turn()
    host.outcomes.put(outcome_at(0, acked=(0, 1, 2)))
    seen.append(host.settled)
    host.turn()
    assert (seen, host.settled) == ([False, False], True)


def test_time_passes_for_those_who_wait_for_it(make_world: Callable[..., World]) -> None:
    world, waiting = make_world(Few()), True
    host = world.host(wakes=lambda: SECOND if waiting else None)
    host.turn()
    world.now, world.read_to = SECOND - 1, 3
    host.turn()
    assert len(world.logged()) == 3
    world.now, world.read_to = SECOND, 2  # there will be a micro-batch anyway
    host.turn()
    assert len(world.logged()) == 3
    world.read_to = 3
    host.turn()
    host.turn()
    assert [each.stream for each in world.logged()[3:]] == [WAKE]
    world.now, world.read_to, waiting = 3 * SECOND, 4, False
    host.turn()
    assert len(world.logged()) == 4


def test_a_host_that_starts_again_does_not_wait_for_a_stream_that_waits_for_it(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is new to a stream that has read everything: it has no micro-batch, and does not report its place."""
    monkeypatch.setattr(spouthost, "MAX_UNREAD", 10)
    world = make_world(Numbers(), max_spout_pending=10)
    host = world.host()
    for offset in range(3):
        host.turn()
        world.read_to = host.log.end()
        waiting = sorted(host.pending.tuples)
        host.outcomes.put(outcome_at(offset, acked=tuple(waiting if offset < 2 else waiting[:-2])))
        host.turn()
    host.active = False
    host.turn()
    emitted, world.read_to = len(world.values()), 0
    host = world.host(wakes=lambda: SECOND)
    assert (host.unread, len(host.pending)) == (host.log.end() - min(host.pending.tuples), 10)
    host.turn()
    assert len(world.values()) == emitted  # as much is under way as may be
    world.now = SECOND
    host.turn()
    world.now = 3 * SECOND
    host.turn()
    assert [each.stream for each in world.logged()[emitted:]] == [WAKE]  # or what was forgotten would never time out
    world.read_to = host.log.end()
    host.outcomes.put(outcome_at(3, timed_out=tuple(host.pending.tuples)))
    host.turn()
    host = world.host()
    host.outcomes.put(outcome_at(4, acked=tuple(host.pending.tuples)))
    world.read_to = 0
    host.turn()
    assert len(host.pending) == 10  # new ones: that it has emitted more than may be behind in all its life is no matter


class Died(Exception):
    pass


def test_a_crash_before_an_append_loses_nothing_and_repeats_nothing(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The spout's place is written down before its tuples; it counts only if they are there."""
    world = make_world(Numbers(), max_spout_pending=10)
    host = world.host()
    host.turn()

    def die(*_: Any, **__: Any) -> None:
        raise Died

    for _ in range(3):
        host.outcomes.put(outcome_at(0, acked=tuple(range(10))))
        with monkeypatch.context() as patch:
            patch.setattr(SpoutLog, "append", die)
            with pytest.raises(Died):
                host.turn()
        host = world.host()
    for offset in range(1, 4):
        host.outcomes.put(outcome_at(offset, acked=tuple(host.pending.tuples)))
        host.turn()
    assert world.values() == list(range(1, len(world.values()) + 1))
    assert len(world.values()) >= 30


steps = st.lists(
    st.one_of(st.just("turn"), st.just("crash"), st.tuples(st.sampled_from(["ack", "fail"]), st.integers(0, 9))),
    max_size=40,
)


@given(steps)
def test_nothing_is_lost_whenever_it_crashes(script: list[Any]) -> None:
    """Every tuple is acked, is under way, or is a dead letter; outcomes may come again after a crash."""
    import tempfile

    world = World(Path(tempfile.mkdtemp()), Numbers(), max_spout_pending=4, max_retries=1)
    host, outcomes, acked = world.host(), [], set()
    for step in script:
        if step == "turn":
            host.turn()
        elif step == "crash":
            host = world.host()
            for outcome in outcomes[host.pending.outcomes :]:
                host.outcomes.put(outcome)
        elif host.pending.tuples:
            what, which = step
            place = sorted(host.pending.tuples)[which % len(host.pending.tuples)]
            emission = world.logged()[place]
            acked |= {emission.values[0]} if what == "ack" else set()
            outcome = outcome_at(len(outcomes), **{"acked" if what == "ack" else "failed": (place,)})
            outcomes.append(outcome)
            host.outcomes.put(outcome)
            host.turn()
    under_way = {world.logged()[place].values[0] for place in host.pending.tuples}
    dead = {letter.values[0] for letter in world.letters}
    emitted = set(world.values())
    assert emitted == set(range(1, len(emitted) + 1))
    assert acked | under_way | dead == emitted
    assert not acked & under_way
    assert not dead & under_way
    attempts = {(each.original, each.attempt) for each in world.logged() if each.attempt}
    assert len(attempts) == sum(each.attempt > 0 for each in world.logged())  # no replay came twice


def test_what_was_waited_for_is_written_down(tmp_path: Path) -> None:
    pending = PendingTuples()
    first = LoggedTuple(0, 0, "default", (1,), "a")
    pending.add([first, LoggedTuple(0, 1, "default", (2,), "b")])
    pending.add([first.replay(2)])
    pending.outcomes = 7
    pending.save(tmp_path / "pending.json")
    assert PendingTuples.load(tmp_path / "pending.json") == pending


def test_a_spout_keeps_the_number_of_its_tasks(tmp_path: Path) -> None:
    def topology(tasks: int) -> storm.Topology:
        builder = storm.TopologyBuilder()
        builder.set_spout("numbers", Numbers(), parallelism=tasks)
        return builder.create()

    topics = TopologyTopics("t", str(tmp_path))
    topics.create(topology(2))
    topics.create(topology(2))
    with pytest.raises(storm.TopologyError, match="has partitions for 2 tasks, but the spout has 3"):
        topics.create(topology(3))
