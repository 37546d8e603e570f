"""What `headrace batch` shows on a terminal while it waits: each step of the job, and how much of it is done."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from headrace.commands import system as commands
from headrace.commands.main import main
from headrace.log import Log
from headrace.server import Server, Service
from headrace.system import lifecycle
from headrace.system.home import Home
from headrace.system.jobs import Job
from headrace.views.declare.app import App
from headrace.views.stores import Store
from tests.commands.test_system import home

__all__ = ["home"]  # a fixture

SECONDS = 60
STEPS = [
    (Job(1, "hits", True, 0, "waiting"), "hits: batch version (incremental, "),
    (Job(1, "hits", True, 0, "running", "computing", 1_200, 4_800), " s): computing 1,200 of 4,800"),
    (Job(1, "hits", True, 0, "running", "loading", 950), " s): loading 950"),
]
DONE = Job(1, "hits", True, 0, "done", "done", ended=4_200_000, version=3)
LAST = "hits: version 3 is current (incremental, 4.2 s)"


class Scripted:
    """A running system with one job, which is where the test says."""

    def __init__(self) -> None:
        self.job: Job | None = None
        self.asked: list[tuple[str, bool]] = []

    def compute(self, view: str, *, incremental: bool) -> dict[str, Any]:
        self.asked.append((view, incremental))
        self.job = STEPS[0][0]
        return self.job.to_json(0)

    def status(self) -> dict[str, Any]:
        return {"pid": os.getpid(), "views": {}, "jobs": [] if self.job is None else [self.job.to_json(0)]}

    def dead_letters(self, limit: int) -> list[dict[str, Any]]:
        return []


class Terminal:
    """The other side of a pseudo terminal: what was written to it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._written = descriptor, b""
        os.set_blocking(descriptor, False)

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + SECONDS
        while text not in (shown := re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", self._written).decode(errors="ignore")):
            assert time.monotonic() < deadline, f"{text!r} is not in {shown[-500:]!r}"
            try:
                self._written += os.read(self._descriptor, 4096)
            except BlockingIOError:
                time.sleep(0.02)


def test_a_terminal_shows_the_steps_of_a_running_system(home: Home, tmp_path: Path) -> None:
    store, system = Store(home.store), Scripted()
    service = replace(Service.of(App.load(tmp_path / "app.py"), store, Log(home.log)), operations=system)
    ours, theirs = pty.openpty()
    terminal = Terminal(ours)
    command = [sys.executable, "-m", "headrace", "batch", "app.py", "hits"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    with home.exclusive() as lock, Server(service, port=0) as server:
        lock.publish_url(server.url)
        with subprocess.Popen(
            [*command, "--incremental", "--dir", str(home.path)],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=theirs,
            text=True,
        ) as process:
            try:
                terminal.wait_for("starting ...")
                terminal.wait_for(STEPS[0][1])
                for system.job, line in STEPS[1:]:
                    terminal.wait_for(line)
                system.job = DONE
                assert process.communicate(timeout=SECONDS)[0] == f"{LAST}\n"
            finally:
                process.kill()
    assert (process.returncode, system.asked) == (0, [("hits", True)])
    os.close(ours)
    os.close(theirs)
    store.close()


def test_a_terminal_shows_the_steps_of_a_system_that_does_not_run(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = io.StringIO()
    terminal = Console(file=shown, force_terminal=True, width=120)

    def compute(deployment: Any, view: str, *, incremental: bool, show: Any) -> Job:
        for job, line in [(None, "reading the events since the last run ..."), *STEPS]:
            show(job)
            deadline = time.monotonic() + SECONDS
            while line not in shown.getvalue():  # it is drawn some times a second
                assert time.monotonic() < deadline, shown.getvalue()[-500:]
                time.sleep(0.02)
        return DONE

    monkeypatch.setattr(commands, "Console", lambda **_: terminal)
    monkeypatch.setattr(lifecycle, "compute_version", compute)
    args = ["batch", str(tmp_path / "app.py"), "hits", "--incremental", "--dir", str(home.path)]
    result = CliRunner().invoke(main, args)
    assert (result.exit_code, result.stdout) == (0, f"{LAST}\n")


def test_a_job_that_is_not_known_any_more_is_an_error(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Forgetful(Scripted):
        def status(self) -> dict[str, Any]:
            return {**super().status(), "jobs": []}

    monkeypatch.setattr(commands, "_POLL", 0)
    store = Store(home.store)
    service = replace(Service.of(App.load(tmp_path / "app.py"), store, Log(home.log)), operations=Forgetful())
    with home.exclusive() as lock, Server(service, port=0) as server:
        lock.publish_url(server.url)
        result = CliRunner().invoke(main, ["batch", str(tmp_path / "app.py"), "hits", "--dir", str(home.path)])
    store.close()
    assert (result.exit_code, "see with `headrace status` whether it has ended" in result.stderr) == (1, True)
