"""Clusters without Spark: their topologies only note what they are told, and have a status that a test makes up."""

from __future__ import annotations

import threading
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from headrace import storm
from headrace.dialects.storm.cluster.topologystatus import ComponentStatus, InputStatus, TaskStatus, TopologyStatus
from headrace.dialects.storm.graph.topologytopics import TopologyTopics
from headrace.log import Log


class Noting:
    """Stands for a topology that runs. To kill or rebalance it takes until `settled` is set."""

    def __init__(self, name: str) -> None:
        self.name, self.config = name, storm.Config()
        self.noted: list[Any] = []
        self.settled = threading.Event()
        self.active = True
        self.failure: Exception | None = None
        self.tells = True

    def status(self) -> TopologyStatus:
        if not self.tells:
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
        self.noted.append("activate" if active else "deactivate")

    def rebalance(self, tasks: dict[str, int], wait: float) -> None:
        if "words" in tasks:
            raise storm.TopologyError("'words' is a spout")
        assert self.settled.wait(60)
        self.noted.append(("rebalance", tasks, wait))

    def kill(self, wait: float) -> None:
        assert self.settled.wait(60)
        self.noted.append(("kill", wait))

    def stop(self) -> None:
        self.noted.append("stop")


class Cluster(storm.LocalCluster):
    """A cluster of those."""

    def __init__(self, directory: Path, *names: str) -> None:
        super().__init__(directory)
        self.noting = {name: Noting(name) for name in names}
        self._running: dict[str, Any] = dict(self.noting)
        self.submitted: list[Any] = []

    def submit(self, name: str, topology: storm.Topology, config: storm.Config | None = None) -> None:
        assert config is not None
        self.submitted.append((name, [node.id for node in topology.nodes], config.max_spout_pending))


class WordCount(Noting):
    """A word count of which there is much to be seen. What is not settled yet is settled."""

    def __init__(self, name: str, *, split: str = "split", count: str = "count") -> None:
        super().__init__(name)
        self.settled.set()
        self.emitted, self.split, self.count, self.counts = 1_000, split, count, 3

    def status(self) -> TopologyStatus:
        found, split, count = self.emitted, self.split, self.count
        spout = TaskStatus(
            "sentences",
            0,
            emitted=found,
            acked=found - 30,
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
        tasks = [spout, replace(spout, task=1, throttled=False, emitted=found // 2, acked=found // 2 - 9, dead=0)]
        tasks += [TaskStatus(split, 2, 6 * found, found, found, errors=2, execute_ms=0.031, queued=512)]
        tasks += [TaskStatus(count, 3 + at, 2 * found, 2 * found, 2 * found, queued=9) for at in range(self.counts)]
        return replace(
            super().status(),
            tasks=tuple(tasks),
            trees=37,
            components=(
                ComponentStatus("sentences", "spout", 2),
                ComponentStatus(split, "bolt", 1, (InputStatus("sentences", "default", "shuffle", found),)),
                ComponentStatus(
                    count,
                    "bolt",
                    self.counts,
                    (
                        InputStatus(split, "default", "fields word", 6 * found),
                        InputStatus(split, "long", "fields word", 11),
                    ),
                ),
            ),
        )

    def rebalance(self, tasks: dict[str, int], wait: float) -> None:
        super().rebalance(tasks, wait)
        self.counts = tasks[self.count]


def write_wrongs(directory: Path, name: str, *texts: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Puts errors and dead letters of a topology where they are kept; returns them as they are read, oldest first."""
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
