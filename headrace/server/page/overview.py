"""The overview: rates, lags and watermarks, and the pipeline of every view with its counts."""

from __future__ import annotations

from nicegui import ui

from headrace.server.page import humantext
from headrace.server.page.context import PageContext
from headrace.server.page.livecharts import LiveCharts
from headrace.server.page.poller import Snapshot
from headrace.server.page.runcard import RunCard
from headrace.server.page.tiles import Tile, furthest_behind
from headrace.views.systemstatus import ViewStatus


class OverviewPanel:
    """Shows tiles, charts, and a card for each view."""

    def __init__(self, context: PageContext) -> None:
        self.context = context
        self._cards: dict[str, RunCard] = {}
        with ui.element("div").classes("hr-tiles"):
            names = ("Views", "Records in", "Behind", "Watermark", "Bad records")
            self._tiles = {name: Tile(name) for name in (names if context.service.operations else names[:2])}
        self._charts: LiveCharts | None = None
        if context.service.operations is not None:
            self._charts = LiveCharts(context.poller.history)
        else:
            ui.label(
                "This server answers from a store alone; a system that runs has rates, stages and jobs: headrace up."
            ).classes("hr-muted")
        self._views = ui.element("div").classes("hr-stack")
        self._empty = ui.label("There are no views; declare one with @hr.view in the app.").classes("hr-empty")

    async def show(self, snapshot: Snapshot) -> None:
        self._show_tiles(snapshot)
        if self._charts is not None:
            self._charts.show()
        views = snapshot.status["views"]
        self._empty.set_visibility(not views)
        for name, view in views.items():
            if name not in self._cards:
                with self._views:
                    self._cards[name] = RunCard(name)
            self._cards[name].show(view, _facts(view))

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
        self._tiles["Watermark"].show(*furthest_behind(stages))
        self._tiles["Bad records"].show(humantext.count(bad), "refused by views")


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
