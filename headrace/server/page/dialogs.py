"""Buttons that do something, and the question that comes before what cannot be undone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nicegui import ui


def button(text: str, icon: str, press: Callable[[], Awaitable[None]]) -> ui.button:
    """A button."""
    return ui.button(text, icon=icon, on_click=press, color=None).props("outline no-caps dense").classes("hr-button")


async def confirmed(title: str, question: str, yes: str) -> bool:
    """Whether somebody who is asked says yes."""
    with ui.dialog() as dialog, ui.element("div").classes("hr-card hr-dialog"):
        ui.label(title).classes("hr-title")
        ui.label(question).classes("hr-muted")
        choices(dialog, yes, lambda: True)
    return bool(await answer_of(dialog))


def choices(dialog: ui.dialog, yes: str, answer: Callable[[], object]) -> None:
    """The buttons at the end of a dialog: one cancels, the other submits an answer."""
    with ui.element("div").classes("hr-buttons"):
        ui.button("Cancel", on_click=lambda: dialog.submit(None), color=None).props("flat no-caps")
        ui.button(yes, on_click=lambda: dialog.submit(answer())).props("unelevated no-caps")


async def answer_of(dialog: ui.dialog) -> object:
    """What is submitted; None if it is cancelled."""
    answer: object = await dialog
    if not dialog.is_deleted:  # with its page, which somebody closed
        dialog.delete()
    return answer
