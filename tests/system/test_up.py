"""`headrace up` as a process of its own: fed and asked over HTTP, stopped by Ctrl-C, and started again with an app that
was put right meanwhile."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from headrace.commands.main import main
from tests.commands.test_system import APP

SECONDS = 240  # a loaded machine is no reason to fail


@contextmanager
def up(
    tmp_path: Path, *options: str, master: str = "local[2]", **environment: str
) -> Iterator[tuple[subprocess.Popen[str], httpx.Client]]:
    """The process, and a client of its server."""
    command = [sys.executable, "-m", "headrace", "up", "app.py", "--port", "0"]
    with subprocess.Popen(
        [*command, "--dir", "data", "--master", master, *options],
        cwd=tmp_path,
        env={**os.environ, **environment},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            url = next(found[1] for line in process.stderr if (found := re.search(r"served at (\S+);", line)))
            with httpx.Client(base_url=url, timeout=60) as client:
                yield process, client
        finally:
            if process.poll() is None:
                process.kill()


def hits(client: httpx.Client) -> int:
    return sum(row["values"]["n"] for row in client.get("/views/hits").json()["rows"])


def wait_for(client: httpx.Client, count: int) -> None:
    deadline = time.monotonic() + SECONDS
    while (found := hits(client)) != count:
        assert found < count, f"{found} were counted of {count}"
        assert time.monotonic() < deadline, client.get("/status").text
        time.sleep(0.2)


def send(client: httpx.Client, count: int) -> None:
    lines = [json.dumps({"user": "ann", "url": f"/{n % 7}", "ts": "2026-03-01T09:30:00Z"}) for n in range(count)]
    sent = client.post("/topics/visits", content="\n".join(lines), headers={"Content-Type": "application/x-ndjson"})
    assert sent.status_code == 200, sent.text


def headrace(tmp_path: Path, *args: str) -> str:
    result = CliRunner().invoke(main, [*args, "--dir", str(tmp_path / "data")])
    assert result.exit_code == 0, result.stderr
    return result.stdout


@pytest.mark.slow("two processes with a Spark of their own, one after the other")
@pytest.mark.timeout(600)  # two processes with a Spark of their own each, one after the other
def test_up_query_batch_status_stop_and_up_again_with_a_fault_of_ours_put_right(tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text(APP.replace("return events |", "return (events, events) | hr.Flatten() |"))  # all counts double
    with up(tmp_path) as (process, client):
        send(client, 70)
        wait_for(client, 2 * 70)
        second = CliRunner().invoke(main, ["up", str(app), "--dir", str(tmp_path / "data")])
        assert (second.exit_code, f"belongs to process {process.pid}" in second.stderr) == (1, True)
        assert re.fullmatch(
            r"hits: version 1 is current \(full, .* s\)\n", headrace(tmp_path, "batch", str(app), "hits")
        )
        assert f"process {process.pid}, at {client.base_url}".rstrip("/") in headrace(tmp_path, "status")
        send(client, 35)
        wait_for(client, 2 * 105)
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 0

    answer = json.loads(headrace(tmp_path, "query", "hits", "--url", "/3", "--json"))
    assert ([row["values"] for row in answer["rows"]], answer["version"]) == ([{"n": 2 * 15}], 1)

    app.write_text(APP)
    with up(tmp_path) as (process, client):
        assert hits(client) == 2 * 105
        send(client, 14)
        wait_for(client, 2 * 105 + 14)  # what comes now is right
        assert "version 2 is current" in headrace(tmp_path, "batch", str(app), "hits")
        assert hits(client) == 105 + 14  # and now all is
        send(client, 7)
        wait_for(client, 126)
        assert headrace(tmp_path, "rollback", "hits") == "hits: version 1 is current\n"
        assert hits(client) == 2 * 105 + 14 + 7  # as complete as it was, and as wrong
        assert headrace(tmp_path, "rollback", "hits", "--to", "2") == "hits: version 2 is current\n"
        assert "version 3 is current" in headrace(tmp_path, "batch", str(app), "hits", "--incremental")
        assert hits(client) == 126
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0
