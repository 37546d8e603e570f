"""Hosts of spouts that crash at any write, or cannot write at all: nothing is lost, and nothing comes twice unasked."""

from __future__ import annotations

import errno
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import storm
from headrace.dialects.storm.cluster import pending, spouthost
from headrace.dialects.storm.cluster.spouthost import SpoutHost
from headrace.dialects.storm.task.acker import COMPLETE, FAILED
from headrace.dialects.storm.task.treeoutcomes import TreeOutcomes
from headrace.log.partitions import Partition
from tests.dialects.storm.cluster.test_spouthost import Numbers, World, outcome_at
from tests.dialects.storm.driver import Driver, Sink, Source
from tests.scale import examples

WRITES: list[tuple[Any, str]] = [(Partition, "append"), (spouthost, "replace_file"), (pending, "replace_file")]
"""How a host writes tuples, errors and letters; the spout's attributes; and what it waits for."""


class Crash(Exception):
    pass


class Crashing:
    """Lets a host crash before or after some of its writes: `plan` has how many come before each crash."""

    def __init__(self, plan: list[tuple[int, str]]) -> None:
        self.plan, self.crashes = list(plan), 0

    @contextmanager
    def installed(self) -> Iterator[None]:
        with ExitStack() as stack:
            stack.enter_context(patch("os.fsync"))  # it is processes that crash here, not machines
            for owner, name in WRITES:
                stack.enter_context(patch.object(owner, name, self._around(getattr(owner, name))))
            yield

    def _around(self, write: Callable[..., Any]) -> Callable[..., Any]:
        def writing(*args: Any, **options: Any) -> Any:
            due = self._due()
            if due == "before":
                raise Crash
            done = write(*args, **options)
            if due == "after":
                raise Crash
            return done

        return writing

    def _due(self) -> str | None:
        if not self.plan:
            return None
        left, when = self.plan[0]
        if left:
            self.plan[0] = left - 1, when
            return None
        self.plan.pop(0)
        self.crashes += 1
        return when


class Engine:
    """What is behind the log, and never crashes here: judges tuples in order; each number fails as often as is said."""

    def __init__(self, world: World, fails: dict[int, int]) -> None:
        self.world, self.fails = world, fails
        self.outcomes: list[tuple[int, TreeOutcomes]] = []
        self.judged = Counter[int]()
        self.acked = Counter[int]()

    def step(self, most: int) -> tuple[int, TreeOutcomes] | None:
        new = self.world.logged()[self.world.read_to :][:most]
        if not new:
            return None
        outcomes: dict[str, list[int]] = {"acked": [], "failed": []}
        for each in new:
            number = each.values[0]
            outcomes["failed" if self.judged[number] < self.fails[number] else "acked"].append(each.sequence)
            self.acked[number] += self.judged[number] >= self.fails[number]
            self.judged[number] += 1
        self.world.read_to += len(new)
        self.outcomes.append(outcome_at(len(self.outcomes), tuple(outcomes["acked"]), tuple(outcomes["failed"])))
        return self.outcomes[-1]


class Played:
    """A spout from its first tuple to its last outcome, through crashes."""

    def __init__(self, world: World, engine: Engine, crashing: Crashing, most: int) -> None:
        self.engine, self.calls = engine, list[Any]()
        host: SpoutHost | None = None
        quiet = 0
        with crashing.installed():
            while quiet < 2:
                try:
                    if host is None:
                        host = world.host()
                        for outcome in engine.outcomes[host.pending.outcomes :]:
                            host.outcomes.put(outcome)
                    did = host.turn()
                    if (outcome := engine.step(most)) is not None:
                        host.outcomes.put(outcome)
                    quiet = 0 if did or outcome is not None else quiet + 1
                except Crash:
                    self.calls += host.spout.calls if host is not None else []  # type: ignore[attr-defined]
                    host, quiet = None, 0
        assert host is not None
        self.host = host
        self.calls += host.spout.calls  # type: ignore[attr-defined]


class Six(Numbers):
    most = 6


plans = st.lists(st.tuples(st.integers(0, 15), st.sampled_from(["before", "after"])), max_size=8)
failures = st.lists(st.integers(0, 3), min_size=6, max_size=6).map(lambda times: dict(enumerate(times, 1)))


@given(plans, failures, st.integers(1, 4), st.sampled_from(["at_least_once", "effectively_once"]))
@examples(100)
def test_a_host_that_crashes_does_what_one_does_that_lives(
    plan: list[tuple[int, str]], fails: dict[int, int], most: int, guarantee: str
) -> None:
    """The log, the letters and the acks of a naive reference: each number is tried until it is done or given up."""
    retries = 2 if guarantee == "at_least_once" else 0
    tries = [(number, attempt) for number, failed in fails.items() for attempt in range(min(failed, retries) + 1)]
    done = {number for number, failed in fails.items() if failed <= retries}
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), Six(), max_spout_pending=3, max_retries=2, guarantee=guarantee)
        played = Played(world, Engine(world, fails), Crashing(plan), most)
        assert Counter((each.values[0], each.attempt) for each in world.logged()) == Counter(tries)
        letters = [(letter.values[0], letter.attempts) for letter in world.letters]
        assert sorted(letters) == [(number, retries + 1) for number in sorted(set(fails) - done)]
        assert {number for what, number in played.calls if what == "ack"} == done
        assert not played.host.pending.tuples


class Own(Six):
    """Keeps a list of what is not done, and emits again what failed."""

    def open(self, context: storm.TopologyContext) -> None:
        super().open(context)
        self.left = set(range(1, self.most + 1))

    def ack(self, message_id: Any) -> None:
        super().ack(message_id)
        self.left.discard(message_id)

    def fail(self, message_id: Any) -> None:
        self.emit([message_id], message_id=message_id)


@given(plans, failures, st.integers(1, 4))
@examples(60)
def test_what_a_spout_makes_of_outcomes_survives_crashes(
    plan: list[tuple[int, str]], fails: dict[int, int], most: int
) -> None:
    """It gets outcomes once more rather than once too few, and remembers what it made of them."""
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), Own(), max_spout_pending=3)
        played = Played(world, Engine(world, fails), Crashing(plan), most)
        assert set(played.engine.acked) == set(fails)
        assert played.host.spout.left == set()  # type: ignore[attr-defined]
        assert not world.letters
        assert not played.host.pending.tuples


def full(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(("owner", "name"), WRITES)
def test_a_full_disk_is_told_and_the_host_goes_on_when_there_is_room(
    owner: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, Numbers(), max_spout_pending=4, max_retries=1)
    host = world.host()
    host.turn()
    # One is given up, one is emitted again, and then there is no room for what follows.
    outcomes = [outcome_at(0, failed=(0,)), outcome_at(1, acked=(1,), failed=(4, 2)), outcome_at(2, acked=(3, 5))]
    host.outcomes.put(outcomes[0])
    host.turn()
    host.outcomes.put(outcomes[1])
    with monkeypatch.context() as patched:
        patched.setattr(owner, name, full)
        host._run()
        assert isinstance(host.failure, storm.TopologyError)
        assert "task 0, cannot write to its log or to" in str(host.failure)
        assert "No space left on device; correct that, and submit the topology again" in str(host.failure)
        host.stop()
    host = world.host()
    for outcome in outcomes[host.pending.outcomes :]:
        host.outcomes.put(outcome)
        host.turn()
    emitted = [each.values[0] for each in world.logged() if not each.attempt]
    assert emitted == list(range(1, len(emitted) + 1))
    assert [(each.values[0], each.attempt) for each in world.logged() if each.attempt] == [(1, 1), (3, 1)]
    assert [letter.values for letter in world.letters] == [(1,)]


def test_a_disk_that_is_full_when_a_host_is_stopped_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = World(tmp_path, Six()).host()
    host.turn()
    monkeypatch.setattr(pending, "replace_file", full)
    host.stop()
    assert "No space left" in str(host.failure)


class Strange(Numbers):
    """Of what it emits the log does not know every third value."""

    def next_tuple(self) -> None:
        if self.n < 9:
            self.n += 1
            self.emit([{self.n} if self.n % 3 == 0 else self.n], message_id=self.n)

    def fail(self, message_id: Any) -> None:
        self.calls.append(("fail", message_id))


@pytest.mark.parametrize("guarantee", ["at_least_once", "effectively_once", "at_most_once"])
def test_values_that_the_log_does_not_know_fail_and_the_others_go_on(guarantee: str, tmp_path: Path) -> None:
    world = World(tmp_path, Strange(), guarantee=guarantee)
    host = world.host()
    host.turn()
    assert world.values() == [1, 2, 4, 5, 7, 8]
    assert [letter.values for letter in world.letters] == [("{3}",), ("{6}",), ("{9}",)]
    assert {(letter.why, letter.attempts) for letter in world.letters} == {("unwritable", 0)}
    assert [what for what in host.spout.calls if what[0] == "fail"] == [("fail", n) for n in (3, 6, 9)]  # type: ignore[attr-defined]
    assert len(world.errors) == 3
    assert "values and message ids are values of JSON" in world.errors[0].error
    assert (host.counts.emitted, host.counts.failed, host.counts.dead, host.counts.errors) == (6, 3, 3, 3)
    assert not world.host().turn()  # it does not begin again


def test_of_a_great_many_errors_the_first_are_shown_and_all_are_counted(tmp_path: Path) -> None:
    class Useless(Numbers):
        def next_tuple(self) -> None:
            if self.n < 500:
                self.n += 1
                self.emit([self.n], message_id=object())

    world = World(tmp_path, Useless())
    host = world.host()
    host.turn()
    assert (len(world.errors), host.counts.errors, len(world.letters)) == (20, 500, 500)


def test_a_letter_says_which_stream_it_was_for(tmp_path: Path) -> None:
    class Lines(Numbers):
        streams: ClassVar[Any] = {"bad": ("line",)}

        def next_tuple(self) -> None:
            if not self.n:
                self.n = 1
                self.emit(["x"], message_id=1, stream="bad")

    world = World(tmp_path, Lines(), max_retries=0)
    host = world.host()
    host.turn()
    host.outcomes.put(outcome_at(0, failed=(0,)))
    host.turn()
    assert world.letters == [storm.DeadLetter("numbers", 0, ("x",), 1, attempts=1, why="failed", stream="bad")]


class Picky(storm.CustomGrouping):
    """Does not know where every fourth number belongs."""

    def choose(self, values: tuple[Any, ...], tasks: int) -> list[int]:
        if values[0] % 4 == 0:
            raise KeyError(f"where is {values[0]}?")
        return [values[0] % tasks]


def test_tuples_that_a_grouping_cannot_send_fail_and_nothing_is_lost(tmp_path: Path) -> None:
    world = World(tmp_path, Six(), Sink(), Picky(), max_spout_pending=3, max_retries=1)
    host, driver, offset = world.host(), Driver(world.topology, world.config), 0
    errors: list[str] = []
    while host.turn():
        new = list(host.log.read(world.read_to))
        if not new:
            continue
        world.read_to += len(new)
        ended = driver.batch({"numbers": [each.values for each in new]})
        errors += [error.error for _, _, output in driver.outputs for error in output.errors]
        outcomes = [tuple(place for _, place, verdict in ended if verdict == kind) for kind in (COMPLETE, FAILED)]
        host.outcomes.put(outcome_at(offset, *outcomes))
        offset += 1
    assert sorted(driver.got("print")) == [(n,) for n in (1, 2, 3, 5, 6)]
    assert sorted(number for what, number in host.spout.calls if what == "ack") == [1, 2, 3, 5, 6]  # type: ignore[attr-defined]
    assert [(letter.values, letter.why, letter.attempts) for letter in world.letters] == [((4,), "failed", 2)]
    assert errors == ["KeyError: 'where is 4?'"] * 2


def test_what_a_topic_cannot_take_fails_and_the_rest_is_written() -> None:
    builder = storm.TopologyBuilder()
    builder.set_spout("values", Source("value"))
    builder.set_bolt("write", storm.ToTopic("out", log="log")).global_grouping("values")
    driver = Driver(builder.create())
    ended = driver.batch({"values": [[1], [b"\x00"], [float("nan")], ["x"]]})
    assert [verdict for _, _, verdict in ended] == [COMPLETE, FAILED, FAILED, COMPLETE]
    errors = [error.error for _, _, output in driver.outputs for error in output.errors]
    assert ["the topic 'out' takes values of JSON" in error for error in errors] == [True, True]
    (bolt,) = driver.instances("write")
    assert bolt.take_rows() == ['{"value": 1}', '{"value": "x"}']
