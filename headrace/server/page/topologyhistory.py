"""The last minutes of topologies, for charts: how fast they are, how long their tuples take, and how many wait."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.server.page.history import Found, History, Measure, Point, milliseconds


class TopologyHistory:
    """What each look found. Rates come from how much counts have grown since the look before.

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
        self._before: tuple[float, dict[str, tuple[int, int]]] | None = None
        self.rates: dict[str, tuple[float | None, float | None]] = {}
        """Of each topology, how many tuples its spouts emit, and how many are acked, a second."""

    def add(self, told: Mapping[str, Any]) -> None:
        """Remembers a look at topologies, as the API tells of them; one that found nothing new is none."""
        if told["time"] is None:
            self._before, self.rates = None, {}
            return
        at = milliseconds(told["time"])
        if self._before is not None and at <= self._before[0]:
            return
        before = self._before
        found: Found = {}
        counts: dict[str, tuple[int, int]] = {}
        self.rates = {}
        for each in told["topologies"]:
            name, tasks = each["name"], spouts(each)
            counts[name] = sum(task["emitted"] for task in tasks), sum(task["acked"] for task in tasks)
            self.rates[name] = emitted, acked = _rates(before, name, at, counts[name])
            found["emitted", name], found["acked", name] = emitted, acked
            found["complete", name], found["slowest", name] = latency(each, "complete_p50_ms"), latency(each)
            found["queued", name] = sum(task["queued"] or 0 for task in tasks)
            found["pending", name] = sum(task["pending"] or 0 for task in tasks)
        self._before = at, counts
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
    before: tuple[float, dict[str, tuple[int, int]]] | None, name: str, at: float, counts: tuple[int, int]
) -> tuple[float | None, float | None]:
    if before is None or name not in before[1]:
        return None, None
    seconds = (at - before[0]) / 1000
    emitted, acked = (
        (now - was) / seconds if now >= was else None for now, was in zip(counts, before[1][name], strict=True)
    )
    return emitted, acked
