"""Small tables that are updated in place, so that a button stays under the pointer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from nicegui import ui

Kind = Literal["good", "bad", "busy", "plain"]


@dataclass(frozen=True)
class Number:
    """A cell with a number, aligned to the right."""

    text: str


@dataclass(frozen=True)
class Chip:
    """A cell with a state."""

    text: str
    kind: Kind = "plain"


@dataclass(frozen=True)
class Button:
    """A cell with a button. `about` is what it acts on: a button about something else is another one."""

    text: str
    about: object
    press: Callable[[], Awaitable[None]] = field(compare=False)


Cell = str | Number | Chip | Button | None


class Listing:
    """Shows a table, or a sentence if it has no rows."""

    def __init__(self, headers: Sequence[str | Number], empty: str, *, name: str = "") -> None:
        self._shape: object = None
        self._labels: list[list[ui.label | None]] = []
        with ui.element("div").classes("hr-scroll") as self._box, ui.element("table").classes("hr-table") as table:
            if name:
                table.props["data-name"] = name
            with ui.element("thead"), ui.element("tr"):
                for header in headers:
                    with ui.element("th").classes("hr-right" if isinstance(header, Number) else ""):
                        ui.label(header.text if isinstance(header, Number) else header)
            self._body = ui.element("tbody")
        self._empty = ui.label(empty).classes("hr-empty")

    def show(self, rows: Sequence[Sequence[Cell]]) -> None:
        """Shows these rows."""
        self._box.set_visibility(bool(rows))
        self._empty.set_visibility(not rows)
        shape = [[cell if isinstance(cell, Button | Chip | None) else type(cell) for cell in row] for row in rows]
        if shape != self._shape:
            self._shape = shape
            self._body.clear()
            with self._body:
                self._labels = [self._add_row(row) for row in rows]
            return
        for row, labels in zip(rows, self._labels, strict=True):
            for cell, label in zip(row, labels, strict=True):
                if label is not None:
                    label.set_text(_text(cell))

    def _add_row(self, row: Sequence[Cell]) -> list[ui.label | None]:
        with ui.element("tr"):
            return [self._add_cell(cell) for cell in row]

    def _add_cell(self, cell: Cell) -> ui.label | None:
        with ui.element("td").classes("hr-right" if isinstance(cell, Number) else ""):
            if isinstance(cell, Button):
                ui.button(cell.text, on_click=cell.press, color=None).props("flat dense no-caps").classes("hr-action")
                return None
            if isinstance(cell, Chip):
                add_chip(cell)
                return None
            return None if cell is None else ui.label(_text(cell))


def add_chip(cell: Chip) -> ui.label:
    """Adds a label with a dot in the colour of its kind."""
    return ui.label(cell.text).classes(f"hr-chip hr-{cell.kind}")


def _text(cell: Cell) -> str:
    return cell if isinstance(cell, str) else "" if cell is None else cell.text
