"""Clusters without Spark: their topologies record the commands they get, and have a made-up status."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from headrace import storm
from headrace.dialects.storm.cluster.topologystatus import ComponentStatus, InputStatus, TaskStatus, TopologyStatus
from headrace.dialects.storm.graph.topologytopics import TopologyTopics
from headrace.log import Log

TOPOLOGY = """
from headrace import storm
class Words(storm.Spout):
    fields = ["word"]
class Print(storm.Bolt):
    pass
builder = storm.TopologyBuilder()
builder.set_spout("words", Words())
builder.set_bolt("print", Print()).shuffle_grouping("words")
topology = builder.create()
config = storm.Config(max_spout_pending=7)
"""
"""A file with a topology, as `headrace storm submit` takes it."""


class RecordingTopology:
    """A running topology that only records commands. To kill or rebalance it takes until `settled` is set."""

    def __init__(self, name: str) -> None:
        self.name, self.config = name, storm.Config()
        self.commands: list[Any] = []
        self.settled = threading.Event()
        self.active = True
        self.failure: Exception | None = None
        self.has_status = True

    def status(self) -> TopologyStatus:
        if not self.has_status:
            raise ConnectionError("the JVM is gone")
        state = "failed" if self.failure else "active" if self.active else "inactive"
        return TopologyStatus(
            self.name,
            state,  # type: ignore[arg-type]
            3,
            0.5,
            0,
            (TaskStatus("print", 1),),
            error=None if self.failure is None else str(self.failure),
        )

    def check(self) -> None:
        if self.failure is not None:
            raise self.failure

    def activate(self, active: bool = True) -> None:
        self.active = active
        self.commands.append("activate" if active else "deactivate")

    def rebalance(self, tasks: dict[str, int], wait: float) -> None:
        if "words" in tasks:
            raise storm.TopologyError("'words' is a spout")
        assert self.settled.wait(60)
        self.commands.append(("rebalance", tasks, wait))

    def kill(self, wait: float) -> None:
        assert self.settled.wait(60)
        self.commands.append(("kill", wait))

    def stop(self) -> None:
        self.commands.append("stop")


class Cluster(storm.LocalCluster):
    """A cluster of recording topologies."""

    def __init__(self, directory: Path, *names: str) -> None:
        super().__init__(directory)
        self.topologies = {name: RecordingTopology(name) for name in names}
        self._running: dict[str, Any] = dict(self.topologies)
        self.submitted: list[Any] = []

    def submit(self, name: str, topology: storm.Topology, config: storm.Config | None = None) -> None:
        assert config is not None
        self.submitted.append((name, [node.id for node in topology.nodes], config.max_spout_pending))


class WordCount(RecordingTopology):
    """A word count with a rich status, which is settled from the beginning."""

    def __init__(self, name: str, *, split: str = "split", count: str = "count") -> None:
        super().__init__(name)
        self.settled.set()
        self.emitted, self.split, self.count, self.counts = 1_000, split, count, 3

    def status(self) -> TopologyStatus:
        emitted, split, count = self.emitted, self.split, self.count
        spout = TaskStatus(
            "sentences",
            0,
            emitted=emitted,
            acked=emitted - 30,
            failed=2,
            replayed=1,
            dead=1,
            complete_ms=412.5,
            complete_p50_ms=400.0,
            complete_p99_ms=733.0,
            queued=12,
            pending=28,
            throttled=True,
            throttled_seconds=7.5,
        )
        tasks = [spout, replace(spout, task=1, throttled=False, emitted=emitted // 2, acked=emitted // 2 - 9, dead=0)]
        tasks += [TaskStatus(split, 2, 6 * emitted, emitted, emitted, errors=2, execute_ms=0.031, queued=512)]
        tasks += [
            TaskStatus(count, 3 + at, 2 * emitted, 2 * emitted, 2 * emitted, queued=9) for at in range(self.counts)
        ]
        return replace(
            super().status(),
            tasks=tuple(tasks),
            trees=37,
            components=(
                ComponentStatus("sentences", "spout", 2),
                ComponentStatus(split, "bolt", 1, (InputStatus("sentences", "default", "shuffle", emitted),)),
                ComponentStatus(
                    count,
                    "bolt",
                    self.counts,
                    (
                        InputStatus(split, "default", "fields word", 6 * emitted),
                        InputStatus(split, "long", "fields word", 11),
                    ),
                ),
            ),
        )

    def rebalance(self, tasks: dict[str, int], wait: float) -> None:
        super().rebalance(tasks, wait)
        self.counts = tasks[self.count]


def write_reports(directory: Path, name: str, *texts: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Appends errors and dead letters to their topics; returns them as `Control` reads them, oldest first."""
    topics, log = TopologyTopics(name, str(directory / "log")), Log(directory / "log")
    errors = [asdict(storm.ErrorReport("split", 2, 1_000_000 * n, text, "...")) for n, text in enumerate(texts)]
    letters = [
        asdict(storm.DeadLetter("sentences", 0, (text,), n, attempts=4, why="timed_out"))
        for n, text in enumerate(texts)
    ]
    for place, records in ((topics.errors, errors), (topics.dead_letters, letters)):
        topic = log.create(place)
        topic.append(0, topic.batch(records, timestamps=[7_000_000] * len(records)))
    return errors, [{"time": 7_000_000, **each, "values": list(each["values"])} for each in letters]


def wait_until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.02)
