"""Counts over the last few slots of time, for rolling top words and the like."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable


class SlidingCounter:
    """Counts of objects over the last `slots` slots; `advance` gives the totals and begins the next slot.

    >>> counter = SlidingCounter(2)
    >>> totals = []
    >>> for count in [3, 2, 0, 0, 1, 0, 0, 0]:
    ...     counter.add("word", count)
    ...     totals.append(counter.advance().get("word", 0))
    >>> totals
    [3, 5, 2, 0, 1, 1, 0, 0]

    What has just left all slots is told of once more, as zero.

    >>> counter = SlidingCounter(1)
    >>> counter.add("word")
    >>> [dict(counter.advance()) for _ in range(3)]
    [{'word': 1}, {'word': 0}, {}]
    """

    def __init__(self, slots: int) -> None:
        if slots < 1:
            raise ValueError(f"a sliding counter has at least one slot, got {slots!r}")
        self._slots: deque[Counter[Hashable]] = deque([Counter()], maxlen=slots)
        self._left: set[Hashable] = set()  # what was in totals last time and is in no slot now

    def add(self, item: Hashable, count: int = 1) -> None:
        """Counts an object in the current slot."""
        if count:
            self._slots[-1][item] += count

    def totals(self) -> Counter[Hashable]:
        """Counts over all slots."""
        total: Counter[Hashable] = Counter()
        for slot in self._slots:
            total.update(slot)
        return total

    def advance(self) -> Counter[Hashable]:
        """The totals as they are now; then the oldest slot, if there are enough, makes place for a new one."""
        totals = self.totals()
        told = Counter({**dict.fromkeys(self._left, 0), **totals})
        self._slots.append(Counter())
        self._left = totals.keys() - self.totals().keys()
        return told
