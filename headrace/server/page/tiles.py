"""Tiles: single numbers, large, at the top of a panel."""

from __future__ import annotations

from nicegui import ui

from headrace.server.page import humantext
from headrace.views.systemstatus import StageStatus


class Tile:
    """A number with its name above and a remark below."""

    def __init__(self, name: str) -> None:
        with ui.element("section").classes("hr-card hr-tile") as tile:
            tile.props["data-name"] = name
            ui.label(name).classes("hr-muted")
            self._number = ui.label(humantext.NONE).classes("hr-number")
            self._remark = ui.label("").classes("hr-muted hr-small")

    def show(self, number: str, remark: str) -> None:
        self._number.set_text(number)
        self._remark.set_text(remark)


def furthest_behind(stages: list[StageStatus]) -> tuple[str, str]:
    """Describes the watermark that is furthest behind the clock."""
    furthest = max(stages, key=lambda stage: stage["lag_seconds"] or 0, default=None)
    if furthest is None or furthest["lag_seconds"] is None:
        return humantext.NONE, "behind the clock, at most"
    day = humantext.time(furthest["watermark"]).partition(" ")[0]
    shown = humantext.behind(furthest["lag_seconds"], history=day)
    return shown, "reading history" if shown == day else "behind the clock, at most"
