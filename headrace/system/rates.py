"""Rates: how fast a number grows, from looks at it now and then."""

from __future__ import annotations

from collections import deque
from typing import Final

from headrace.model.times import SECOND

_SPAN: Final = 10 * SECOND


class Rate:
    """How much a number grew a second, over the last ten seconds.

    >>> rate = Rate()
    >>> for second in range(4):
    ...     rate.look(second * SECOND, second * 100)
    >>> rate.per_second
    100.0
    """

    def __init__(self) -> None:
        self._looks: deque[tuple[int, int]] = deque()

    def look(self, time: int, number: int) -> None:
        """Notes what the number is."""
        self._looks.append((time, number))
        while self._looks[-1][0] - self._looks[0][0] > _SPAN:
            self._looks.popleft()

    @property
    def per_second(self) -> float | None:
        """The rate; None before there is one."""
        looks = list(self._looks)
        if len(looks) < 2 or looks[-1][0] == looks[0][0]:
            return None
        (first, before), (last, now) = looks[0], looks[-1]
        return (now - before) * SECOND / (last - first)
