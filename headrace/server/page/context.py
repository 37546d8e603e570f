"""The context of panels: the service, its last snapshot, queries off the event loop, and what a visitor may do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from nicegui import ui

from headrace.model.errors import HeadraceError
from headrace.server.http.refusals import Refusal
from headrace.server.http.workerpool import WorkerPool
from headrace.server.page.poller import Poller, Snapshot
from headrace.server.routes.topologies import Commands
from headrace.server.security.tokens import Scope
from headrace.server.service import Service

T = TypeVar("T")


@dataclass(frozen=True)
class PageContext:
    """The context of one open page. `scopes` is called every time, since sessions end."""

    service: Service
    poller: Poller
    pool: WorkerPool
    scopes: Callable[[], frozenset[Scope]]
    commands: Commands | None = None

    async def run(self, work: Callable[[], T]) -> T | None:
        """Does the work of a button and returns its result; None if it is refused, which the page says."""
        return await self._run(lambda: self.pool.run(work))

    async def command(self, command: str, topology: str, **arguments: Any) -> bool | None:
        """Sends a command to a topology; returns whether it is done, or None if it is refused, which the page says."""
        commands = self.commands
        assert commands is not None
        return await self._run(lambda: commands.run(command, topology, arguments))

    async def _run(self, work: Callable[[], Awaitable[T]]) -> T | None:
        if "admin" not in self.scopes():
            ui.notify("This needs a token for admin; sign in with one", type="warning")
            return None
        try:
            return await work()
        except (HeadraceError, Refusal) as refusal:
            ui.notify(str(refusal), type="negative")
            return None


class Panel(Protocol):
    """A tab of the page."""

    async def show(self, snapshot: Snapshot) -> None:
        """Shows a snapshot. Called about once a second while the tab is open."""
