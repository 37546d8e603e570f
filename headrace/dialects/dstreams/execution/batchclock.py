"""Clocks by which batches become due: the machine's, and one that tests move. Times are in milliseconds."""

from __future__ import annotations

import threading
import time
from typing import Protocol


class BatchClock(Protocol):
    """Tells the time and waits for it."""

    def time(self) -> int:
        """Returns the time now."""

    def wait_until(self, time: int, stopping: threading.Event) -> bool:
        """Waits for a time; returns False if it is to stop and the time has not come."""


class SystemClock:
    """The clock of the machine.

    >>> SystemClock().time() > 1_600_000_000_000
    True
    """

    def time(self) -> int:
        return time.time_ns() // 1_000_000

    def wait_until(self, time: int, stopping: threading.Event) -> bool:
        while (left := time - self.time()) > 0:
            if stopping.wait(left / 1000):
                return time <= self.time()
        return True


class ManualClock:
    """A clock that stands still until it is moved, for tests: `StreamingContext(sc, 1, clock=ManualClock())`.

    >>> clock = ManualClock(10_000)
    >>> clock.advance(1.5)
    >>> clock.time()
    11500
    """

    def __init__(self, time: int = 0) -> None:
        self._time = time
        self._moved = threading.Condition()

    def time(self) -> int:
        return self._time

    def advance(self, seconds: float) -> None:
        """Moves the clock; batches that become due by it are made, one after the other."""
        with self._moved:
            self._time += round(seconds * 1000)
            self._moved.notify_all()

    def wait_until(self, time: int, stopping: threading.Event) -> bool:
        with self._moved:
            while self._time < time and not stopping.is_set():
                self._moved.wait(0.02)  # whoever stops does not know of this condition
            return self._time >= time
