"""The panel of batch versions: those of every view, rolling back to one, computing a new one, and jobs."""

from __future__ import annotations

from typing import Final

from nicegui import ui

from headrace.server.page import humantext
from headrace.server.page.context import PageContext
from headrace.server.page.dialogs import button, confirm
from headrace.server.page.listings import Button, Cell, Chip, Kind, Listing, Number
from headrace.server.page.poller import Snapshot
from headrace.views.jsonencoding import VersionJson
from headrace.views.systemstatus import JobStatus, ViewStatus

_JOB_CHIPS: Final[dict[str, Kind]] = {"running": "busy", "done": "good", "failed": "bad"}


class BatchPanel:
    """Shows a card for each view, and the jobs."""

    def __init__(self, context: PageContext) -> None:
        self.context = context
        self._cards: dict[str, _Card] = {}
        self._jobs: Listing | None = None
        self._empty = ui.label("There are no views, so there is nothing to compute.").classes("hr-empty")
        self._stack = ui.element("div").classes("hr-stack")
        if context.service.operations is not None:
            with ui.element("section").classes("hr-card"):
                ui.label("Jobs").classes("hr-title")
                self._jobs = Listing(
                    ("Job", "View", "Kind", "State", "Step", "Begun", Number("Took"), Number("Version"), "Error"),
                    "No batch has been computed since the system started; start one above.",
                    name="jobs",
                )

    async def show(self, snapshot: Snapshot) -> None:
        views = snapshot.status["views"]
        self._empty.set_visibility(not views)
        for name, view in views.items():
            if name not in self._cards:
                with self._stack:
                    self._cards[name] = _Card(self.context, name)
            busy = any(
                job["view"] == name and job["state"] in ("waiting", "running") for job in snapshot.status["jobs"]
            )
            self._cards[name].show(view, busy)
        if self._jobs is not None:
            newest_first = sorted(snapshot.status["jobs"], key=lambda job: -job["id"])
            self._jobs.show([_job_cells(job) for job in newest_first])


class _Card:
    """Shows the versions of a view, and buttons to those who may press them."""

    def __init__(self, context: PageContext, name: str) -> None:
        self.context, self.name = context, name
        self._admin = "admin" in context.scopes()
        self._buttons: list[ui.button] = []
        with ui.element("section").classes("hr-card") as card:
            card.props["data-view"] = name
            with ui.element("div").classes("hr-head"):
                ui.label(name).classes("hr-title")
                self._facts = ui.label("").classes("hr-muted hr-small")
                ui.element("div").classes("hr-space")
                if context.service.operations is not None and self._admin:
                    self._buttons = [
                        button("Compute", "calculate", lambda: self._compute(incremental=False)),
                        button("Compute incremental", "add_chart", lambda: self._compute(incremental=True)),
                    ]
            self._listing = Listing(
                ("Version", "", Number("Rows"), "Made", "Boundary", "Built on", ""),
                "No batch version yet: answers come from the speed layer alone.",
                name=f"versions {name}",
            )

    def show(self, view: ViewStatus, busy: bool) -> None:
        provenance = view["provenance"]
        for compute in self._buttons:
            compute.set_enabled(not busy)
        boundary = humantext.offsets(provenance["boundary"])
        reached = f"speed layer has reached {humantext.offsets(provenance['reached'])}"
        self._facts.set_text(
            reached
            if provenance["version"] is None
            else f"answers come from version {provenance['version']} up to {boundary}, {reached}"
        )
        newest_first = sorted(view["versions"], key=lambda version: -version["version"])
        self._listing.show([self._version_cells(version) for version in newest_first])

    def _version_cells(self, version: VersionJson) -> tuple[Cell, ...]:
        number, roll_back = version["version"], None
        if self._admin and not version["current"]:
            roll_back = Button("Roll back", number, lambda: self._roll_back(number))
        base = version["base"]
        return (
            str(number),
            Chip("current", "good") if version["current"] else Chip("kept"),
            Number(humantext.count(version["rows"])),
            humantext.time(version["made"]),
            humantext.offsets(version["boundary"]),
            "all events" if base is None else f"version {base}",
            roll_back,
        )

    async def _compute(self, *, incremental: bool) -> None:
        operations = self.context.service.operations
        assert operations is not None
        job = await self.context.run(lambda: operations.compute(self.name, incremental=incremental))
        if job is not None:
            ui.notify(f"A batch of {self.name} has started", type="positive")
            await self.context.poller.poll()

    async def _roll_back(self, version: int) -> None:
        question = f"Answers of {self.name} will come from version {version}, and from all events since its boundary."
        if not await confirm(f"Roll back to version {version}?", question, "Roll back"):
            return
        view = self.context.service.views[self.name]
        done = await self.context.run(lambda: view.rollback(version))
        if done is not None:
            ui.notify(f"{self.name} answers from version {done}", type="positive")
            await self.context.poller.poll()


def _job_cells(job: JobStatus) -> tuple[Cell, ...]:
    return (
        str(job["id"]),
        job["view"],
        "incremental" if job["incremental"] else "all events",
        Chip(job["state"], _JOB_CHIPS.get(job["state"], "plain")),
        job["step"],
        humantext.time(job["started"]),
        Number(humantext.seconds(job["seconds"])),
        Number(humantext.count(job["version"])),
        job["error"] or "",
    )
