"""The watch: one look at the system a second, for all pages that are open, and what the last looks found."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from nicegui import Client

from headrace.server.http.workerpool import Worker
from headrace.server.page.history import History
from headrace.server.page.storestatus import standing
from headrace.server.page.topologyhistory import TopologyHistory
from headrace.server.routes.topologies import told
from headrace.server.service import Service

_log = logging.getLogger("headrace.server")

_PERIOD: Final = 1.0  # seconds


@dataclass(frozen=True)
class Seen:
    """What a look found: the status, or that the system did not answer; then it is the status of the look before.

    `topologies` are as the API tells them.
    """

    status: dict[str, Any]
    runs: bool
    answers: bool = True
    topologies: dict[str, Any] = field(default_factory=lambda: told(None))


class Watch:
    """Looks at what runs all the time, so that charts have a past; at a store alone while a page is open."""

    def __init__(self, service: Service, seconds: float) -> None:
        self.service = service
        # One thread of its own: a system that does not answer must not take those that answer questions.
        self._worker, self._turn = Worker("looks", 1, 1, seconds), asyncio.Lock()
        self.history, self.topology_history = History(), TopologyHistory()
        self.seen = Seen({"topics": {}, "views": {}, "jobs": []}, runs=service.operations is not None)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """For the time of a block."""
        looking = asyncio.create_task(self._run())
        try:
            yield
        finally:
            looking.cancel()
            with suppress(asyncio.CancelledError):
                await looking
            self._worker.close()

    async def look(self) -> None:
        """Looks now."""
        operations, topologies = self.service.operations, self.seen.topologies
        try:
            async with self._turn:
                if self.service.topologies is not None:
                    topologies = told(await self._worker.run(self.service.topologies.published))
                    self.topology_history.add(topologies)
                status = await self._worker.run(operations.status if operations else lambda: standing(self.service))
            if operations:
                self.history.add(status)
            self.seen = Seen(status, self.seen.runs, topologies=topologies)
        except Exception as error:
            ended = isinstance(error, ConnectionError)  # the system has, and its server will
            if self.seen.answers and not ended:  # told once, and not every second
                _log.exception("no status for the page")
            self.seen = Seen(self.seen.status, self.seen.runs, answers=False, topologies=topologies)

    async def _run(self) -> None:
        while True:
            if self.service.operations or self.service.topologies or Client.instances:
                await self.look()
            await asyncio.sleep(_PERIOD)
