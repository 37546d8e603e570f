"""Plots an aggregate by window: the values of batch and speed, in two colours.

Counts and sums are stacked, since they add up. Others, such as distinct users, do not: they have bars for batch, and a
line for the merged value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from headrace.model.algebra import CombineFn, CountFn, SumFn
from headrace.model.times import MAX_TIME, MIN_TIME
from headrace.server.page.humantext import value
from headrace.server.page.theme import BATCH, MERGED, SPEED, chart
from headrace.views.query.queries import Row

MAX_BARS: Final = 400
"""Bars that a plot has room for."""


@dataclass(frozen=True)
class LayerRows:
    """The merged rows of an answer, and those of each layer alone."""

    merged: Sequence[Row]
    batch: Sequence[Row]
    speed: Sequence[Row]


def adds_up(fn: CombineFn[Any, Any, Any]) -> bool:
    """Tells whether the values of batch and speed may be added as numbers.

    >>> import headrace as hr
    >>> adds_up(hr.count().fn), adds_up(hr.approx_distinct("user").fn)
    (True, False)
    """
    return isinstance(fn, CountFn | SumFn)


def has_time(row: Row) -> bool:
    """Tells whether a row is of a window with a beginning; others are of all time.

    >>> has_time(Row({}, (0, 60), {})), has_time(Row({}, (MIN_TIME, MAX_TIME), {}))
    (True, False)
    """
    return MIN_TIME < row.window[0] < MAX_TIME


def plot(layers: LayerRows, aggregate: str, *, stacked: bool) -> dict[str, Any] | None:
    """Returns options of a chart of the newest windows, or of keys if there are no windows; None without numbers.

    >>> hour = (0, 3_600_000_000)
    >>> layers = LayerRows([Row({}, hour, {"n": 5})], [Row({}, hour, {"n": 3})], [Row({}, hour, {"n": 2})])
    >>> [(series["name"], series["type"], series["data"]) for series in plot(layers, "n", stacked=True)["series"]]
    [('batch', 'bar', [[0.0, 3]]), ('speed', 'bar', [[0.0, 2]])]
    >>> [(series["name"], series["type"], series["data"]) for series in plot(layers, "n", stacked=False)["series"]]
    [('batch', 'bar', [[0.0, 3]]), ('batch and speed', 'line', [[0.0, 5]])]
    """
    rows = [row for row in layers.merged if _is_number(row.values[aggregate])][-MAX_BARS:]
    if not rows:
        return None
    timed = all(map(has_time, rows))
    places = {_place(row): (row.window[0] / 1000 if timed else position) for position, row in enumerate(rows)}

    def points(layer: Sequence[Row]) -> list[list[float]]:
        # For every place, also where a layer has no row: bars are stacked by their position in the list.
        values = {_place(row): row.values[aggregate] for row in layer if _is_number(row.values[aggregate])}
        return [[at, values.get(place, 0)] for place, at in places.items()]

    batch: dict[str, Any] = {
        "name": "batch",
        "type": "bar",
        "data": points(layers.batch),
        "itemStyle": {"color": BATCH},
    }
    shared: dict[str, Any] = {"stack": "both"} if stacked else {}
    if stacked:
        other: dict[str, Any] = {
            "name": "speed",
            "type": "bar",
            "data": points(layers.speed),
            "itemStyle": {"color": SPEED},
            **shared,
        }
    else:
        drawn = {"lineStyle": {"width": 2}, "itemStyle": {"color": MERGED}, "symbolSize": 6}
        other = {"name": "batch and speed", "type": "line", "data": points(rows), **drawn}
    widest = {"barMaxWidth": 36, "barMinWidth": 1}
    series = [batch | shared | widest, other | (widest if stacked else {})]
    named = None if timed else {"type": "category", "data": [_name(row) for row in rows]}
    return chart(series, axis=named)


def _is_number(answer: Any) -> bool:
    return isinstance(answer, int | float) and not isinstance(answer, bool)


def _place(row: Row) -> tuple[Any, ...]:
    return (*row.key.values(), *row.window)


def _name(row: Row) -> str:
    return " · ".join(map(value, row.key.values()))
