"""Topologies over HTTP: a real cluster directory, whose topologies are scripted, behind the API and its metrics."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from headrace.commands.main import main
from headrace.dialects.storm.cluster.control import Control
from headrace.server import Server, Service, Tokens
from headrace.server.routes.topologies import Commands
from tests.dialects.storm.clusters import Cluster, RecordingTopology, WordCount, write_reports
from tests.server.conftest import LIMITS

READ, ADMIN = "r" * 20, "a" * 20
ORDER = ("topology", "state", "from", "stream", "to", "component", "task", "quantile")
WRITE = "w" * 20
TOKENS = Tokens.parse(f"read:{READ} write:{WRITE} admin:{ADMIN}")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path / "storm")
    made.topologies = {"word-count": WordCount("word-count"), "idle": RecordingTopology("idle")}
    made._running.update(made.topologies)
    with made:
        yield made


@contextmanager
def served(directory: Path, **options: Any) -> Iterator[httpx.Client]:
    service = Service({}, {}, topologies=Control(directory))
    with (
        Server(service, port=0, limits=LIMITS, **options) as server,
        httpx.Client(base_url=server.url, timeout=60) as client,
    ):
        yield client


@pytest.fixture
def client(cluster: Cluster) -> Iterator[httpx.Client]:
    with served(cluster.directory) as client:
        yield client


def test_statuses_are_those_of_the_cluster(client: httpx.Client, cluster: Cluster) -> None:
    listed = client.get("/topologies").json()
    statuses = {status.name: json.loads(json.dumps(status.record())) for status in cluster.statuses()}
    assert listed["runs"] is True
    assert {status["name"]: status for status in listed["topologies"]} == statuses
    assert client.get("/topologies/word-count").json() == statuses["word-count"]
    missing = client.get("/topologies/words")
    assert (missing.status_code, missing.json()) == (
        404,
        {"reason": "no topology 'words' is running; GET /topologies lists those that are"},
    )


def test_what_went_wrong_is_newest_first(client: httpx.Client, cluster: Cluster) -> None:
    errors, letters = write_reports(cluster.directory, "word-count", "ValueError: a", "ValueError: b")
    newest = client.get("/topologies/word-count/errors?limit=1").json()
    assert newest == {"topology": "word-count", "errors": [{**errors[1], "time": "1970-01-01T00:00:01Z"}]}
    newest = client.get("/topologies/word-count/deadletters").json()["dead_letters"]
    assert newest == [{**letter, "time": "1970-01-01T00:00:07Z"} for letter in reversed(letters)]
    assert client.get("/topologies/word-count/errors?limit=1001").status_code == 400
    assert client.get("/topologies/..%2Fword-count/errors").status_code == 404


def test_commands(client: httpx.Client, cluster: Cluster) -> None:
    commands = cluster.topologies["word-count"].commands
    done = client.post("/topologies/word-count/deactivate", json={})
    assert (done.status_code, done.json()) == (200, {"topology": "word-count", "command": "deactivate", "done": True})
    assert client.get("/topologies/word-count").json()["state"] == "inactive"
    client.post("/topologies/word-count/activate", json={})
    client.post("/topologies/word-count/rebalance", json={"tasks": {"count": 5}, "wait": "2s"})
    assert (
        len([task for task in client.get("/topologies/word-count").json()["tasks"] if task["component"] == "count"])
        == 5
    )
    client.post("/topologies/word-count/kill", json={"wait": "10s"})
    assert commands == ["deactivate", "activate", ("rebalance", {"count": 5}, 2), ("kill", 10)]
    assert [topology["name"] for topology in client.get("/topologies").json()["topologies"]] == ["idle"]


@pytest.mark.parametrize(
    ("path", "body", "status", "reason"),
    [
        ("word-count/rebalance", {}, 400, "tasks are numbers of tasks by bolt"),
        ("word-count/rebalance", {"tasks": {"count": True}}, 400, "tasks are numbers of tasks by bolt"),
        ("word-count/rebalance", {"tasks": {"count": 0}}, 400, "tasks are numbers of tasks by bolt"),
        ("word-count/rebalance", {"tasks": ["count"]}, 400, "tasks are numbers of tasks by bolt"),
        ("word-count/rebalance", {"tasks": {"count": 1_001}}, 400, "from 1 to 1,000, got {'count': 1001}"),
        ("word-count/rebalance", {"tasks": {"count": 10**1_000}}, 400, "from 1 to 1,000"),
        ("word-count/rebalance", {"tasks": {"x" * 17_000: 2}}, 413, "at most 16,384 bytes"),
        ("word-count/kill", {"wait": "10001 s"}, 400, "from 0 to 10,000 s"),
        ("word-count/kill", {"wait": -1}, 400, "from 0 to 10,000 s"),
        ("word-count/kill", {"wait": 10_000.000000000002}, 400, "from 0 to 10,000 s"),
        ("word-count/kill", {"wait": 1e300}, 400, "wait is how long to wait"),
        ("word-count/kill", {"wait": "9" * 9_000 + "h"}, 400, "wait is how long to wait"),
        ("..%2Fword-count/kill", {}, 404, ""),
        ("word-count%2F..%2Fidle/kill", {}, 404, ""),
        ("word-count%00/kill", {}, 404, "no topology 'word-count\\x00' is running"),
        ("log/kill", {}, 404, "no topology 'log' is running"),
        ("word-count/rebalance", {"tasks": {"words": 2}}, 409, "'words' is a spout"),
        ("word-count/kill", {"wait": "soon"}, 400, "wait is how long to wait"),
        ("word-count/kill", {"now": True}, 400, "no other fields than wait"),
        ("word-count/activate", {"wait": "1s"}, 400, "no fields"),
        ("words/kill", {}, 404, "no topology 'words' is running"),
        ("word-count/submit", {}, 404, "Not Found"),
    ],
)
def test_commands_that_are_refused(
    client: httpx.Client, cluster: Cluster, path: str, body: dict[str, Any], status: int, reason: str
) -> None:
    answer = client.post(f"/topologies/{path}", json=body)
    assert (answer.status_code, reason in answer.json()["reason"]) == (status, True), answer.text
    assert cluster.topologies["word-count"].commands == []


def test_a_command_that_takes_long_is_under_way(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Commands.__init__, "__defaults__", (0.3,))
    with served(cluster.directory) as client:
        answer = client.post("/topologies/idle/kill", json={})
        assert (answer.status_code, answer.json()["done"]) == (202, False)
        until(lambda: client.get("/topologies/idle").json()["state"] == "killed")
        assert client.post("/topologies/word-count/deactivate", json={}).json()["done"] is True
        cluster.topologies["idle"].settled.set()
        until(lambda: client.get("/topologies/idle").status_code == 404)
    assert cluster.topologies["idle"].commands == [("kill", 30)]


def test_the_same_command_twice_at_once(client: httpx.Client, cluster: Cluster) -> None:
    with ThreadPoolExecutor(2) as threads:
        kills = [threads.submit(client.post, "/topologies/idle/kill", json={}) for _ in range(2)]
        until(lambda: client.get("/topologies/idle").json()["state"] == "killed")
        cluster.topologies["idle"].settled.set()
        answers = sorted((kill.result().status_code, kill.result().json().get("reason")) for kill in kills)
    assert [status for status, _ in answers] in ([200, 404], [200, 409])
    assert "no topology 'idle' is running" in str(answers[1][1])
    assert cluster.topologies["idle"].commands == [("kill", 30)]


def until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_who_may_command(cluster: Cluster) -> None:
    with served(cluster.directory, tokens=TOKENS) as client:
        path, read, admin = "/topologies/word-count/deactivate", bearer(READ), bearer(ADMIN)
        assert client.get("/topologies").status_code == client.post(path, json={}).status_code == 401
        assert client.get("/topologies", headers=read).status_code == 200
        assert client.get("/topologies", headers=bearer(WRITE)).status_code == 403
        for command in ("activate", "deactivate", "rebalance", "kill"):
            for scope in (READ, WRITE):
                sent = client.post(f"/topologies/word-count/{command}", json={}, headers=bearer(scope))
                assert sent.status_code == 403, (command, scope)
        for elsewhere in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
            assert client.post(path, json={}, headers=admin | elsewhere).status_code == 403
        assert client.post(path, content="{}", headers=admin | {"Content-Type": "text/plain"}).status_code == 415
        assert cluster.topologies["word-count"].commands == []
        assert client.post(path, json={}, headers=admin).status_code == 200


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


def test_metrics_are_the_numbers_of_the_status(client: httpx.Client, cluster: Cluster) -> None:
    odd = 'we"ird\\\nname'
    cluster._running["odd"] = WordCount("odd", count=odd)  # nothing but the library escapes it
    client.post("/topologies/idle/activate", json={})
    samples = measured(client.get("/metrics").text)
    listed = client.get("/topologies").json()["topologies"]
    words = [topology for topology in listed if topology["name"] != "idle"]
    assert [topology["name"] for topology in words] == ["odd", "word-count"]
    for topology in words:
        for task in topology["tasks"]:
            labels = (topology["name"], task["component"], str(task["task"]))
            for field, name in (
                ("emitted", "emitted_total"),
                ("executed", "executed_total"),
                ("acked", "acked_total"),
                ("failed", "failed_total"),
                ("errors", "errors_total"),
                ("replayed", "replayed_total"),
                ("dead", "dead_letters_total"),
                ("throttled_seconds", "throttled_seconds_total"),
                ("queued", "queued"),
                ("pending", "pending"),
                ("throttled", "throttled"),
            ):
                assert samples.get((name, *labels)) == task[field], (name, labels)
            for field, name in (("execute_ms", "execute_seconds"), ("complete_ms", "complete_seconds")):
                expected = None if task[field] is None else pytest.approx(task[field] / 1000)
                assert samples.get((name, *labels)) == expected
            for field, quantile in (("complete_p50_ms", "0.5"), ("complete_p99_ms", "0.99")):
                expected = None if task[field] is None else pytest.approx(task[field] / 1000)
                assert samples.get(("complete_quantile_seconds", *labels, quantile)) == expected
        name = topology["name"]
        assert samples["trees", name] == topology["trees"]
        assert samples["batches_total", name] == topology["batches"]
        assert samples["batch_seconds", name] == topology["batch_seconds"]
        assert samples["state", name, "active"] == 1
    assert samples["transferred_total", "odd", "split", "long", odd] == 11
    assert samples["up",] == 1


def test_a_task_that_has_not_told_of_itself_has_no_numbers(client: httpx.Client) -> None:
    """Its counts are those of all its life, so that zero would be wrong."""
    samples = measured(client.get("/metrics").text)
    assert ("state", "idle", "active") in samples
    assert not [name for name, *labels in samples if labels[:2] == ["idle", "print"]]


def measured(text: str) -> dict[tuple[str, ...], float]:
    """Samples by name and labels."""
    return {
        (
            sample.name.removeprefix("headrace_storm_"),
            *(sample.labels[label] for label in ORDER if label in sample.labels),
        ): (sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("headrace_storm_")
    }


def test_a_cluster_comes_and_goes(tmp_path: Path) -> None:
    with served(tmp_path / "storm") as client:
        for _ in range(2):
            assert client.get("/topologies").json() == {"runs": False, "time": None, "topologies": []}
            assert client.get("/topologies/words").status_code == 503
            assert measured(client.get("/metrics").text) == {("up",): 0}
            with Cluster(tmp_path / "storm", "words"):
                assert client.get("/topologies/words").json()["state"] == "active"
        assert client.get("/readyz").status_code == 200


def test_openapi_has_the_routes(client: httpx.Client) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    assert sorted(path for path in paths if path.startswith("/topologies")) == [
        "/topologies",
        "/topologies/{name}",
        "/topologies/{name}/activate",
        "/topologies/{name}/deactivate",
        "/topologies/{name}/deadletters",
        "/topologies/{name}/errors",
        "/topologies/{name}/kill",
        "/topologies/{name}/rebalance",
    ]
    rebalance = paths["/topologies/{name}/rebalance"]["post"]
    assert [parameter["name"] for parameter in rebalance["parameters"]] == ["name"]
    schema = rebalance["requestBody"]["content"]["application/json"]["schema"]
    assert sorted(schema["properties"]) == ["tasks", "wait"]


def test_without_a_cluster_there_are_no_routes(started: Any) -> None:
    client = started()
    assert client.get("/topologies").status_code == 404
    assert "headrace_storm" not in client.get("/metrics").text


def test_many_look_at_once(client: httpx.Client, cluster: Cluster) -> None:
    """What is read is whole, however often it is written meanwhile."""
    counts: list[int] = []

    def look() -> None:
        for _ in range(20):
            counts.append(len(client.get("/topologies").json()["topologies"]))

    looking = [threading.Thread(target=look) for _ in range(4)]
    for thread in looking:
        thread.start()
    while any(thread.is_alive() for thread in looking):
        client.post("/topologies/idle/activate", json={})
    assert counts == [2] * 80


def test_the_command_serves_a_directory(cluster: Cluster) -> None:
    command = [sys.executable, "-m", "headrace", "storm", "ui", "--port", "0", "--directory", str(cluster.directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=tokens_in_environment()) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            url = line.partition(" are at ")[2].partition(";")[0]
            assert httpx.get(f"{url}/topologies", timeout=60).status_code == 401
            listed = httpx.get(f"{url}/topologies", headers=bearer(READ), timeout=60).json()
            assert [topology["name"] for topology in listed["topologies"]] == ["idle", "word-count"]
            assert "Headrace" in httpx.get(url, headers=bearer(READ), timeout=60).text
            process.send_signal(signal.SIGTERM)
            process.wait(60)
        finally:
            process.kill()
    assert Control(cluster.directory).served  # it is not the cluster's business who looks


def tokens_in_environment() -> dict[str, str]:
    return {**os.environ, "HEADRACE_TOKENS": f"read:{READ}", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def test_the_command_tells_what_is_wrong(tmp_path: Path) -> None:
    words = ["storm", "ui", "--host", "0.0.0.0", "--directory", str(tmp_path)]
    result = CliRunner().invoke(main, words, env={"HEADRACE_TOKENS": ""})
    assert result.exit_code == 1 and "can be reached from other machines" in result.output
