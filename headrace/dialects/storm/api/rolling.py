"""A counter over the last few slots of time, e.g. for rolling top words."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable


class SlidingCounter:
    """Counts objects over the last `slots` slots; `advance` returns the totals and begins the next slot.

    >>> counter = SlidingCounter(2)
    >>> totals = []
    >>> for count in [3, 2, 0, 0, 1, 0, 0, 0]:
    ...     counter.add("word", count)
    ...     totals.append(counter.advance().get("word", 0))
    >>> totals
    [3, 5, 2, 0, 1, 1, 0, 0]

    An object that has just left all slots is returned once more, with the count 0.

    >>> counter = SlidingCounter(1)
    >>> counter.add("word")
    >>> [dict(counter.advance()) for _ in range(3)]
    [{'word': 1}, {'word': 0}, {}]
    """

    def __init__(self, slots: int) -> None:
        if slots < 1:
            raise ValueError(f"a sliding counter has at least one slot, got {slots!r}")
        self._slots: deque[Counter[Hashable]] = deque([Counter()], maxlen=slots)
        self._left: set[Hashable] = set()  # objects of the last totals that are in no slot now

    def add(self, item: Hashable, count: int = 1) -> None:
        """Counts an object in the current slot."""
        if count:
            self._slots[-1][item] += count

    def totals(self) -> Counter[Hashable]:
        """Returns the counts over all slots."""
        total: Counter[Hashable] = Counter()
        for slot in self._slots:
            total.update(slot)
        return total

    def advance(self) -> Counter[Hashable]:
        """Returns the totals, then begins a new slot; the oldest one is dropped if all are in use."""
        totals = self.totals()
        counts = Counter({**dict.fromkeys(self._left, 0), **totals})
        self._slots.append(Counter())
        self._left = totals.keys() - self.totals().keys()
        return counts
