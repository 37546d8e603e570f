"""The last minutes of a system, as lines for charts: what each look at it found, until there are too many."""

from __future__ import annotations

import datetime as dt
from collections import deque
from collections.abc import Mapping
from typing import Any, Final, Literal

Measure = Literal["in", "rate", "lag", "watermark"]
Point = list[float | None]

_MOST: Final = 300  # looks


class History:
    """Measures by name. A name that is not there any more is forgotten when its last point is.

    >>> history = History()
    >>> for second, rate in ((1, 20.0), (2, None)):
    ...     view = {"records_per_second": rate, "lag": 3, "stages": [{"label": "count", "lag_seconds": 1.5}]}
    ...     history.add({"now": f"1970-01-01T00:00:0{second}Z", "views": {"hits": view}, "topics": {}})
    >>> history.lines("rate"), history.lines("watermark")
    ({'hits': [[1000.0, 20.0], [2000.0, None]]}, {'hits · count': [[1000.0, 1.5], [2000.0, 1.5]]})
    """

    def __init__(self, most: int = _MOST) -> None:
        self._looks: deque[tuple[float, dict[tuple[Measure, str], float | None]]] = deque(maxlen=most)

    def add(self, status: Mapping[str, Any]) -> None:
        """Remembers what a look found."""
        found: dict[tuple[Measure, str], float | None] = {}
        for name, topic in status["topics"].items():
            found["in", name] = topic["records_per_second"]
        for name, view in status["views"].items():
            found["rate", name] = view["records_per_second"]
            found["lag", name] = view["lag"]
            for stage in view["stages"]:
                found["watermark", f"{name} · {stage['label']}"] = stage["lag_seconds"]
        self._looks.append((milliseconds(status["now"]), found))

    def lines(self, measure: Measure) -> dict[str, list[Point]]:
        """The points of each line, oldest first; where a line has no value, it has a gap."""
        names = dict.fromkeys(name for _, found in self._looks for what, name in found if what == measure)
        return {name: [[at, found.get((measure, name))] for at, found in self._looks] for name in names}


def milliseconds(text: str) -> float:
    """A time of the API, as charts have it.

    >>> milliseconds("1970-01-01T00:00:01.5Z")
    1500.0
    """
    return dt.datetime.fromisoformat(text).timestamp() * 1000
