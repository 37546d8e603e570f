"""The poller: reads the status of the system once a second, for all open pages, and remembers its history."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from headrace.server.http.workerpool import WorkerPool
from headrace.server.page.history import History
from headrace.server.page.nicegui_internals import count_clients
from headrace.server.page.storestatus import store_status
from headrace.server.page.topologyhistory import TopologyHistory
from headrace.server.routes.topologies import encode_published
from headrace.server.service import Service
from headrace.views.systemstatus import SystemStatus

_log = logging.getLogger("headrace.server")

_PERIOD: Final = 1.0  # seconds


@dataclass(frozen=True)
class Snapshot:
    """The status at one time. If the system did not answer, `answers` is False and the status is that of before.

    `topologies` are as the API shows them.
    """

    status: SystemStatus
    runs: bool
    answers: bool = True
    topologies: dict[str, Any] = field(default_factory=lambda: encode_published(None))


class Poller:
    """Polls a running system all the time, so that charts have a past; polls a store alone while a page is open."""

    def __init__(self, service: Service, seconds: float) -> None:
        self.service = service
        # One thread of its own: a system that does not answer must not take those that answer queries.
        self._pool, self._lock = WorkerPool("polls", 1, 1, seconds), asyncio.Lock()
        self.history, self.topology_history = History(), TopologyHistory()
        self.snapshot = Snapshot({"topics": {}, "views": {}, "jobs": []}, runs=service.operations is not None)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Polls for the duration of a block."""
        polling = asyncio.create_task(self._run())
        try:
            yield
        finally:
            polling.cancel()
            with suppress(asyncio.CancelledError):
                await polling
            self._pool.close()

    async def poll(self) -> None:
        """Polls now."""
        operations, topologies = self.service.operations, self.snapshot.topologies
        try:
            async with self._lock:
                if self.service.topologies is not None:
                    topologies = encode_published(await self._pool.run(self.service.topologies.published))
                    self.topology_history.add(topologies)
                status = await self._pool.run(operations.status if operations else lambda: store_status(self.service))
            if operations:
                self.history.add(status)
            self.snapshot = Snapshot(status, self.snapshot.runs, topologies=topologies)
        except Exception as error:
            ended = isinstance(error, ConnectionError)  # the system has, and its server will
            if self.snapshot.answers and not ended:  # logged once, and not every second
                _log.exception("no status for the page")
            self.snapshot = Snapshot(self.snapshot.status, self.snapshot.runs, answers=False, topologies=topologies)

    async def _run(self) -> None:
        while True:
            if self.service.operations or self.service.topologies or count_clients():
                await self.poll()
            await asyncio.sleep(_PERIOD)
