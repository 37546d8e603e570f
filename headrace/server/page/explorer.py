"""The panel to explore views: a plot of the values of batch and speed, and the rows with their provenance."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from nicegui import ui

from headrace.server.http.refusals import Refusal
from headrace.server.page import humantext
from headrace.server.page.context import PageContext
from headrace.server.page.plot import MAX_BARS, adds_up, plot
from headrace.server.page.poller import Snapshot
from headrace.server.page.questions import Match, Question, ask
from headrace.server.page.theme import chart
from headrace.views.declare.layout import Layout
from headrace.views.errors import ViewError
from headrace.views.jsonencoding import ProvenanceJson, encode_answer, encode_provenance
from headrace.views.stores.store import StoredView

_log = logging.getLogger("headrace.server")

_FLAT: Final = "flat dense no-caps"
_REST: Final = 20  # seconds for each second that a query took, until it is asked again


class ExplorerPanel:
    """Queries one view at a time, and again when its answers have changed."""

    def __init__(self, context: PageContext, view: str | None) -> None:
        self.context, self.views = context, context.service.views
        if not self.views:
            ui.label("There are no views; declare one with @hr.view in the app.").classes("hr-empty")
            return
        self._view = view if view is not None and view in self.views else next(iter(self.views))
        self._shown: tuple[Question, object] | None = None
        self._next_ask = 0.0
        self._after: str | None = None
        self._asking = False
        self._keys: dict[str, tuple[ui.select, ui.input]] = {}
        with ui.element("section").classes("hr-card"):
            with ui.element("div").classes("hr-controls") as self._controls:
                self._build_controls()
            self._error = ui.label("").classes("hr-error")
            self._note = ui.label("").classes("hr-muted hr-small")
            self._plot = ui.echart(chart([]), renderer="svg").classes("hr-chart hr-large")
            self._plot.props["data-name"] = "plot"
        with ui.element("section").classes("hr-card"):
            with ui.element("div").classes("hr-head"):
                ui.label("Rows").classes("hr-title")
                self._provenance = ui.label("").classes("hr-muted hr-small").props("data-name=provenance")
                ui.element("div").classes("hr-space")
                self._link = ui.link("as JSON", "/views", new_tab=True).classes("hr-link")
            self._table = ui.table(columns=[], rows=[], row_key="id", pagination=20).props("flat dense")
            self._table.classes("hr-grid").props["data-name"] = "rows"
            self._none = ui.label("").classes("hr-empty")
            with ui.element("div").classes("hr-buttons"):
                self._first = ui.button("First rows", on_click=lambda: self._turn_page(None), color=None).props(_FLAT)
                self._more = ui.button("Next rows", color=None).props(_FLAT)
                self._more.on_click(lambda: self._turn_page(self._next))
                for button in (self._first, self._more):
                    button.classes("hr-action")
        self._next: str | None = None

    async def show(self, snapshot: Snapshot) -> None:
        if self.views:
            await self._ask()

    # Asking

    def _layout(self) -> Layout:
        return self.views[self._view].layout

    def _question(self) -> Question:
        keys: dict[str, tuple[Match, str]] = {
            key: (match.value, text.value or "") for key, (match, text) in self._keys.items()
        }
        return Question(
            self._view,
            self._aggregate.value,
            keys,
            self._since.value or "",
            self._until.value or "",
            self._order.value == "largest",
            self._after,
        )

    async def _ask(self) -> None:
        """Queries the view if the question or the answer differ from what is shown."""
        if self._asking:
            return
        question, view = self._question(), self.views[self._view]
        self._asking = True
        try:
            provenance = await self.context.pool.run(view.provenance)
            place = (provenance.version, provenance.batch)
            same = self._shown is not None and self._shown[0] == question
            if self._shown == (question, place) or (same and time.monotonic() < self._next_ask):
                if same:
                    self._provenance.set_text(_provenance_text(encode_provenance(provenance)))
                return
            began = time.monotonic()
            answer = await self.context.pool.run(lambda: _prepare(view, question))
            self._next_ask = time.monotonic() + _REST * (time.monotonic() - began)
            self._shown = question, place
            self._show(question, answer)
        except (ViewError, Refusal) as refused:
            self._shown = question, None
            self._fail(str(refused))
        except Exception:
            _log.exception("no answer for the page")
            self._fail("This failed inside the server; its log says how.")
        finally:
            self._asking = False
        if self._question() != question:  # the visitor typed meanwhile
            await self._ask()

    def _fail(self, reason: str) -> None:
        self._error.set_text(reason)
        self._error.set_visibility(True)

    # Showing

    def _show(self, question: Question, answer: _Prepared) -> None:
        self._error.set_visibility(False)
        self._plot.set_visibility(answer.plot is not None)
        if answer.plot is not None:
            self._plot.options.clear()
            self._plot.options.update(answer.plot)
            self._plot.update()
        self._note.set_text(answer.note)
        self._table.columns = answer.columns
        self._table.rows = answer.rows
        self._table.set_visibility(bool(answer.rows))
        self._none.set_visibility(not answer.rows)
        self._none.set_text(_no_rows_text(question))
        self._provenance.set_text(answer.provenance)
        self._link.props["href"] = f"/views/{quote(question.view, safe='')}?{question.text()}"
        self._next = answer.next
        self._first.set_visibility(question.after is not None)
        self._more.set_visibility(answer.next is not None)

    # Controls

    def _build_controls(self) -> None:
        layout = self._layout()
        _select("View", list(self.views), self._view, lambda event: self._choose(event.value))
        self._aggregate = _select("Plot", list(layout.aggregations), layout.aggregations[0], self._changed)
        orders = {"keys": "in order of keys", "largest": "largest first"}
        self._order = _select("Rows", orders, "keys", self._changed)
        self._keys = {}
        for key, kind in zip(layout.keys, layout.types, strict=True):
            with ui.element("div").classes("hr-pair"):
                matches = {"is": "is", "prefix": "begins with"} if kind.name == "string" else {"is": "is"}
                match = _select(key, matches, next(reversed(matches)), self._changed)
                self._keys[key] = match, _input("anything", self._changed)
        with ui.element("div").classes("hr-pair"):
            self._since = _input("From", self._changed, "2026-01-31 09:00")
            self._until = _input("To", self._changed, "in UTC")

    async def _choose(self, view: str) -> None:
        self._view, self._after = view, None
        self._controls.clear()
        with self._controls:
            self._build_controls()
        await self._ask()

    async def _changed(self, _: object) -> None:
        self._after = None
        await self._ask()

    async def _turn_page(self, after: str | None) -> None:
        self._after = after
        await self._ask()


@dataclass(frozen=True)
class _Prepared:
    """An answer as the panel shows it: the options of the plot, and the columns and rows of the table."""

    plot: dict[str, Any] | None
    note: str
    columns: list[dict[str, Any]]
    rows: list[dict[str, Any]]
    provenance: str
    next: str | None


def _prepare(view: StoredView, question: Question) -> _Prepared:
    """Queries a view, and makes what is shown of the answer. To be called in a thread: it may have many rows."""
    answer, layout = ask(view, question), view.layout
    stacked = adds_up(layout.fns[layout.aggregations.index(question.aggregate)])
    options = plot(answer.layers, question.aggregate, stacked=stacked)
    page = encode_answer(question.view, answer.page)
    columns = [_column(f"k{at}", name) for at, name in enumerate(layout.keys)]
    if any(row["window"]["start"] is not None for row in page["rows"]):
        columns += [_column("start", "window"), _column("end", "until")]
    columns += [_column(f"v{at}", name, right=True) for at, name in enumerate(layout.aggregations)]
    rows = [
        {
            "id": at,
            "start": humantext.time(row["window"]["start"]),
            "end": humantext.time(row["window"]["end"]),
            **{f"k{at}": humantext.value(key) for at, key in enumerate(row["key"].values())},
            **{f"v{at}": humantext.value(answer) for at, answer in enumerate(row["values"].values())},
        }
        for at, row in enumerate(page["rows"])
    ]
    note = _plot_note(question.aggregate, stacked, len(answer.layers.merged), options is not None)
    return _Prepared(options, note, columns, rows, _provenance_text(page), page["next"])


def _select(label: str, options: Any, value: str, change: Any) -> ui.select:
    return ui.select(options, value=value, label=label, on_change=change).props("outlined dense options-dense")


def _input(label: str, change: Any, hint: str = "") -> ui.input:
    return ui.input(label, placeholder=hint, on_change=change).props("outlined dense clearable debounce=300")


def _column(name: str, label: str, *, right: bool = False) -> dict[str, Any]:
    return {"name": name, "field": name, "label": label, "align": "right" if right else "left"}


def _provenance_text(provenance: ProvenanceJson) -> str:
    """Describes the provenance of an answer."""
    batch = "no batch version"
    if provenance["version"] is not None:
        batch = f"version {provenance['version']} up to {humantext.offsets(provenance['boundary'])}"
    if provenance["updated"] is None:
        return f"{batch} · nothing from the speed layer yet"
    speed = f"speed to {humantext.offsets(provenance['reached'])} · watermark {humantext.time(provenance['watermark'])}"
    return f"{batch} · {speed} · fresh as of {humantext.seconds(provenance['freshness'])} ago"


def _plot_note(aggregate: str, stacked: bool, rows: int, drawn: bool) -> str:
    if not rows:
        return ""
    if not drawn:
        return f"{aggregate} is no number, so there is no plot of it; its values are in the rows."
    how = (
        "batch and speed add up" if stacked else "it does not add up, so the line is what batch and speed say together"
    )
    cut = f" The newest {MAX_BARS} of {rows:,} windows; give From and To for others." if rows > MAX_BARS else ""
    return f"{aggregate}: {how}.{cut}"


def _no_rows_text(question: Question) -> str:
    if any(text for _, text in question.keys.values()) or question.since or question.until:
        return "No row has these keys and times; ask for less."
    return "This view has no rows yet; they come with the first events of its topic."
