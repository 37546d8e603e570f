"""Buttons, and the dialog that comes before what cannot be undone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nicegui import ui

from headrace.server.page.nicegui_internals import wait_for_dialog


def button(text: str, icon: str, press: Callable[[], Awaitable[None]]) -> ui.button:
    """Makes a button that calls `press`."""
    return ui.button(text, icon=icon, on_click=press, color=None).props("outline no-caps dense").classes("hr-button")


async def confirm(title: str, question: str, yes: str) -> bool:
    """Asks the visitor to confirm something; returns whether the answer is yes."""
    with ui.dialog() as dialog, ui.element("div").classes("hr-card hr-dialog"):
        ui.label(title).classes("hr-title")
        ui.label(question).classes("hr-muted")
        add_choices(dialog, yes, lambda: True)
    return bool(await wait_for_dialog(dialog))


def add_choices(dialog: ui.dialog, yes: str, answer: Callable[[], object]) -> None:
    """Adds the buttons at the end of a dialog: one cancels, the other submits an answer."""
    with ui.element("div").classes("hr-buttons"):
        ui.button("Cancel", on_click=lambda: dialog.submit(None), color=None).props("flat no-caps")
        ui.button(yes, on_click=lambda: dialog.submit(answer())).props("unelevated no-caps")
