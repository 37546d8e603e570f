"""Charts of the last minutes: rates, lags and watermarks of everything that runs."""

from __future__ import annotations

from typing import Any, Final

from nicegui import ui

from headrace.server.page.history import History, Measure
from headrace.server.page.theme import chart, line

_CHARTS: Final[tuple[tuple[Measure, str, str], ...]] = (
    ("rate", "Records a second", ""),
    ("lag", "Records behind", ""),
    ("watermark", "Watermark behind the clock", " s"),
)


class LiveCharts:
    """Shows three charts of a history."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._charts: dict[Measure, ui.echart] = {}
        with ui.element("div").classes("hr-charts"):
            for measure, title, unit in _CHARTS:
                with ui.element("section").classes("hr-card"):
                    ui.label(title).classes("hr-title")
                    self._charts[measure] = ui.echart(chart([], unit=unit), renderer="svg").classes("hr-chart")

    def show(self) -> None:
        """Shows what the history has now."""
        for measure, plotted in self._charts.items():
            plotted.options["series"] = self._lines(measure)
            plotted.update()

    def _lines(self, measure: Measure) -> list[dict[str, Any]]:
        lines = [line(name, points) for name, points in self._history.lines(measure).items()]
        if measure == "rate":  # what comes in, beside what is read of it
            lines += [line(f"into {name}", points, dashed=True) for name, points in self._history.lines("in").items()]
        return lines
