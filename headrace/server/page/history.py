"""The last minutes of a system, as lines for charts: what each look at it found, until there are too many."""

from __future__ import annotations

import datetime as dt
from collections import deque
from collections.abc import Mapping
from typing import Any, Final, Literal

Measure = Literal["in", "rate", "lag", "watermark", "emitted", "acked", "complete", "slowest", "queued", "pending"]
Point = list[float | None]
Found = dict[tuple[Measure, str], float | None]
"""What a look found: measures, each of somebody by name."""

_MOST: Final = 300  # looks
_DRAWN: Final = 100  # points of a line; more would not be snapshot, and are sent to every page each second


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
        self._looks: deque[tuple[int, float, Found]] = deque(maxlen=most)
        self._number = 0

    def add(self, status: Mapping[str, Any]) -> None:
        """Remembers what a look at a system found."""
        found: Found = {}
        for name, topic in status["topics"].items():
            found["in", name] = topic["records_per_second"]
        for name, view in status["views"].items():
            found["rate", name] = view["records_per_second"]
            found["lag", name] = view["lag"]
            for stage in view["stages"]:
                found["watermark", f"{name} · {stage['label']}"] = stage["lag_seconds"]
        self.note(milliseconds(status["now"]), found)

    def note(self, at: float, found: Found) -> None:
        """Remembers what a look at this time, in milliseconds, found."""
        self._looks.append((self._number, at, found))
        self._number += 1

    def lines(self, measure: Measure) -> dict[str, list[Point]]:
        """The points of each line, oldest first; where a line has no value, it has a gap.

        Of many looks these are every second or third, and always the last: the same ones as long as they are there.
        """
        names = dict.fromkeys(name for _, _, found in self._looks for what, name in found if what == measure)
        every = -(-len(self._looks) // _DRAWN)
        drawn = [look for look in self._looks if look[0] % every == 0 or look is self._looks[-1]]
        return {name: [[at, found.get((measure, name))] for _, at, found in drawn] for name in names}


def milliseconds(text: str) -> float:
    """A time of the API, as charts have it.

    >>> milliseconds("1970-01-01T00:00:01.5Z")
    1500.0
    """
    return dt.datetime.fromisoformat(text).timestamp() * 1000
