"""The overview: rates, lags and watermarks, and the pipeline of every view with its counts."""

from __future__ import annotations

from typing import Any, Final

from nicegui import ui

from headrace.server.page import humantext
from headrace.server.page.context import PageContext
from headrace.server.page.graphsvg import graph_svg
from headrace.server.page.history import Measure
from headrace.server.page.listings import Chip, Kind, Listing, Number, add_chip
from headrace.server.page.poller import Snapshot
from headrace.server.page.theme import chart, line
from headrace.views.systemstatus import StageStatus, ViewStatus

_CHARTS: Final[tuple[tuple[Measure, str, str], ...]] = (
    ("rate", "Records a second", ""),
    ("lag", "Records behind", ""),
    ("watermark", "Watermark behind the clock", " s"),
)
_STATE_CHIPS: Final[dict[str | None, tuple[str, Kind]]] = {
    "running": ("running", "good"),
    "failed": ("failed", "bad"),
    "stopped": ("stopped", "plain"),
    None: ("stored", "plain"),
}


class OverviewPanel:
    """Shows tiles, charts, and a card for each view."""

    def __init__(self, context: PageContext) -> None:
        self.context = context
        self._cards: dict[str, _Card] = {}
        with ui.element("div").classes("hr-tiles"):
            names = ("Views", "Records in", "Behind", "Watermark", "Bad records")
            self._tiles = {name: _Tile(name) for name in (names if context.service.operations else names[:2])}
        self._charts: dict[Measure, ui.echart] = {}
        if context.service.operations is not None:
            with ui.element("div").classes("hr-charts"):
                for measure, title, unit in _CHARTS:
                    with ui.element("section").classes("hr-card"):
                        ui.label(title).classes("hr-title")
                        self._charts[measure] = ui.echart(chart([], unit=unit), renderer="svg").classes("hr-chart")
        else:
            ui.label(
                "This server answers from a store alone; a system that runs has rates, stages and jobs: headrace up."
            ).classes("hr-muted")
        self._views = ui.element("div").classes("hr-stack")
        self._empty = ui.label("There are no views; declare one with @hr.view in the app.").classes("hr-empty")

    async def show(self, snapshot: Snapshot) -> None:
        self._show_tiles(snapshot)
        for measure, plotted in self._charts.items():
            plotted.options["series"] = self._lines(measure)
            plotted.update()
        views = snapshot.status["views"]
        self._empty.set_visibility(not views)
        for name, view in views.items():
            if name not in self._cards:
                with self._views:
                    self._cards[name] = _Card(name)
            self._cards[name].show(view)

    def _lines(self, measure: Measure) -> list[dict[str, Any]]:
        history = self.context.poller.history
        lines = [line(name, points) for name, points in history.lines(measure).items()]
        if measure == "rate":  # what comes in, beside what is read of it
            lines += [line(f"into {name}", points, dashed=True) for name, points in history.lines("in").items()]
        return lines

    def _show_tiles(self, snapshot: Snapshot) -> None:
        views, topics = snapshot.status["views"].values(), snapshot.status["topics"].values()
        running = sum(view["state"] == "running" for view in views)
        rates = [topic["records_per_second"] for topic in topics if topic["records_per_second"] is not None]
        lags = [view["lag"] for view in views if view["lag"] is not None]
        stages = [stage for view in views for stage in view["stages"]]
        bad = sum(count for view in views for reasons in view["bad"].values() for count in reasons.values())
        ends = sum(partition["end"] for topic in topics for partition in topic["partitions"])
        self._tiles["Views"].show(
            f"{running} of {len(views)}" if snapshot.runs else humantext.count(len(views)),
            "running" if snapshot.runs else "in the store",
        )
        self._tiles["Records in"].show(
            humantext.rate(sum(rates)) if rates else humantext.count(ends),
            f"{humantext.count(ends)} in {humantext.some(len(topics), 'topic')}",
        )
        if not snapshot.runs:
            return
        self._tiles["Behind"].show(
            humantext.count(sum(lags)) if lags else humantext.NONE, "records to be read by views"
        )
        self._tiles["Watermark"].show(*_watermark(stages))
        self._tiles["Bad records"].show(humantext.count(bad), "refused by views")


class _Tile:
    """A number with its name above and a remark below."""

    def __init__(self, name: str) -> None:
        with ui.element("section").classes("hr-card hr-tile") as tile:
            tile.props["data-name"] = name
            ui.label(name).classes("hr-muted")
            self._number = ui.label(humantext.NONE).classes("hr-number")
            self._remark = ui.label("").classes("hr-muted hr-small")

    def show(self, number: str, remark: str) -> None:
        self._number.set_text(number)
        self._remark.set_text(remark)


class _Card:
    """Shows a view: the provenance of its answers, its pipeline and its stages."""

    def __init__(self, name: str) -> None:
        self._svg = ""
        with ui.element("section").classes("hr-card") as card:
            card.props["data-view"] = name
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
        self._shown_state: str | None = ""

    def show(self, view: ViewStatus) -> None:
        if view["state"] != self._shown_state:
            self._shown_state = view["state"]
            self._state.clear()
            with self._state:
                add_chip(Chip(*_STATE_CHIPS.get(view["state"], (str(view["state"]), "plain"))))
        self._facts.set_text(" · ".join(_facts(view)))
        self._error.set_text(view["error"] or "")
        self._error.set_visibility(bool(view["error"]))
        graph = view["graph"]
        svg = "" if not graph else graph_svg(graph, across=True) + graph_svg(graph, across=False)
        if svg != self._svg:
            self._svg = svg
            self._graph.set_content(svg)
        self._stages.set_visibility(view["state"] is not None)
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


def _watermark(stages: list[StageStatus]) -> tuple[str, str]:
    """Describes the watermark that is furthest behind the clock."""
    furthest = max(stages, key=lambda stage: stage["lag_seconds"] or 0, default=None)
    if furthest is None or furthest["lag_seconds"] is None:
        return humantext.NONE, "behind the clock, at most"
    day = humantext.time(furthest["watermark"]).partition(" ")[0]
    shown = humantext.behind(furthest["lag_seconds"], history=day)
    return shown, "reading history" if shown == day else "behind the clock, at most"


def _facts(view: ViewStatus) -> list[str]:
    """Describes a view in a few words."""
    provenance, facts = view["provenance"], []
    if view["topic"] is not None:
        facts.append(f"from {view['topic']}")
    if view["records_per_second"] is not None:
        facts.append(humantext.rate(view["records_per_second"]))
    if view["lag"] is not None:
        facts.append(f"{humantext.count(view['lag'])} behind")
    if view["batches"] is not None:
        took = "" if view["batch_seconds"] is None else f", the last in {humantext.seconds(view['batch_seconds'])}"
        facts.append(f"{humantext.some(view['batches'], 'micro-batch')}{took}")
    facts.append("no batch version" if provenance["version"] is None else f"batch version {provenance['version']}")
    if provenance["freshness"] is not None:
        facts.append(f"fresh as of {humantext.seconds(provenance['freshness'])} ago")
    return facts
