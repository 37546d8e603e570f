"""Notes how long each test takes, and names those of more than ten seconds that are not marked as slow.

The file `.pytest_cache/d/durations/tests.tsv` has a line for each test as it ends: seconds of its set-up, call and
tear-down, and its name. A long test carries the marker `slow` with the reason why it is worth its time.

A busy machine makes every test slow, so a test fails the run only if it must take that long: if the processor time that
it and its processes took would not fit into ten seconds on two cores, with half as much again for what a busy machine
adds to it. Others that took long are only named.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

LIMIT: Final = 10.0  # seconds
_CORES: Final = 2
_ROOM: Final = 1.5
_TICK: Final = os.sysconf("SC_CLK_TCK")


class Durations:
    """The plugin; in each worker of pytest-xdist it measures, in the process that they report to it writes."""

    def __init__(self, config: pytest.Config) -> None:
        self._worker = hasattr(config, "workerinput")
        cache = getattr(config, "cache", None)  # None with -p no:cacheprovider
        self._folder = cache.mkdir("durations") if cache is not None and not self._worker else None
        self._file = None if self._folder is None else (self._folder / "tests.tsv").open("w", buffering=1)
        self._spent: dict[str, dict[str, float]] = defaultdict(dict)
        self._before = (0.0, 0.0, 0.0)
        self._took_long: list[str] = []
        self._too_long: list[str] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        began = time.monotonic()
        if began > self._before[0] + 1:  # of all before the first second of a test it hardly matters
            self._before = (began, *processor_seconds())
        try:
            return (yield)
        finally:
            if time.monotonic() > began + LIMIT:
                own, all_of_them = processor_seconds()
                least = max(own - self._before[1], (all_of_them - self._before[2]) / _CORES) / _ROOM
                reason = next((str(mark.args[0]) for mark in item.iter_markers("slow")), "")
                item.user_properties.append(("long", {"least": least, "reason": reason}))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self._worker:
            return
        spent = self._spent[report.nodeid]
        spent[report.when or ""] = report.duration
        if report.when == "call":
            self._note(report.nodeid, report.duration, dict(report.user_properties).get("long"))
        if report.when == "teardown":
            if self._file is not None:
                shown = "\t".join(f"{spent.get(when, 0.0):.2f}" for when in ("setup", "call", "teardown"))
                self._file.write(f"{shown}\t{report.nodeid}\n")
            del self._spent[report.nodeid]

    def _note(self, test: str, seconds: float, found: Any) -> None:
        if found is None or found["reason"]:
            return
        if found["least"] > LIMIT:
            self._too_long.append(f"{test}: {seconds:.0f} s, and at least {found['least']:.0f} s on a quiet machine")
        else:
            self._took_long.append(f"{test}: {seconds:.0f} s, here and now")

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._too_long and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._took_long or self._too_long:
            terminalreporter.section(f"tests of more than {LIMIT:.0f} s that are not marked as slow")
        for line in self._took_long:
            terminalreporter.line(line)
        for line in self._too_long:
            terminalreporter.line(
                f"{line}; make it shorter, or mark it: @pytest.mark.slow('why it is worth it')", red=True
            )


def processor_seconds() -> tuple[float, float]:
    """Processor time of this process, and of it with all its descendants, those that have ended included."""
    spent: dict[int, float] = {}
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        number = int(path.parent.name)
        parents[number] = int(fields[1])
        # user and system time of its own, and of the children that it has waited for
        spent[number] = sum(map(int, fields[11:15])) / _TICK
    here = os.getpid()
    return sum(os.times()[:2]), sum(seconds for number, seconds in spent.items() if _descends(number, here, parents))


def _descends(process: int, ancestor: int, parents: dict[int, int]) -> bool:
    while process != ancestor:
        if process not in parents:
            return False
        process = parents[process]
    return True
