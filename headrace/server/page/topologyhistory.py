"""The history of topologies, for charts: rates, latencies and numbers of waiting tuples."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from headrace.server.page.history import History, Measure, Measurements, Point, milliseconds

_RATE_PERIOD: Final = 10_000  # milliseconds


class TopologyHistory:
    """Measures of each poll. Rates are means of ten seconds: counts grow once a micro-batch.

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
        self._counts: dict[str, deque[tuple[float, int, int]]] = {}  # by topology: time, emitted, acked
        self._last = float("-inf")
        self.rates: dict[str, tuple[float | None, float | None]] = {}
        """By topology, the tuples that its spouts emit a second, and those that are acked."""

    def add(self, published: Mapping[str, Any]) -> None:
        """Adds the status of topologies as the API shows it; the same one twice counts once."""
        if published["time"] is None:
            self._counts, self.rates = {}, {}
            return
        at = milliseconds(published["time"])
        if at <= self._last:
            return
        self._last = at
        measured: Measurements = {}
        names = [topology["name"] for topology in published["topologies"]]
        self._counts = {name: self._counts.get(name, deque()) for name in names}
        self.rates = {}
        for topology in published["topologies"]:
            name, tasks = topology["name"], spouts(topology)
            emitted, acked = sum(task["emitted"] for task in tasks), sum(task["acked"] for task in tasks)
            self.rates[name] = _rates(self._counts[name], at, emitted, acked)
            measured["emitted", name], measured["acked", name] = self.rates[name]
            measured["complete", name] = latency(topology, "complete_p50_ms")
            measured["slowest", name] = latency(topology)
            measured["queued", name] = sum(task["queued"] or 0 for task in tasks)
            measured["pending", name] = sum(task["pending"] or 0 for task in tasks)
        self._history.add_measurements(at, measured)

    def points(self, measure: Measure, topology: str) -> list[Point]:
        """Returns the points of a line of a chart."""
        return self._history.lines(measure).get(topology, [])


def spouts(topology: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the tasks of a topology's spouts."""
    ids = {component["id"] for component in topology["components"] if component["kind"] == "spout"}
    return [task for task in topology["tasks"] if task["component"] in ids]


def latency(topology: Mapping[str, Any], field: str = "complete_p99_ms") -> float | None:
    """Returns the complete latency of the slowest spout task, in seconds."""
    known = [task[field] / 1000 for task in spouts(topology) if task[field] is not None]
    return max(known, default=None)


def _rates(
    counts: deque[tuple[float, int, int]], at: float, emitted: int, acked: int
) -> tuple[float | None, float | None]:
    """Adds the newest counts, and returns how many a second they have grown by since ten seconds ago."""
    if counts and (emitted < counts[-1][1] or acked < counts[-1][2]):
        counts.clear()  # its spouts were started again
    counts.append((at, emitted, acked))
    while len(counts) > 2 and counts[1][0] <= at - _RATE_PERIOD:
        counts.popleft()
    since, *before = counts[0]
    if since == at:
        return None, None
    return (emitted - before[0]) / (at - since) * 1000, (acked - before[1]) / (at - since) * 1000
