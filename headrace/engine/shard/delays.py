"""Sketches of how late elements come: behind the clock, or behind the latest element of their partition.

Tasks sketch what they read, and shards, which have state, merge the sketches. Unlike randomized sketches, these are the
same in every replay.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, TypedDict

import numpy as np

from headrace.model.times import MIN_TIME, Int64Array

_GROWTH: Final = np.log1p(0.02)  # from bucket to bucket


@dataclass
class Delays:
    """A sketch of delays behind the clock: counts in buckets whose width grows with the delay.

    Its answers are not below the truth, and at most two percent above.

    >>> delays = Delays()
    >>> delays.observe(np.array([99, 98, 0]), now=100)
    >>> delays.quantile(0.6), delays.quantile(1.0)
    (2, 102)
    """

    buckets: dict[int, int] = field(default_factory=dict)

    def observe(self, times: Int64Array, *, now: int | Int64Array) -> None:
        """Counts elements of these event times that arrive now."""
        numbers, counts = np.unique(_numbers(np.maximum(now - times, 0)), return_counts=True)
        self.merge(zip(numbers.tolist(), counts.tolist(), strict=True))

    def merge(self, buckets: Iterable[tuple[int, int]]) -> None:
        """Adds the counts of another sketch."""
        for number, count in buckets:
            self.buckets[number] = self.buckets.get(number, 0) + count

    def later(self, by: int) -> Delays:
        """Returns the sketch of the same elements, each so much later."""
        numbers = _numbers(_delays(np.array(list(self.buckets), np.int64)) + by).tolist()
        more = Delays()
        more.merge(zip(numbers, self.buckets.values(), strict=True))
        return more

    def quantile(self, q: float) -> int:
        """Returns the delay that a fraction `q` of the elements did not exceed; 0 if there were none."""
        if not self.buckets:
            return 0
        numbers = np.array(sorted(self.buckets))
        reached = np.cumsum([self.buckets[number] for number in numbers.tolist()])
        number = numbers[np.searchsorted(reached, q * reached[-1] * (1 - 1e-12))]
        return int(_delays(number))

    def watermarks(self, qs: set[float], *, now: int) -> dict[float, int]:
        """Returns, by fraction, the time before which so much of the input has arrived. q = 1 has no estimate."""
        return {q: now - self.quantile(q) for q in sorted(qs) if q < 1 and self.buckets}


def _numbers(delays: Int64Array) -> Int64Array:
    """Returns the buckets of delays."""
    numbers: Int64Array = np.ceil(np.log1p(delays.astype(np.float64)) / _GROWTH).astype(np.int64)
    return numbers


def _delays(numbers: Int64Array) -> Int64Array:
    """Returns the longest delay of each bucket."""
    delays: Int64Array = np.round(np.expm1(numbers * _GROWTH)).astype(np.int64)
    return delays


_RUNS: Final = 16  # in a sketch of disorder


class Sketch(TypedDict):
    """A task's sketch of a partition's disorder, as JSON: its latest time, and runs of elements in order of arrival.

    A run has the latest time there was at its beginning, and how far its elements are behind the latest before each,
    in buckets. `q` is the fraction that the policy asks for.
    """

    q: float
    latest: int
    runs: list[tuple[int, list[tuple[int, int]]]]


def sketch(times: Int64Array, q: float) -> Sketch:
    """Makes the sketch of elements of these times, in order of arrival.

    >>> sketch(np.array([100, 200, 200, 198]), 0.9)
    {'q': 0.9, 'latest': 200, 'runs': [(100, [(0, 1)]), (200, [(0, 2), (56, 1)])]}
    """
    latest = np.maximum.accumulate(times)
    first, last = int(latest[0]), int(latest[-1])
    run = (latest - first) // ((last - first) // _RUNS + 1)
    begins = [0, *(np.flatnonzero(np.diff(run)) + 1).tolist(), len(run)]
    runs = []
    for begin, end in pairwise(begins):
        delays = Delays()
        delays.observe(times[begin:end], now=latest[begin:end])
        runs.append((int(latest[begin]), sorted(delays.buckets.items())))
    return {"q": q, "latest": last, "runs": runs}


@dataclass
class Disorder:
    """The disorder of a partition: a sketch of how far all its elements ever came behind the latest before them.

    The delay of an element is the latest time before it, less its own. A task knows the latest of what it read; that of
    the micro-batches before is known here, and a run that began behind it is later by as much. So a delay is never
    taken for shorter than it was, nor for longer than by two percent and, while the task had not caught up with what
    was there before, a sixteenth of the time that passed in what it read.

    >>> disorder = Disorder()
    >>> disorder.take([sketch(np.array([100, 110]), 1.0)]), disorder.take([sketch(np.array([80, 120]), 1.0)])
    (110, 90)
    """

    latest: int = MIN_TIME
    delays: Delays = field(default_factory=Delays)

    def take(self, sketches: list[Sketch]) -> int:
        """Takes in the sketches of a micro-batch's tasks; returns the watermark of the partition."""
        before = self.latest
        for sketch in sketches:
            for begun, buckets in sketch["runs"]:
                run = Delays({number: count for number, count in buckets})
                self.delays.merge((run.later(before - begun) if begun < before else run).buckets.items())
            self.latest = max(self.latest, sketch["latest"])
        return self.latest - self.delays.quantile(sketches[0]["q"])

    def dump(self) -> list[Any]:
        return [self.latest, sorted(self.delays.buckets.items())]

    @staticmethod
    def load(data: list[Any]) -> Disorder:
        latest, buckets = data
        return Disorder(latest, Delays({number: count for number, count in buckets}))
