"""Dead letters: records that no view could take, why, and how many of each kind there were."""

from __future__ import annotations

from typing import Any, Final

from nicegui import ui

from headrace.server.page import humantext
from headrace.server.page.context import PageContext
from headrace.server.page.listings import Listing, Number
from headrace.server.page.poller import Snapshot

_MOST: Final = 200
_NONE: Final = "No record has been refused: every one that came was an event of its topic."


class Letters:
    """Counts by reason, and the newest letters."""

    def __init__(self, context: PageContext) -> None:
        self.context = context
        self._bad: object = None
        if context.service.operations is None:
            ui.label(
                "This server answers from a store alone. Dead letters are kept by a system that runs: headrace up."
            ).classes("hr-empty")
            return
        with ui.element("div").classes("hr-stack"):
            with ui.element("section").classes("hr-card"):
                ui.label("By reason").classes("hr-title")
                self._reasons = Listing(("View", "Step", "Reason", Number("Records")), _NONE, name="bad")
            with ui.element("section").classes("hr-card"):
                ui.label(f"The newest {_MOST}").classes("hr-title")
                names = ("Time", "View", "Position", "Reason", "Message", "Record")
                columns = [{"name": each, "label": each, "field": each, "align": "left"} for each in names]
                self._letters = ui.table(columns=columns, rows=[], row_key="id", pagination=20).props("flat dense")
                self._letters.classes("hr-grid").props["data-name"] = "letters"
                self._none = ui.label(_NONE).classes("hr-empty")

    async def show(self, snapshot: Snapshot) -> None:
        operations = self.context.service.operations
        if operations is None:
            return
        bad = [
            (name, step, reason, n)
            for name, view in snapshot.status["views"].items()
            for step, reasons in view["bad"].items()
            for reason, n in reasons.items()
        ]
        self._reasons.show([(*texts, Number(humantext.count(n))) for *texts, n in bad])
        if bad != self._bad:  # letters are read again only if there are others
            self._bad = bad
            found = await self.context.pool.run(lambda: operations.dead_letters(_MOST))
            self._letters.set_visibility(bool(found))
            self._none.set_visibility(not found)
            self._letters.rows = [_row(number, each) for number, each in enumerate(found)]


def _row(number: int, letter: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": number,
        "Time": humantext.time(letter["time"]),
        "View": letter["view"],
        "Position": letter["position"],
        "Reason": letter["reason"],
        "Message": letter["message"],
        "Record": letter["record"],
    }
