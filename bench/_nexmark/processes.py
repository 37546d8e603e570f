"""CPU seconds of processes."""

from __future__ import annotations

import psutil


def cpu_seconds(of: int | None = None) -> float:
    """CPU time of a process (by default this one), its descendants, and those of them that have ended."""
    top = psutil.Process(of)
    total = 0.0
    for process in (top, *top.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total
