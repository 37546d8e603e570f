"""The history of a system: the measures of the last polls, as lines for charts."""

from __future__ import annotations

import datetime as dt
from collections import deque
from collections.abc import Mapping
from typing import Any, Final, Literal

Measure = Literal["in", "rate", "lag", "watermark", "emitted", "acked", "complete", "slowest", "queued", "pending"]
Point = list[float | None]
Measurements = dict[tuple[Measure, str], float | None]
"""What one poll measured, by measure and by the name of a view, a topic or a stage."""

_MAX_POLLS: Final = 300
_MAX_POINTS: Final = 100  # of a line; more would not be seen, and are sent to every page each second


class History:
    """Measures by name. A name that is gone is forgotten with its last point.

    >>> history = History()
    >>> for second, rate in ((1, 20.0), (2, None)):
    ...     view = {"records_per_second": rate, "lag": 3, "stages": [{"label": "count", "lag_seconds": 1.5}]}
    ...     history.add({"now": f"1970-01-01T00:00:0{second}Z", "views": {"hits": view}, "topics": {}})
    >>> history.lines("rate"), history.lines("watermark")
    ({'hits': [[1000.0, 20.0], [2000.0, None]]}, {'hits · count': [[1000.0, 1.5], [2000.0, 1.5]]})
    """

    def __init__(self, max_polls: int = _MAX_POLLS) -> None:
        self._polls: deque[tuple[int, float, Measurements]] = deque(maxlen=max_polls)
        self._number = 0

    def add(self, status: Mapping[str, Any]) -> None:
        """Adds a status of the system."""
        measured: Measurements = {}
        for name, topic in status["topics"].items():
            measured["in", name] = topic["records_per_second"]
        for name, view in {**status["views"], **status.get("pipelines", {})}.items():
            measured["rate", name] = view["records_per_second"]
            measured["lag", name] = view["lag"]
            for stage in view["stages"]:
                measured["watermark", f"{name} · {stage['label']}"] = stage["lag_seconds"]
        self.add_measurements(milliseconds(status["now"]), measured)

    def add_measurements(self, at: float, measured: Measurements) -> None:
        """Adds what was measured at a time, which is in milliseconds."""
        self._polls.append((self._number, at, measured))
        self._number += 1

    def lines(self, measure: Measure) -> dict[str, list[Point]]:
        """Returns the points of each line, oldest first; where a line has no value, it has a gap.

        Of many polls these are every second or third, and always the last: the same ones as long as they are there.
        """
        names = dict.fromkeys(name for _, _, measured in self._polls for kind, name in measured if kind == measure)
        step = -(-len(self._polls) // _MAX_POINTS)
        drawn = [poll for poll in self._polls if poll[0] % step == 0 or poll is self._polls[-1]]
        return {name: [[at, measured.get((measure, name))] for _, at, measured in drawn] for name in names}


def milliseconds(text: str) -> float:
    """Converts a time of the API to that of charts.

    >>> milliseconds("1970-01-01T00:00:01.5Z")
    1500.0
    """
    return dt.datetime.fromisoformat(text).timestamp() * 1000
