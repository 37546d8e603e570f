"""The driver of a stream is killed for real, its JVM with it: `make chaos` in small."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

KILL = Path(__file__).parent.parent / "chaos" / "kill.py"


@pytest.mark.timeout(900)  # seven cold starts
@pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")
def test_a_stream_whose_driver_is_killed_goes_on_where_it_was() -> None:
    done = subprocess.run([sys.executable, str(KILL), "--seeds", "3"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = done.stdout.splitlines()[2:]
    assert len(rows) == 3
    assert all(row.endswith("| equal |") for row in rows), done.stdout
