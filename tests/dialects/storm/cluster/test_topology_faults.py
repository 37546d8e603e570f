"""Topologies that are aborted at commit boundaries, dozens of times, and do what a naive reference says.

A spout emits numbers, a bolt counts them by their keys, bears some of them never and some not at first. Aborted is the
stream, in the driver or in a worker, or a host of the spout, which is as if the driver had crashed.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from headrace import storm
from headrace.dialects.storm.cluster import runningtopology
from headrace.dialects.storm.cluster.pending import PendingTuples
from headrace.dialects.storm.cluster.spouthost import SpoutHost
from headrace.dialects.storm.cluster.spoutlog import SpoutLog
from headrace.engine.stream.delivery import Delivery
from headrace.log import Log
from tests.engine.stream.test_faults import Abort, Faults
from tests.scale import FULL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EACH: Final = 24 if FULL else 12  # numbers of each of the spout's two tasks
RETRIES: Final = 1

IN_THE_STREAM: Final = (
    "begin",
    "before out",
    *(("after out", "before acks") if FULL else ()),  # these topics are written in the same way
    "after acks",
    *(("before errors", "after errors") if FULL else ()),
    "end",
)
IN_WORKERS: Final = ("sending", "shard", "state", "death")
IN_HOSTS: Final = ("before append", "after append", "outcome", "before save", "after save")


class Numbers(storm.Spout):
    """Emits numbers that no other task emits, and their keys."""

    fields = ("n", "key")

    def open(self, context: storm.TopologyContext) -> None:
        self.at = 0

    def next_tuple(self) -> None:
        if self.at < EACH:
            n = 2 * self.at + self.context.index
            self.emit([n, n % 5], message_id=n)
            self.at += 1


class Visit:
    """Something that comes by a place of the faults when it is asked to, or pickled."""

    def __init__(self, folder: Path, place: str) -> None:
        self.folder, self.place = folder, place

    def __call__(self) -> None:
        Faults(self.folder, ()).visit(self.place)

    def __getstate__(self) -> dict[str, Any]:
        if self.place == "state":
            self()
        return vars(self)


class ByKey(storm.CustomGrouping):
    """Groups by the key. An abort is not its error: called again, it answers."""

    def __init__(self, folder: Path) -> None:
        self.visit = Visit(folder, "sending")

    def choose(self, values: tuple[Any, ...], tasks: int) -> list[int]:
        self.visit()
        return [values[1] % tasks]


class Count(storm.ToTopic):
    """Writes what it bears, with how often it saw that and how many of the key it has borne."""

    def __init__(self, folder: Path) -> None:
        super().__init__("counts", log=str(folder / "results"))
        self.folder = folder

    def prepare(self, context: storm.TopologyContext) -> None:
        self.seen: dict[int, int] = {}
        self.counts: dict[int, int] = {}

    def execute(self, tup: storm.Tuple) -> None:
        try:
            Visit(self.folder, "death")()
        except Abort:
            os._exit(1)
        n, key = tup["n"], tup["key"]
        self.seen[n] = self.seen.get(n, 0) + 1
        if self.seen[n] <= refusals(n):
            raise ValueError(f"cannot bear {n}")
        self.counts[key] = self.counts.get(key, 0) + 1
        self._write({"n": n, "seen": self.seen[n], "key": key, "count": self.counts[key]})

    def take_rows(self) -> list[str]:
        Visit(self.folder, "shard")()
        self.state = Visit(self.folder, "state")  # which is written next
        return super().take_rows()


def refusals(n: int) -> int:
    """How often a number is refused."""
    return {3: 1, 5: RETRIES + 1}.get(n % 8, 0)


class Points(Faults):
    """Faults whose points are places and how often they were passed: what a batch has differs from run to run."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        super().__init__(folder, IN_WORKERS)
        self.passes = Counter[str]()
        self.aborted: list[str] = []
        self._lock = threading.Lock()

    def reach(self, place: str) -> None:
        if self._due(place):
            raise Abort(self.aborted[-1])

    def begin(self, batch: int) -> None:
        self.reach("begin")
        for place in self.workers:
            if not list(self.folder.glob("armed *")) and self._due(place):
                (self.folder / f"armed {place}").write_text(self.aborted[-1])

    def _due(self, place: str) -> bool:
        with self._lock:
            self.passes[place] += 1
            point = f"{place}, pass {self.passes[place]}"
            if point not in self.planned:
                return False
            self.planned.discard(point)
            self.aborted.append(point)
            return True

    def install(self, patch: pytest.MonkeyPatch) -> None:
        deliver, to = Delivery.__call__, Delivery._to

        def delivering(delivery: Delivery, frame: DataFrame, batch: int) -> None:
            self.begin(batch)
            deliver(delivery, frame, batch)
            self.reach("end")

        def writing(delivery: Delivery, outlet: Any, *rest: Any) -> None:
            place = {"count/write": "out", "__acker/write": "acks", "__errors/write": "errors"}[outlet.node.label]
            self.reach(f"before {place}")
            to(delivery, outlet, *rest)
            self.reach(f"after {place}")

        patch.setattr(Delivery, "__call__", delivering)
        patch.setattr(Delivery, "_to", writing)
        patch.setattr(SpoutLog, "append", self._around(SpoutLog.append, "before append", "after append"))
        patch.setattr(PendingTuples, "save", self._around(PendingTuples.save, "before save", "after save"))
        patch.setattr(SpoutHost, "_ack", self._around(SpoutHost._ack, "outcome"))

    def _around(self, method: Callable[..., Any], before: str, after: str | None = None) -> Callable[..., Any]:
        def called(*args: Any, **options: Any) -> Any:
            self.reach(before)
            result = method(*args, **options)
            if after is not None:
                self.reach(after)
            return result

        return called


def topology(folder: Path) -> storm.Topology:
    builder = storm.TopologyBuilder()
    builder.set_spout("numbers", Numbers(), parallelism=2)
    builder.set_bolt("count", Count(folder), parallelism=2).custom_grouping("numbers", ByKey(folder))
    return builder.create()


def over(cluster: storm.LocalCluster) -> bool:
    """Whether every tuple is in the log, known to its host, and waited for no more."""
    return all(
        sum(each.tracked and not each.attempt for each in host.log.read(0)) == EACH
        and host.pending.emissions == host.log.end()
        and not len(host.pending)
        for host in cluster.running("t")._hosts.values()
    )


def crash(cluster: storm.LocalCluster) -> None:
    """The driver dies: hosts write nothing more down, and the stream stops wherever it is."""
    dead = cluster._running.pop("t")
    dead._stopping.set()
    for host in dead._hosts.values():
        host._stopping.set()
        assert host._thread is not None
        host._thread.join()
    dead._thread.join()
    dead.handle.stop()


def play(cluster: storm.LocalCluster, folder: Path, config: storm.Config, deadline: float) -> None:
    """Runs the topology to its end, and submits it again whenever its driver crashes."""
    cluster.submit("t", topology(folder), config)
    while not over(cluster):
        assert time.monotonic() < deadline, cluster.status("t")
        try:
            cluster.running("t").check()
            time.sleep(0.02)
        except Abort:
            crash(cluster)
            cluster.submit("t", topology(folder), config)


@pytest.mark.slow("a stream is restarted at every abort")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("guarantee", ["at_least_once", "effectively_once"])
def test_aborts_of_a_topology_leave_no_trace(
    guarantee: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "faults"
    points, first = Points(folder), guarantee == "at_least_once"
    places = [*IN_THE_STREAM, *IN_WORKERS, *IN_HOSTS]
    # Of the second guarantee every other place. Without FULL each place once: the second guarantee has some of the
    # hosts', as it differs in what they do about failures.
    second = {place for at, place in enumerate(places) if at % 2 and (FULL or place in IN_HOSTS)}
    chosen = [place for place in places if (FULL or place not in second if first else place in second)]
    plan = {f"{place}, pass {1 + (places.index(place) + first) % 3}" for place in chosen}
    points.planned = set(plan)
    points.install(monkeypatch)
    monkeypatch.setattr(runningtopology, "_MAX_RESTARTS", len(plan))
    config = storm.Config(guarantee=guarantee, max_spout_pending=4, max_retries=RETRIES, message_timeout="1 hour")  # type: ignore[arg-type]
    with storm.LocalCluster(tmp_path / "cluster", spark=spark) as cluster:
        play(cluster, folder, config, time.monotonic() + 600)
        survivor = cluster.running("t")

    retries = RETRIES if first else 0
    numbers = range(2 * EACH)
    done = [n for n in numbers if refusals(n) <= retries]
    rows = [record.value for record in Log(folder / "results").topic("counts").read(0)]
    assert sorted((row["n"], row["seen"]) for row in rows) == [(n, refusals(n) + 1) for n in done]
    assert Counter((row["key"], row["count"]) for row in rows) == Counter(
        (key, count + 1) for key, total in Counter(n % 5 for n in done).items() for count in range(total)
    )
    given_up = [(n, retries + 1) for n in numbers if refusals(n) > retries]
    assert sorted((letter.values[0], letter.attempts) for letter in survivor.dead_letters()) == given_up
    expected = Counter(f"ValueError: cannot bear {n}" for n in numbers for _ in range(min(refusals(n), retries + 1)))
    assert Counter(error.error for error in survivor.errors()) == expected
    assert sorted(points.aborted) == sorted(plan)
    assert not list(folder.glob("armed *"))
