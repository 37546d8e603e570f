"""Rates: how fast a number grows, from measurements now and then."""

from __future__ import annotations

from collections import deque
from typing import Final

from headrace.model.times import SECOND

_SPAN: Final = 10 * SECOND


class Rate:
    """The growth of a number per second, over the last ten seconds.

    >>> rate = Rate()
    >>> for second in range(4):
    ...     rate.record(second * SECOND, second * 100)
    >>> rate.per_second
    100.0
    """

    def __init__(self) -> None:
        self._measurements: deque[tuple[int, int]] = deque()

    def record(self, time: int, number: int) -> None:
        """Records the number at a time."""
        self._measurements.append((time, number))
        while self._measurements[-1][0] - self._measurements[0][0] > _SPAN:
            self._measurements.popleft()

    @property
    def per_second(self) -> float | None:
        """The rate; None before there are two measurements."""
        measured = list(self._measurements)
        if len(measured) < 2 or measured[-1][0] == measured[0][0]:
            return None
        (first, before), (last, now) = measured[0], measured[-1]
        return (now - before) * SECOND / (last - first)
