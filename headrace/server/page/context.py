"""What panels work with: the service, what was seen of it, questions off the event loop, and what a visitor may do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from nicegui import ui

from headrace.dialects.storm.api.topology import TopologyError
from headrace.server.http.refusals import Refused
from headrace.server.http.workerpool import Worker
from headrace.server.page.poller import Seen, Watch
from headrace.server.routes.topologies import Commands
from headrace.server.security.tokens import Scope
from headrace.server.service import Service
from headrace.views.errors import ViewError

T = TypeVar("T")


@dataclass(frozen=True)
class Desk:
    """One for each open page. `allowed` is asked every time, since sessions end."""

    service: Service
    watch: Watch
    worker: Worker
    allowed: Callable[[], frozenset[Scope]]
    commands: Commands | None = None

    async def told(self, work: Callable[[], T]) -> T | None:
        """The result of something that a button does; if it is refused, or may not be done, the page says so."""
        return await self._asked(lambda: self.worker.run(work))

    async def commanded(self, command: str, topology: str, **arguments: Any) -> bool | None:
        """Whether a command to a topology is done, or goes on; if it is refused, the page says so, and it is None."""
        commands = self.commands
        assert commands is not None
        return await self._asked(lambda: commands.run(command, topology, arguments))

    async def _asked(self, work: Callable[[], Awaitable[T]]) -> T | None:
        if "admin" not in self.allowed():
            ui.notify("This needs a token for admin; sign in with one", type="warning")
            return None
        try:
            return await work()
        except (ViewError, TopologyError, Refused) as refused:
            ui.notify(str(refused), type="negative")
            return None


class Panel(Protocol):
    """A tab of the page."""

    async def show(self, seen: Seen) -> None:
        """Shows what was seen. Called about once a second while the tab is open."""
