"""A real topology on Spark, seen and commanded over HTTP while it runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from storm_wordcount import SplitSentence, WordCount

from headrace import storm
from headrace.dialects.storm.api.topology import TopologyError
from headrace.dialects.storm.cluster.control import Control
from headrace.server import Server, Service
from tests.dialects.storm.clusters import TOPOLOGY
from tests.server.routes.test_topologies import measured

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Sentences(storm.Spout):
    """Three words at a time, so many times."""

    fields = ("sentence",)

    def __init__(self, count: int) -> None:
        self.left = count

    def next_tuple(self) -> None:
        if self.left:
            self.left -= 1
            self.emit(["to be or" if self.left % 2 else "not to be"], message_id=self.left)


def word_count(sentences: int) -> storm.Topology:
    builder = storm.TopologyBuilder()
    builder.set_spout("sentences", Sentences(sentences))
    builder.set_bolt("split", SplitSentence(), parallelism=2).shuffle_grouping("sentences")
    builder.set_bolt("count", WordCount(), parallelism=2).fields_grouping("split", ["word"])
    return builder.create()


def until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 240
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.slow("a topology runs on Spark behind a server")
@pytest.mark.timeout(600)
def test_a_topology_is_seen_rebalanced_and_killed_over_http(spark: SparkSession, tmp_path: Path) -> None:
    with (
        storm.LocalCluster(tmp_path, spark=spark) as cluster,
        Server(Service({}, {}, topologies=Control(tmp_path)), port=0) as server,
        httpx.Client(base_url=server.url, timeout=300) as client,
    ):
        cluster.submit("words", word_count(20), storm.Config(max_spout_pending=10))

        def status() -> dict[str, Any]:
            topology: dict[str, Any] = client.get("/topologies/words").json()
            return topology

        def tasks(component: str) -> list[dict[str, Any]]:
            return [task for task in status()["tasks"] if task["component"] == component]

        until(lambda: any(topology["name"] == "words" for topology in client.get("/topologies").json()["topologies"]))
        until(lambda: tasks("sentences")[0]["acked"] == 20)
        until(lambda: status()["trees"] == 0)
        until(lambda: tasks("sentences")[0]["queued"] == 0)  # Spark reports what a batch has read once it is over
        [spout] = tasks("sentences")
        assert (spout["emitted"], spout["pending"], spout["queued"], spout["throttled"]) == (20, 0, 0, False)
        assert spout["throttled_seconds"] > 0  # twenty tuples, of which ten at a time may be under way
        assert 0 < spout["complete_p50_ms"] <= spout["complete_p99_ms"]
        streams = [
            (stream["source"], component["id"], stream["tuples"])
            for component in status()["components"]
            for stream in component["inputs"]
        ]
        assert streams == [("sentences", "split", 20), ("split", "count", 60)]
        samples = measured(client.get("/metrics").text)
        executed = [
            value for (name, *labels), value in samples.items() if (name, labels[1:2]) == ("executed_total", ["count"])
        ]
        assert sum(executed) == sum(task["executed"] for task in tasks("count")) == 60
        assert all(task["queued"] is not None for task in tasks("count"))

        assert client.post("/topologies/words/rebalance", json={"tasks": {"count": 3}}).status_code in (200, 202)
        until(lambda: len(tasks("count")) == 3 and status()["state"] == "active")
        assert client.post("/topologies/words/deactivate", json={}).json()["done"]
        assert status()["state"] == "inactive"
        client.post("/topologies/words/kill", json={"wait": "1s"})
        until(lambda: client.get("/topologies").json()["topologies"] == [])
        assert cluster.names() == []


def outcome(call: Callable[[], object]) -> str:
    """Returns what a command is refused with, or that it is done."""
    try:
        call()
    except TopologyError as refused:
        return str(refused)
    return "done"


@pytest.mark.slow("topologies start on Spark")
@pytest.mark.timeout(600)
def test_absurd_and_concurrent_commands_leave_a_cluster_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    files = {
        "words": TOPOLOGY,
        "none": "topology = 3",
        "failing": "raise OSError('gone')",
        "not": "import nothing_here",
    }
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text)
    directory = tmp_path / "storm"
    with (
        storm.LocalCluster(directory, spark=spark) as cluster,
        Server(Service({}, {}, topologies=Control(directory)), port=0) as server,
        httpx.Client(base_url=server.url, timeout=300) as client,
        ThreadPoolExecutor(4) as threads,
    ):
        control = Control(directory)

        def submit(name: str, file: str = "words") -> str:
            return outcome(lambda: control.ask("submit", name=name, file=str(tmp_path / f"{file}.py")))

        for name in ("../words", "..", "a/b", "lock", "log", "requests", "x" * 101, "", "a\0b", "-rf"):
            assert "the name of a topology is letters, digits" in submit(name), name
        for file, reason in (
            ("none", "has no topology"),
            ("failing", "gone"),
            ("not", "nothing_here"),
            ("x", "no file"),
        ):
            assert reason in submit("odd", file)
        assert outcome(lambda: control.ask("__class__")).startswith("there is no command '__class__'")
        assert cluster.names() == []

        # The same submission twice at once; and one that is killed while it starts, of which one command is first.
        submitted = sorted(threads.map(submit, ["words", "words"]))
        assert submitted[0].startswith("a topology 'words' is running already") and submitted[1] == "done"
        starting = threads.submit(submit, "late")
        killed = threads.submit(outcome, lambda: cluster.kill("late", 0))
        assert starting.result() == "done"
        if killed.result() != "done":
            assert "no topology 'late' is running" in killed.result()
            cluster.kill("late", 0)
        assert cluster.names() == ["words"]

        # Through the API, and to the cluster itself.
        absurd = client.post("/topologies/words/rebalance", json={"tasks": {"print": 10**9}})
        assert (absurd.status_code, "from 1 to 1,000" in absurd.json()["reason"]) == (400, True)
        for tasks, reason in (({"print": 10**9}, "from 1 to 1,000"), ({"nobody": 2}, "no component 'nobody'")):
            assert reason in outcome(partial(control.ask, "rebalance", name="words", tasks=tasks, wait=0))
        assert client.get("/topologies/words").json()["state"] == "active"
        assert cluster.failures() == {}
