"""Plots the result of a statement: its numbers over a column of times or, without one, over a column of names."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from headrace.server.page.theme import chart

_MAX_LINES: Final = 4
_MAX_POINTS: Final = 400


def plot_result(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, Any] | None:
    """Returns the options of a chart; None if there are no numbers, or nothing to plot them over.

    >>> options = plot_result(["at", "n"], [["2026-01-31T12:00:00Z", 3], ["2026-01-31T11:00:00Z", 2]])
    >>> [(series["name"], series["type"], series["data"]) for series in options["series"]]
    [('n', 'line', [[1769857200000.0, 2], [1769860800000.0, 3]])]
    >>> options = plot_result(["symbol", "n"], [["IBM", 3], [None, 2]])
    >>> options["xAxis"]["data"], options["series"][0]["type"], options["series"][0]["data"]
    (['IBM', '–'], 'bar', [3, 2])
    >>> plot_result(["n"], [[1]])
    """
    rows = rows[:_MAX_POINTS]
    cells = {at: [row[at] for row in rows] for at in range(len(columns))}
    numbers = [at for at, values in cells.items() if _are_numbers(values)][:_MAX_LINES]
    if not rows or not numbers:
        return None
    for values in cells.values():
        times = [_milliseconds(value) for value in values]
        if None not in times:
            return chart([_line(columns[n], times, cells[n]) for n in numbers])
    names = next((values for values in cells.values() if any(isinstance(value, str) for value in values)), None)
    if names is None:
        return None
    axis = {"type": "category", "data": ["–" if name is None else str(name) for name in names]}
    series = [{"type": "bar", "name": columns[at], "data": cells[at], "barMaxWidth": 36} for at in numbers]
    return chart(series, axis=axis)


def _are_numbers(values: Sequence[Any]) -> bool:
    return any(value is not None for value in values) and all(
        value is None or (isinstance(value, int | float) and not isinstance(value, bool)) for value in values
    )


def _milliseconds(value: Any) -> float | None:
    """Returns a time as the JSON of an answer has it; None if it is none."""
    if not isinstance(value, str) or len(value) < len("2026-01-31T12:00"):
        return None
    try:
        read = datetime.fromisoformat(value)
    except ValueError:
        return None
    return (read if read.tzinfo is not None else read.replace(tzinfo=UTC)).timestamp() * 1000


def _line(name: str, times: Sequence[Any], values: Sequence[Any]) -> dict[str, Any]:
    points = sorted([time, value] for time, value in zip(times, values, strict=True) if value is not None)
    return {"type": "line", "name": name, "data": points, "symbolSize": 6, "lineStyle": {"width": 2}}
