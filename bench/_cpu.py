"""Where CPU goes: of this process, the JVM that it started, by kind of thread, and Python workers. Linux only."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_THREADS = (
    ("C1 Comp", "compilers"),
    ("C2 Comp", "compilers"),
    ("GC Thread", "collector"),
    ("G1 ", "collector"),
    ("stream exec", "planning"),
    ("Executor task", "tasks"),
)
"""Beginnings of names of threads, of which Linux has the first fifteen letters, and what they do."""


def cpu_seconds() -> dict[str, float]:
    """Seconds so far of this process and those below it that run, by what they were spent on."""
    spent: dict[str, float] = defaultdict(float)
    for process in _tree():
        try:
            name, _, seconds = _stat(process)
            if name != "java":
                spent["driver" if process == Path(f"/proc/{os.getpid()}") else "Python workers"] += seconds
                continue
            spent["others in the JVM"] += seconds
            for thread in (process / "task").iterdir():
                thread_name, _, part = _stat(thread)
                if kind := next((kind for begin, kind in _THREADS if thread_name.startswith(begin)), None):
                    spent[kind] += part
                    spent["others in the JVM"] -= part
        except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            continue
    return spent


def per_batch(before: dict[str, float], after: dict[str, float], batches: int) -> str:
    """What was spent between two moments, in milliseconds a batch."""
    parts = {kind: 1000 * (seconds - before.get(kind, 0)) / batches for kind, seconds in after.items()}
    listed = ", ".join(f"{kind} {ms:.0f}" for kind, ms in sorted(parts.items(), key=lambda part: -part[1]) if ms >= 1)
    return f"CPU {sum(parts.values()):.0f} ms a batch: {listed}"


def _tree() -> list[Path]:
    below: dict[int, list[Path]] = defaultdict(list)
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                below[_stat(process)[1]].append(process)
            except (FileNotFoundError, ProcessLookupError):
                continue
    found = [Path(f"/proc/{os.getpid()}")]
    for process in found:  # which grows
        found += below[int(process.name)]
    return found


def _stat(place: Path) -> tuple[str, int, float]:
    """Its name, its parent, and its seconds in the program and in the system."""
    text = (place / "stat").read_text()
    name, fields = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :].split()
    return name, int(fields[1]), (int(fields[11]) + int(fields[12])) / _TICKS
