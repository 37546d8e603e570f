"""Streams whose drivers are killed: the first of the seeds that `make chaos` tries more of."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.scale import FULL

CHAOS = Path(__file__).parents[2] / "chaos"


@pytest.mark.timeout(900)
@pytest.mark.slow("a driver is killed and started again")
@pytest.mark.parametrize(
    ("job", "seeds"), [("job", 3 if FULL else 1), ("logjob", 1), *([("sqljob", 1)] if FULL else [])]
)
def test_killed_drivers_leave_no_trace(
    job: str, seeds: int, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(CHAOS)
    runpy.run_path(str(CHAOS / f"{job}.py"))["run"](tmp_path)  # undisturbed, on the suite's session
    command = [sys.executable, str(CHAOS / "kill.py"), "--job", job, "--seeds", str(seeds)]
    done = subprocess.run([*command, "--undisturbed", tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    _, _, *rows = done.stdout.splitlines()
    assert [row.split("|")[1].strip() for row in rows] == [str(seed) for seed in range(1, seeds + 1)]
    assert all("none" not in row and row.endswith("| equal |") for row in rows)
