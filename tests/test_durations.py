from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from tests.durations import Durations, processor_seconds

BUSY = "import time; end = time.process_time() + 0.3\nwhile time.process_time() < end: pass"


class Told:
    """What the terminal shows."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def section(self, title: str) -> None:
        self.lines.append(title)

    def line(self, text: str, **_: Any) -> None:
        self.lines.append(text)


def outcome(least: float, reason: str = "") -> tuple[Any, list[str]]:
    """The exit status of a run with one test that took twelve seconds, and what is shown of it."""
    durations, told, session = Durations(SimpleNamespace(cache=None)), Told(), SimpleNamespace(exitstatus=0)  # type: ignore[arg-type]
    found = [("long", {"least": least, "reason": reason})]
    report = pytest.TestReport(
        "t.py::t", ("t.py", 1, "t"), {}, "passed", None, "call", duration=12, user_properties=found
    )
    durations.pytest_runtest_logreport(report)
    durations.pytest_sessionfinish(session)  # type: ignore[arg-type]
    durations.pytest_terminal_summary(told)  # type: ignore[arg-type]
    return session.exitstatus, told.lines


def test_a_test_that_must_take_long_fails_the_run() -> None:
    status, lines = outcome(least=11)
    assert status == pytest.ExitCode.TESTS_FAILED
    assert lines[1].startswith("t.py::t: 12 s, and at least 11 s on a quiet machine; make it shorter, or mark it")


def test_one_that_a_busy_machine_makes_long_is_named() -> None:
    status, lines = outcome(least=3)
    assert (status, lines[1:]) == (0, ["t.py::t: 12 s, here and now"])


def test_one_that_is_marked_is_not() -> None:
    assert outcome(least=11, reason="a cluster starts") == (0, [])


def test_processor_time_is_that_of_children_too() -> None:
    own, everyone = processor_seconds()
    subprocess.run([sys.executable, "-c", BUSY], check=True)
    own_after, everyone_after = processor_seconds()
    assert everyone_after - everyone > 0.25 > own_after - own
