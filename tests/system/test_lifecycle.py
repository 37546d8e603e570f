"""The loop of `headrace up` with a scripted system: it continues while the store cannot be reached."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from headrace.commands.main import main
from headrace.server import Proxies
from headrace.system import lifecycle
from headrace.views.errors import ViewError


def test_a_store_that_is_away_is_logged_once_and_no_reason_to_stop(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(lifecycle, "_POLL", 0)
    stop, shown, looks = threading.Event(), list[dict[str, Any]](), list[str]()
    answers = iter(
        [{"n": 1}, OSError("no answer\nfrom db"), OSError("no answer"), {"n": 2}, OSError("again"), {"n": 3}]
    )

    def status() -> dict[str, Any]:
        found = next(answers)
        if isinstance(found, OSError):
            raise found
        return found

    def show(status: dict[str, Any]) -> None:
        shown.append(status)
        if status["n"] == 3:
            stop.set()

    system: Any = SimpleNamespace(poll=lambda: looks.append("system"), status=status)
    server: Any = SimpleNamespace(restart_if_ended=lambda: looks.append("server"))
    lifecycle.supervise(system, server, stop, show)
    assert [each["n"] for each in shown] == [1, 2, 3]
    assert looks == ["system", "server"] * 6
    assert [record.getMessage() for record in caplog.records] == [
        "the status of the system cannot be read: no answer",
        "the status of the system cannot be read: again",
    ]


def test_a_server_shows_the_topologies_beside_its_views(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deployments: list[lifecycle.Deployment] = []

    def noted(deployment: lifecycle.Deployment, *_: Any) -> Any:
        deployments.append(deployment)
        raise ViewError("it was only to be noted")

    monkeypatch.setattr(lifecycle, "run_system", noted)
    monkeypatch.chdir(tmp_path)
    for words in ([], ["--storm", "storm"]):
        assert CliRunner().invoke(main, ["up", "app.py", *words]).exit_code == 1
    assert [deployment.served.storm for deployment in deployments] == ["", str(tmp_path / "storm")]


def test_proxies_are_named_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Proxies] = []

    def noted(*arguments: Any) -> Any:
        seen.append(arguments[-1])
        raise ViewError("it was only to be noted")

    monkeypatch.setattr(lifecycle, "run_system", noted)
    monkeypatch.chdir(tmp_path)
    for words in ([], ["--proxy", "10.0.0.5", "--proxy", "fd00::/8"], ["--https"]):
        assert CliRunner().invoke(main, ["up", "app.py", *words]).exit_code == 1
    assert seen == [Proxies(), Proxies(("10.0.0.5", "fd00::/8")), Proxies(https=True)]
    for command in (["up", "app.py", "--proxy", "*"], ["storm", "ui", "--proxy", "*"]):
        refused = CliRunner().invoke(main, command)
        assert refused.exit_code == 1
        assert "a proxy is an address or a network" in refused.output
