"""The view explorer: a plot over time of what batch and speed say, and the rows of the answer with their provenance."""

from __future__ import annotations

import logging
import time
from typing import Any, Final

from nicegui import ui

from headrace.server.http.refusals import Refusal
from headrace.server.page import humantext
from headrace.server.page.context import PageContext
from headrace.server.page.plot import MOST, adds_up, plot
from headrace.server.page.poller import Snapshot
from headrace.server.page.questions import Found, Match, Question, asked
from headrace.server.page.theme import chart
from headrace.views.declare.layout import Layout
from headrace.views.errors import ViewError
from headrace.views.jsonencoding import encode_answer, encode_provenance

_log = logging.getLogger("headrace.server")

_FLAT: Final = "flat dense no-caps"
_REST: Final = 20  # a question that took a second is asked again after so many, if the view has moved on


class Explorer:
    """Asks one view at a time; asks again when its answers have changed."""

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
                self._first = ui.button("First rows", on_click=lambda: self._turn(None), color=None).props(_FLAT)
                self._more = ui.button("Next rows", color=None).props(_FLAT)
                self._more.on_click(lambda: self._turn(self._following))
                for button in (self._first, self._more):
                    button.classes("hr-action")
        self._following: str | None = None

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
        """Asks, if the question or the answer may be another than what is shown."""
        if self._asking:
            return
        question, view = self._question(), self.views[self._view]
        self._asking = True
        try:
            where = await self.context.pool.run(view.provenance)
            place = (where.version, where.batch)
            same = self._shown is not None and self._shown[0] == question
            if self._shown == (question, place) or (same and time.monotonic() < self._next_ask):
                if same:
                    self._provenance.set_text(_told(encode_provenance(where)))
                return
            began = time.monotonic()
            found = await self.context.pool.run(lambda: asked(view, question))
            self._next_ask = time.monotonic() + _REST * (time.monotonic() - began)
            self._shown = question, place
            self._show(question, found)
        except (ViewError, Refusal) as refused:
            self._shown = question, None
            self._fail(str(refused))
        except Exception:
            _log.exception("no answer for the page")
            self._fail("This failed inside the server; its log says how.")
        finally:
            self._asking = False
        if self._question() != question:  # somebody typed meanwhile
            await self._ask()

    def _fail(self, reason: str) -> None:
        self._error.set_text(reason)
        self._error.set_visibility(True)

    # Showing

    def _show(self, question: Question, found: Found) -> None:
        self._error.set_visibility(False)
        layout = self._layout()
        stacked = adds_up(layout.fns[layout.aggregations.index(question.aggregate)])
        options = plot(found.parts, question.aggregate, stacked=stacked)
        self._plot.set_visibility(options is not None)
        if options is not None:
            self._plot.options.clear()
            self._plot.options.update(options)
            self._plot.update()
        self._note.set_text(_note(question.aggregate, stacked, len(found.parts.merged), options is not None))
        self._show_rows(layout, question, found)

    def _show_rows(self, layout: Layout, question: Question, found: Found) -> None:
        answer = encode_answer(question.view, found.page)
        columns = [_column(f"k{at}", name) for at, name in enumerate(layout.keys)]
        windows = any(row["window"]["start"] is not None for row in answer["rows"])
        if windows:
            columns += [_column("start", "window"), _column("end", "until")]
        columns += [_column(f"v{at}", name, right=True) for at, name in enumerate(layout.aggregations)]
        self._table.columns = columns
        self._table.rows = [
            {
                "id": at,
                "start": humantext.time(row["window"]["start"]),
                "end": humantext.time(row["window"]["end"]),
                **{f"k{at}": humantext.value(each) for at, each in enumerate(row["key"].values())},
                **{f"v{at}": humantext.value(each) for at, each in enumerate(row["values"].values())},
            }
            for at, row in enumerate(answer["rows"])
        ]
        self._table.set_visibility(bool(answer["rows"]))
        self._none.set_visibility(not answer["rows"])
        self._none.set_text(_nothing(question))
        self._provenance.set_text(_told(answer))
        self._link.props["href"] = f"/views/{question.view}?{question.text()}"
        self._following = answer["next"]
        self._first.set_visibility(question.after is not None)
        self._more.set_visibility(answer["next"] is not None)

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

    async def _turn(self, after: str | None) -> None:
        self._after = after
        await self._ask()


def _select(label: str, options: Any, value: str, change: Any) -> ui.select:
    return ui.select(options, value=value, label=label, on_change=change).props("outlined dense options-dense")


def _input(label: str, change: Any, hint: str = "") -> ui.input:
    return ui.input(label, placeholder=hint, on_change=change).props("outlined dense clearable debounce=300")


def _column(name: str, label: str, *, right: bool = False) -> dict[str, Any]:
    return {"name": name, "field": name, "label": label, "align": "right" if right else "left"}


def _told(where: dict[str, Any]) -> str:
    """The provenance of an answer, in a sentence."""
    batch = "no batch version"
    if where["version"] is not None:
        batch = f"version {where['version']} up to {humantext.offsets(where['boundary'])}"
    if where["updated"] is None:
        return f"{batch} · nothing from the speed layer yet"
    speed = f"speed to {humantext.offsets(where['reached'])} · watermark {humantext.time(where['watermark'])}"
    return f"{batch} · {speed} · fresh as of {humantext.seconds(where['freshness'])} ago"


def _note(aggregate: str, stacked: bool, rows: int, drawn: bool) -> str:
    if not rows:
        return ""
    if not drawn:
        return f"{aggregate} is no number, so there is no plot of it; its values are in the rows."
    how = (
        "batch and speed add up" if stacked else "it does not add up, so the line is what batch and speed say together"
    )
    cut = f" The newest {MOST} of {rows:,} windows; give From and To for others." if rows > MOST else ""
    return f"{aggregate}: {how}.{cut}"


def _nothing(question: Question) -> str:
    if any(text for _, text in question.keys.values()) or question.since or question.until:
        return "No row has these keys and times; ask for less."
    return "This view has no rows yet; they come with the first events of its topic."
