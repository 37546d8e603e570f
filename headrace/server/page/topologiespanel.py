"""The panel of topologies: a list of those that run, and one of them in full."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from nicegui import ui

from headrace.server.page import humantext
from headrace.server.page.context import PageContext
from headrace.server.page.listings import Button, Cell, Chip, Kind, Listing, Number
from headrace.server.page.poller import Snapshot
from headrace.server.page.topologycard import TopologyCard
from headrace.server.page.topologyhistory import latency, spouts

STATE_CHIPS: Final[dict[str, Kind]] = {"active": "good", "failed": "bad", "rebalancing": "busy", "killed": "busy"}
"""The kinds of chips by state; that of an inactive topology is plain."""

_NO_CLUSTER: Final = "No cluster of topologies runs now; `headrace storm submit FILE NAME` starts one."
_NO_TOPOLOGIES: Final = "The cluster has no topologies; `headrace storm submit FILE NAME` runs one."


class TopologiesPanel:
    """Shows the list, and the topology that is chosen in it, which is the first by default."""

    def __init__(self, context: PageContext, chosen: str | None) -> None:
        self.context, self._chosen = context, chosen
        self._card: TopologyCard | None = None
        self._empty = ui.label(_NO_CLUSTER).classes("hr-empty")
        with ui.element("section").classes("hr-card") as self._list:
            with ui.element("div").classes("hr-head"):
                ui.label("Topologies").classes("hr-title")
                self._time = ui.label("").classes("hr-muted hr-small")
            numbers = ("Tasks", "Emitted", "Acked", "Complete, 99%", "Trees", "Errors", "Dead letters")
            self._listing = Listing(
                ("Topology", "", *map(Number, numbers), "Spouts"), _NO_TOPOLOGIES, name="topologies"
            )
        self._shown = ui.element("div").classes("hr-stack")

    async def show(self, snapshot: Snapshot) -> None:
        published = snapshot.topologies
        topologies = {topology["name"]: topology for topology in published["topologies"]}
        self._empty.set_visibility(not published["runs"])
        self._list.set_visibility(published["runs"])
        self._time.set_text(f"as of {humantext.time(published['time'])}")
        self._listing.show([self._cells(topology) for topology in topologies.values()])
        if topologies and self._chosen not in topologies:  # before the first poll there are none
            self._chosen = next(iter(topologies))
        status = topologies.get(self._chosen or "")
        if self._card is not None and (status is None or self._card.name != self._chosen):
            self._shown.clear()
            self._card = None
        if status is not None:
            if self._card is None:
                with self._shown:
                    self._card = TopologyCard(self.context, status["name"])
            await self._card.show(status)

    def _cells(self, topology: dict[str, Any]) -> tuple[Cell, ...]:
        name, tasks = topology["name"], topology["tasks"]
        emitted, acked = self.context.poller.topology_history.rates.get(name, (None, None))
        throttled = sum(bool(task["throttled"]) for task in tasks)
        return (
            Button(name, name, self._chooser(name)),
            Chip(topology["state"], STATE_CHIPS.get(topology["state"], "plain")),
            Number(humantext.count(len(tasks))),
            Number(humantext.rate(emitted)),
            Number(humantext.rate(acked)),
            Number(humantext.seconds(latency(topology))),
            Number(humantext.count(topology["trees"])),
            Number(humantext.count(sum(task["errors"] for task in tasks))),
            Number(humantext.count(sum(task["dead"] for task in tasks))),
            f"{throttled} of {len(spouts(topology))} held back" if throttled else "free to emit",
        )

    def _chooser(self, name: str) -> Callable[[], Awaitable[None]]:
        return partial(self._choose, name)

    async def _choose(self, name: str) -> None:
        self._chosen = name
        await self.show(self.context.poller.snapshot)
