"""Processes of a log that are killed: seeds by the dozen, each with a log of its own and at least one death."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.scale import FULL

SEEDS: Final = 200 if FULL else 55  # they take the steps in turn: each once or more


@pytest.mark.slow("processes are killed by the dozen")
def test_killed_at_seeded_steps_nothing_is_lost_nor_doubled() -> None:
    """In a process of its own: it forks, which one with threads, as Spark's is, should not do."""
    kill = Path(__file__).with_name("kill.py")
    command = [sys.executable, str(kill), "--seeds", str(SEEDS)]
    done = subprocess.run(command, cwd=kill.parents[2], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split(" | ") for line in done.stdout.splitlines() if re.match(r"\| [a-z]", line)][1:]
    assert rows[-1][0] == "| following reader"  # the last of the steps there are
    assert {row[-1] for row in rows} == {"as it must be |"}
    seeds, killed, again, cut, removed = (
        [len(row[2].split(", ")) if place == 2 else int(row[place].replace(",", "")) for row in rows]
        for place in (2, 3, 5, 6, 7)
    )
    assert sum(seeds) == SEEDS
    assert all(kills >= each for kills, each in zip(killed, seeds, strict=True))
    assert min(sum(again), sum(cut), sum(removed)) > 0  # or the readers, the mending and the retention were not tried
