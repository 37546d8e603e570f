"""The panel of continuous SQL: an editor, the streams and views there are, and results that are kept up to date."""

from __future__ import annotations

import json
import logging
import time
from typing import Any, Final

from nicegui import ui

from headrace.model.errors import HeadraceError
from headrace.server.http.refusals import Refusal
from headrace.server.page import humantext
from headrace.server.page.context import PageContext
from headrace.server.page.listings import Listing
from headrace.server.page.poller import Snapshot
from headrace.server.page.resultplot import plot_result
from headrace.server.page.theme import chart
from headrace.server.service import StatementAnswer, Statements
from headrace.views.adhoc.sqlrequest import JsonLimits

_log = logging.getLogger("headrace.server")

_REST: Final = 5  # seconds for each second that a query took, until it is asked again
_LONGEST_REST: Final = 10  # seconds
_ROWS: Final = 1_000  # that the table shows
_LIMITS: Final[JsonLimits] = {"cells": 100_000, "bytes": 2 << 20}
_NO_OBJECTS: Final = "There are no streams and views; CREATE STREAM name (column type, ...) makes the first."
_EXAMPLE: Final = "SHOW VIEWS"


class SqlPanel:
    """Executes what is in the editor; the rows of a last SELECT are asked for again, as long as the tab is open."""

    def __init__(self, context: PageContext) -> None:
        assert context.service.statements is not None
        self.context, self._statements = context, context.service.statements
        self._live: str | None = None  # the SELECT that is asked again
        self._shown: StatementAnswer | None = None
        self._next_ask, self._asking = 0.0, False
        with ui.element("section").classes("hr-card"):
            with ui.element("div").classes("hr-head"):
                ui.label("Statements").classes("hr-title")
                ui.label("Ctrl-Enter executes them").classes("hr-muted hr-small")
                ui.element("div").classes("hr-space")
                run = ui.button("Run", icon="play_arrow", on_click=self._run, color=None).props("flat dense no-caps")
                run.classes("hr-action")
            self._editor = ui.codemirror(_EXAMPLE, language="SQL", line_wrapping=True, keymap={"Mod-Enter": self._run})
            self._editor.classes("hr-editor").props["data-name"] = "editor"
            self._error = ui.label("").classes("hr-error hr-pre").props("data-name=error")
            self._error.set_visibility(False)
        with ui.element("section").classes("hr-card") as self._results:
            with ui.element("div").classes("hr-head"):
                ui.label("Result").classes("hr-title")
                self._note = ui.label("").classes("hr-muted hr-small").props("data-name=note")
            self._messages = ui.label("").classes("hr-pre").props("data-name=messages")
            self._plot = ui.echart(chart([]), renderer="svg").classes("hr-chart hr-large")
            self._plot.props["data-name"] = "plot"
            self._table = ui.table(columns=[], rows=[], row_key="id", pagination=20).props("flat dense")
            self._table.classes("hr-grid").props["data-name"] = "result"
        self._results.set_visibility(False)
        with ui.element("section").classes("hr-card"):
            ui.label("Streams and views").classes("hr-title")
            self._listing = Listing(("Name", "", "Columns"), _NO_OBJECTS, name="objects")

    async def show(self, snapshot: Snapshot) -> None:
        try:
            listed = await self.context.pool.run(self._statements.catalog)
        except Refusal:  # too much is under way
            return
        self._listing.show(
            [
                (each["name"], kind, ", ".join(f"{name} {type_}" for name, type_ in each["columns"].items()))
                for kind, plural in (("stream", "streams"), ("view", "views"))
                for each in listed[plural]
            ]
        )
        if self._live is not None and time.monotonic() >= self._next_ask and "admin" in self.context.scopes():
            await self._ask(self._live)

    async def _run(self) -> None:
        """Executes what is in the editor."""
        if "admin" not in self.context.scopes():
            ui.notify("This needs a token for admin; sign in with one", type="warning")
            return
        self._live, self._shown = None, None
        await self._ask(str(self._editor.value or ""))

    async def _ask(self, text: str) -> None:
        if self._asking:
            return
        self._asking, began = True, time.monotonic()
        try:
            answers = await self.context.pool.run(lambda: _execute(self._statements, text))
            self._error.set_visibility(False)
            self._show(text, answers)
        except (HeadraceError, Refusal) as refused:
            self._live = None
            self._fail(str(refused))
        except Exception:
            _log.exception("no answer for the page")
            self._live = None
            self._fail("This failed inside the server; its log says how.")
        finally:
            self._asking = False
            self._next_ask = time.monotonic() + min(_REST * (time.monotonic() - began), _LONGEST_REST)

    def _fail(self, reason: str) -> None:
        self._error.set_text(reason)
        self._error.set_visibility(True)

    def _show(self, text: str, answers: list[StatementAnswer]) -> None:
        """Shows the messages, and the rows of the last statement that has some."""
        rows = answers[-1] if answers and answers[-1].columns is not None else None
        if rows is not None and len(answers) == 1:
            self._live = text
        if rows is not None and rows == self._shown:
            return
        self._shown = rows
        self._results.set_visibility(True)
        self._messages.set_text("\n".join(each.message for each in answers if each.columns is None))
        self._table.set_visibility(rows is not None)
        plotted = None
        if rows is not None:
            found = json.loads(rows.rows)
            more = " and more" if rows.truncated or len(found) > _ROWS else ""
            self._note.set_text(f"{humantext.some(len(found), 'row')}{more}, asked for again while this tab is open")
            names = rows.columns or []
            self._table.columns = [_column(at, name) for at, name in enumerate(names)]
            self._table.rows = [
                {"id": number, **{f"c{at}": humantext.value(cell) for at, cell in enumerate(row)}}
                for number, row in enumerate(found[:_ROWS])
            ]
            plotted = plot_result(names, found[:_ROWS])
        else:
            self._note.set_text("")
        self._plot.set_visibility(plotted is not None)
        if plotted is not None:
            self._plot.options.clear()
            self._plot.options.update(plotted)
            self._plot.update()


def _execute(statements: Statements, text: str) -> list[StatementAnswer]:
    return statements.execute(text, _LIMITS)


def _column(at: int, label: str) -> dict[str, Any]:
    return {"name": f"c{at}", "field": f"c{at}", "label": label, "align": "left"}
