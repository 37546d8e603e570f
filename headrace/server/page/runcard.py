"""A card that shows a pipeline that runs: that of a view, or one of a script."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from nicegui import ui

from headrace.engine.plan.graphsvg import graph_svg
from headrace.server.page import humantext
from headrace.server.page.listings import Cell, Chip, Kind, Listing, Number, add_chip
from headrace.views.systemstatus import MetricJson, PipelineStatus, ViewStatus

_STATE_CHIPS: Final[dict[str | None, tuple[str, Kind]]] = {
    "running": ("running", "good"),
    "failed": ("failed", "bad"),
    "stopped": ("stopped", "plain"),
    "done": ("done", "good"),
    None: ("stored", "plain"),
}


class RunCard:
    """Shows a pipeline: its state and a few facts, its graph, its stages and what they wait for, its own metrics."""

    def __init__(self, name: str) -> None:
        self._svg = ""
        with ui.element("section").classes("hr-card") as self._card:
            self._card.props["data-view"] = name
            with ui.element("div").classes("hr-head"):
                ui.label(name).classes("hr-title")
                self._state = ui.element("div")
                self._facts = ui.label("").classes("hr-muted hr-small")
            self._error = ui.label("").classes("hr-error")
            with ui.element("div").classes("hr-scroll"):
                self._graph = ui.html("").classes("hr-drawing")
            with ui.element("div") as self._stages:
                numbers = (Number("Behind"), Number("Held"), Number("Late"), Number("Refusal"))
                headers = ("Stage", "Watermark", "Output watermark", *numbers)
                self._listing = Listing(headers, "This pipeline has no stages with a watermark.", name=f"stages {name}")
            self._waiting = ui.label("").classes("hr-muted hr-small hr-waiting")
            with ui.element("div") as self._own:
                values = (Number("Value"), Number("Count"), Number("Least"), Number("Mean"), Number("Greatest"))
                self._metrics = Listing(("Transform", "Metric", "Kind", *values), "", name=f"metrics {name}")
        self._shown_state: str | None = ""

    def move_to_top(self) -> None:
        """Moves the card before all others."""
        self._card.move(target_index=0)

    def remove(self) -> None:
        """Removes the card."""
        self._card.delete()

    def show(self, view: ViewStatus | PipelineStatus, facts: Sequence[str]) -> None:
        """Shows a status."""
        if view["state"] != self._shown_state:
            self._shown_state = view["state"]
            self._state.clear()
            with self._state:
                add_chip(Chip(*_STATE_CHIPS.get(view["state"], (str(view["state"]), "plain"))))
        self._facts.set_text(" · ".join(facts))
        self._error.set_text(view["error"] or "")
        self._error.set_visibility(bool(view["error"]))
        graph = view["graph"]
        svg = "" if not graph else graph_svg(graph, across=True) + graph_svg(graph, across=False)
        if svg != self._svg:
            self._svg = svg
            self._graph.set_content(svg)
        self._stages.set_visibility(view["state"] is not None and view.get("kind") != "batch")
        self._listing.show(
            [
                (
                    stage["label"],
                    humantext.time(stage["watermark"]),
                    humantext.time(stage["output_watermark"]),
                    Number(humantext.behind(stage["lag_seconds"])),
                    Number(humantext.count(stage["held"])),
                    Number(humantext.count(stage["late"])),
                    Number(humantext.count(stage["refused"])),
                )
                for stage in view["stages"]
            ]
        )
        waiting = [stage for stage in view["stages"] if stage.get("waiting")]
        self._waiting.set_text("\n".join(f"{stage['label']} {stage['waiting']}" for stage in waiting))
        self._waiting.set_visibility(bool(waiting))
        metrics = view.get("metrics", [])
        self._own.set_visibility(bool(metrics))
        self._metrics.show([_metric_cells(metric) for metric in metrics])


def _metric_cells(metric: MetricJson) -> tuple[Cell, ...]:
    names = (metric["transform"], metric["name"], metric["kind"])
    if metric["kind"] != "distribution":
        return (*names, Number(humantext.count(metric["value"])), *[Number("")] * 4)
    mean = metric["value"] / metric["count"]
    numbers = (metric["value"], metric["count"], metric["min"], mean, metric["max"])
    return (*names, *(Number(humantext.count(number)) for number in numbers))
