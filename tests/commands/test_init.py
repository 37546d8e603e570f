"""The project that `headrace init` makes: its test passes, its pipeline runs, its view is served."""

from __future__ import annotations

import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from headrace.commands.main import main
from headrace.views.declare.app import App


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["init", "shop"])
    assert (result.exit_code, result.stdout.splitlines()[1]) == (
        0,
        "Next: cd shop && headrace run pipeline.py && pytest",
    )
    folder = tmp_path / "shop"
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    sys.modules.pop("pipeline", None)


@pytest.mark.slow("a batch, and the tests of the project")
def test_its_pipeline_runs_and_its_tests_pass(project: Path, spark: SparkSession) -> None:
    result = CliRunner().invoke(main, ["run", "pipeline.py"])
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines() == [
        "[2026-01-31T09:00:00Z, 2026-01-31T10:00:00Z) / 3 visits of 2 people",
        "[2026-01-31T09:00:00Z, 2026-01-31T10:00:00Z) /shop 1 visits of 1 people",
        "[2026-01-31T10:00:00Z, 2026-01-31T11:00:00Z) / 1 visits of 1 people",
        "[2026-01-31T10:00:00Z, 2026-01-31T11:00:00Z) /shop 1 visits of 1 people",
    ]
    tests = {name: test for name, test in runpy.run_path("test_pipeline.py").items() if name.startswith("test_")}
    assert len(tests) == 2
    for test in tests.values():  # on the suite's session
        test()


def test_pytest_finds_its_tests_and_ruff_no_fault(project: Path) -> None:
    """As a user would call them, in a process of their own."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:schemathesis",
        "-k",
        "hour_fires",
    ]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=120)
    assert (done.returncode, "1 passed, 1 deselected" in done.stdout) == (0, True), done.stdout + done.stderr
    checked = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--isolated", "--select=E,F,I", "--line-length=120", "."], cwd=project
    )
    assert checked.returncode == 0


def test_its_view_can_be_served(project: Path) -> None:
    app = App.load("views.py")
    assert (list(app.topics), list(app.views)) == (["visits"], ["pages"])
    layout = app.views["pages"].layout()
    assert (layout.keys, layout.aggregations) == (("page",), ("hits", "people"))
    assert (project / "README.md").read_text().startswith("# shop\n")


def test_what_is_there_is_left_alone(project: Path) -> None:
    result = CliRunner().invoke(main, ["init", str(project)])
    assert result.exit_code == 1
    assert "exists and is not empty; give a project a directory of its own" in result.stderr
    (project / "file").write_text("")
    assert CliRunner().invoke(main, ["init", str(project / "file")]).exit_code == 1
