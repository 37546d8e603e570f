"""The panel of a script's pipelines: rates, lags and watermarks, and a card for each run."""

from __future__ import annotations

from nicegui import ui

from headrace.server.page import humantext
from headrace.server.page.context import PageContext
from headrace.server.page.livecharts import LiveCharts
from headrace.server.page.poller import Snapshot
from headrace.server.page.runcard import RunCard
from headrace.server.page.tiles import Tile, furthest_behind
from headrace.views.systemstatus import PipelineStatus


class PipelinesPanel:
    """Shows tiles, charts, and a card for each run, the newest first."""

    def __init__(self, context: PageContext) -> None:
        self.context = context
        self._cards: dict[str, RunCard] = {}
        with ui.element("div").classes("hr-tiles"):
            names = ("Pipelines", "Records in", "Behind", "Watermark", "Bad records")
            self._tiles = {name: Tile(name) for name in names}
        self._charts = LiveCharts(context.poller.history)
        self._over = ui.label("The script is over. This page is served no longer than its command runs.")
        self._over.classes("hr-empty hr-over")
        self._runs = ui.element("div").classes("hr-stack")
        self._empty = ui.label("No pipeline has begun yet.").classes("hr-empty")

    async def show(self, snapshot: Snapshot) -> None:
        runs = snapshot.status.get("pipelines", {})
        self._show_tiles(list(runs.values()))
        self._charts.show()
        self._over.set_visibility(snapshot.status.get("over", False))
        self._empty.set_visibility(not runs)
        for name, run in runs.items():
            if name not in self._cards:
                with self._runs:
                    self._cards[name] = RunCard(name)
                self._cards[name].move_to_top()
            self._cards[name].show(run, _facts(run))
        for name in self._cards.keys() - runs.keys():
            self._cards.pop(name).remove()

    def _show_tiles(self, runs: list[PipelineStatus]) -> None:
        running = [run for run in runs if run["state"] == "running"]
        rates = [run["records_per_second"] for run in running if run["records_per_second"] is not None]
        lags = [run["lag"] for run in running if run["lag"] is not None]
        bad = sum(count for run in runs for reasons in run["bad"].values() for count in reasons.values())
        self._tiles["Pipelines"].show(f"{len(running)} of {len(runs)}", "running")
        self._tiles["Records in"].show(humantext.rate(sum(rates) if rates else None), "of pipelines that run")
        self._tiles["Behind"].show(
            humantext.count(sum(lags)) if lags else humantext.NONE, "records of topics to be read"
        )
        self._tiles["Watermark"].show(*furthest_behind([stage for run in running for stage in run["stages"]]))
        self._tiles["Bad records"].show(humantext.count(bad), "refused by sources")


def _facts(run: PipelineStatus) -> list[str]:
    """Describes a run in a few words."""
    facts: list[str] = [run["kind"]]
    if run["kind"] == "batch" and run["state"] == "running":
        facts.append(run["step"])
        if run["tasks"]:
            facts.append(f"{run['tasks_done']:,} of {run['tasks']:,} tasks")
    if run["batches"] is not None:
        took = "" if run["batch_seconds"] is None else f", the last in {humantext.seconds(run['batch_seconds'])}"
        facts.append(f"{humantext.some(run['batches'], 'micro-batch')}{took}")
    if run["records_per_second"] is not None and run["state"] == "running":
        facts.append(humantext.rate(run["records_per_second"]))
    if run["lag"] is not None:
        facts.append(f"{humantext.count(run['lag'])} behind")
    lasted = humantext.seconds(run["seconds"])
    facts.append(f"for {lasted}" if run["state"] == "running" else f"took {lasted}")
    return facts
