"""The panel of dead letters: records that no view or source could take, with the reasons, and counts by reason."""

from __future__ import annotations

from typing import Any, Final

from nicegui import ui

from headrace.server.page import humantext
from headrace.server.page.context import PageContext
from headrace.server.page.listings import Listing, Number
from headrace.server.page.poller import Snapshot
from headrace.views.systemstatus import DeadLetterJson

_LIMIT: Final = 200
_NONE: Final = "No record has been refused: every one was an event of its topic."


class DeadLettersPanel:
    """Shows counts by reason, and the newest dead letters."""

    def __init__(self, context: PageContext) -> None:
        self.context = context
        self._counts: object = None
        if context.service.operations is None:
            ui.label(
                "This server answers from a store alone. A system that runs has dead letters: headrace up."
            ).classes("hr-empty")
            return
        reader = "Pipeline" if context.service.pipelines else "View"
        with ui.element("div").classes("hr-stack"):
            with ui.element("section").classes("hr-card"):
                ui.label("By reason").classes("hr-title")
                self._reasons = Listing((reader, "Step", "Reason", Number("Records")), _NONE, name="bad")
            with ui.element("section").classes("hr-card"):
                ui.label("The last of each source" if context.service.pipelines else f"The newest {_LIMIT}").classes(
                    "hr-title"
                )
                names = ("Time", "View", "Position", "Reason", "Message", "Record")
                columns = [
                    {"name": name, "label": reader if name == "View" else name, "field": name, "align": "left"}
                    for name in names
                ]
                self._letters = ui.table(columns=columns, rows=[], row_key="id", pagination=20).props("flat dense")
                self._letters.classes("hr-grid").props["data-name"] = "letters"
                self._none = ui.label(_NONE).classes("hr-empty")

    async def show(self, snapshot: Snapshot) -> None:
        operations = self.context.service.operations
        if operations is None:
            return
        counts = [
            (name, step, reason, count)
            for name, view in {**snapshot.status["views"], **snapshot.status.get("pipelines", {})}.items()
            for step, reasons in view["bad"].items()
            for reason, count in reasons.items()
        ]
        self._reasons.show([(*texts, Number(humantext.count(count))) for *texts, count in counts])
        if counts != self._counts:  # dead letters are read again only if there are others
            self._counts = counts
            letters = await self.context.pool.run(lambda: operations.dead_letters(_LIMIT))
            self._letters.set_visibility(bool(letters))
            self._none.set_visibility(not letters)
            self._letters.rows = [_row(number, letter) for number, letter in enumerate(letters)]


def _row(number: int, letter: DeadLetterJson) -> dict[str, Any]:
    return {
        "id": number,
        "Time": humantext.time(letter["time"]),
        "View": letter["view"],
        "Position": letter["position"],
        "Reason": letter["reason"],
        "Message": letter["message"],
        "Record": letter["record"],
    }
