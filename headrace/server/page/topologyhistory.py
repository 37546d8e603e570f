"""The last minutes of topologies, for charts: how fast they are, how long their tuples take, and how many wait."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from headrace.server.page.history import Found, History, Measure, Point, milliseconds

_LATELY: Final = 10_000  # milliseconds


class TopologyHistory:
    """What each look found. Rates are of the last ten seconds: what a micro-batch does comes all at once.

    >>> spout = {"component": "words", "emitted": 0, "acked": 0, "pending": 5, "queued": 2, "complete_p50_ms": 300}
    >>> history = TopologyHistory()
    >>> for second in range(3):
    ...     task = {**spout, "emitted": 40 * second, "acked": 30 * second, "complete_p99_ms": 500}
    ...     words = {"name": "words", "components": [{"id": "words", "kind": "spout"}], "tasks": [task]}
    ...     history.add({"time": f"1970-01-01T00:00:0{second}Z", "topologies": [words]})
    >>> history.points("emitted", "words"), history.rates["words"]
    ([[0.0, None], [1000.0, 40.0], [2000.0, 40.0]], (40.0, 30.0))
    """

    def __init__(self) -> None:
        self._history = History()
        self._counts: dict[str, deque[tuple[float, int, int]]] = {}  # of each topology: time, emitted, acked
        self._last = float("-inf")
        self.rates: dict[str, tuple[float | None, float | None]] = {}
        """Of each topology, how many tuples its spouts emit, and how many are acked, a second."""

    def add(self, told: Mapping[str, Any]) -> None:
        """Remembers a look at topologies, as the API tells of them; one that found nothing new is none."""
        if told["time"] is None:
            self._counts, self.rates = {}, {}
            return
        at = milliseconds(told["time"])
        if at <= self._last:
            return
        self._last = at
        found: Found = {}
        names = [each["name"] for each in told["topologies"]]
        self._counts = {name: self._counts.get(name, deque()) for name in names}
        self.rates = {}
        for each in told["topologies"]:
            name, tasks = each["name"], spouts(each)
            emitted, acked = sum(task["emitted"] for task in tasks), sum(task["acked"] for task in tasks)
            self.rates[name] = _rates(self._counts[name], at, emitted, acked)
            found["emitted", name], found["acked", name] = self.rates[name]
            found["complete", name], found["slowest", name] = latency(each, "complete_p50_ms"), latency(each)
            found["queued", name] = sum(task["queued"] or 0 for task in tasks)
            found["pending", name] = sum(task["pending"] or 0 for task in tasks)
        self._history.note(at, found)

    def points(self, measure: Measure, topology: str) -> list[Point]:
        """A line of a chart."""
        return self._history.lines(measure).get(topology, [])


def spouts(topology: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The tasks of a topology's spouts."""
    ids = {each["id"] for each in topology["components"] if each["kind"] == "spout"}
    return [task for task in topology["tasks"] if task["component"] in ids]


def latency(topology: Mapping[str, Any], field: str = "complete_p99_ms") -> float | None:
    """The complete latency of the slowest spout task, in seconds."""
    known = [task[field] / 1000 for task in spouts(topology) if task[field] is not None]
    return max(known, default=None)


def _rates(
    counts: deque[tuple[float, int, int]], at: float, emitted: int, acked: int
) -> tuple[float | None, float | None]:
    """How fast counts have grown lately, of which one more is known now."""
    if counts and (emitted < counts[-1][1] or acked < counts[-1][2]):
        counts.clear()  # its spouts were started anew
    counts.append((at, emitted, acked))
    while len(counts) > 2 and counts[1][0] <= at - _LATELY:
        counts.popleft()
    since, *before = counts[0]
    if since == at:
        return None, None
    return (emitted - before[0]) / (at - since) * 1000, (acked - before[1]) / (at - since) * 1000
