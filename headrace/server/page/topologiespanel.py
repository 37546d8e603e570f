"""Topologies: a list of those that run, and one of them in full."""

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

STATES: Final[dict[str, Kind]] = {"active": "good", "failed": "bad", "rebalancing": "busy", "killed": "busy"}
"""The colours of states; an inactive topology has none."""

_NO_CLUSTER: Final = "No cluster of topologies runs now; `headrace storm submit FILE NAME` starts one."
_NONE: Final = "The cluster has no topologies; `headrace storm submit FILE NAME` runs one."


class Topologies:
    """The list, and the topology that is chosen in it: the first, if none is."""

    def __init__(self, context: PageContext, chosen: str | None) -> None:
        self.context, self._chosen = context, chosen
        self._card: TopologyCard | None = None
        self._empty = ui.label(_NO_CLUSTER).classes("hr-empty")
        with ui.element("section").classes("hr-card") as self._list:
            with ui.element("div").classes("hr-head"):
                ui.label("Topologies").classes("hr-title")
                self._time = ui.label("").classes("hr-muted hr-small")
            numbers = ("Tasks", "Emitted", "Acked", "Complete, 99%", "Trees", "Errors", "Dead letters")
            self._listing = Listing(("Topology", "", *map(Number, numbers), "Spouts"), _NONE, name="topologies")
        self._shown = ui.element("div").classes("hr-stack")

    async def show(self, snapshot: Snapshot) -> None:
        told = snapshot.topologies
        found = {each["name"]: each for each in told["topologies"]}
        self._empty.set_visibility(not told["runs"])
        self._list.set_visibility(told["runs"])
        self._time.set_text(f"as of {humantext.time(told['time'])}")
        self._listing.show([self._row(each) for each in found.values()])
        if self._chosen not in found:
            self._chosen = next(iter(found), None)
        if self._card is not None and self._card.name != self._chosen:
            self._shown.clear()
            self._card = None
        if self._chosen is not None:
            if self._card is None:
                with self._shown:
                    self._card = TopologyCard(self.context, self._chosen)
            await self._card.show(found[self._chosen])

    def _row(self, topology: dict[str, Any]) -> tuple[Cell, ...]:
        name, tasks = topology["name"], topology["tasks"]
        emitted, acked = self.context.poller.topology_history.rates.get(name, (None, None))
        held = sum(bool(task["throttled"]) for task in tasks)
        return (
            Button(name, name, self._chooser(name)),
            Chip(topology["state"], STATES.get(topology["state"], "plain")),
            Number(humantext.count(len(tasks))),
            Number(humantext.rate(emitted)),
            Number(humantext.rate(acked)),
            Number(humantext.seconds(latency(topology))),
            Number(humantext.count(topology["trees"])),
            Number(humantext.count(sum(task["errors"] for task in tasks))),
            Number(humantext.count(sum(task["dead"] for task in tasks))),
            f"{held} of {len(spouts(topology))} held back" if held else "free to emit",
        )

    def _chooser(self, name: str) -> Callable[[], Awaitable[None]]:
        return partial(self._choose, name)

    async def _choose(self, name: str) -> None:
        self._chosen = name
        await self.show(self.context.poller.snapshot)
