"""What panels work with: the service, what was seen of it, questions off the event loop, and what a visitor may do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from nicegui import ui

from headrace.server.errors import Refused
from headrace.server.page.watch import Seen, Watch
from headrace.server.service import Service
from headrace.server.tokens import Scope
from headrace.server.workers import Worker
from headrace.views.errors import ViewError

T = TypeVar("T")


@dataclass(frozen=True)
class Desk:
    """One for each open page. `allowed` is asked every time, since sessions end."""

    service: Service
    watch: Watch
    worker: Worker
    allowed: Callable[[], frozenset[Scope]]

    async def told(self, work: Callable[[], T]) -> T | None:
        """The result of something that a button does; if it is refused, or may not be done, the page says so."""
        if "admin" not in self.allowed():
            ui.notify("This needs a token for admin; sign in with one", type="warning")
            return None
        try:
            return await self.worker.run(work)
        except (ViewError, Refused) as refused:
            ui.notify(str(refused), type="negative")
            return None


class Panel(Protocol):
    """A tab of the page."""

    async def show(self, seen: Seen) -> None:
        """Shows what was seen. Called about once a second while the tab is open."""
