"""The watch: one look at the system a second, for all pages that are open, and what the last looks found."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from nicegui import Client

from headrace.server.page.history import History
from headrace.server.page.standing import standing
from headrace.server.service import Service
from headrace.server.workers import Worker

_log = logging.getLogger("headrace.server")

_PERIOD: Final = 1.0  # seconds


@dataclass(frozen=True)
class Seen:
    """What a look found: the status, or that the system did not answer; then it is the status of the look before."""

    status: dict[str, Any]
    runs: bool
    answers: bool = True


class Watch:
    """Looks at a running system all the time, so that charts have a past; at a store alone while a page is open."""

    def __init__(self, service: Service, seconds: float) -> None:
        self.service = service
        # One thread of its own: a system that does not answer must not take those that answer questions.
        self._worker, self._turn = Worker("looks", 1, 1, seconds), asyncio.Lock()
        self.history = History()
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
        operations = self.service.operations
        try:
            async with self._turn:
                status = await self._worker.run(operations.status if operations else lambda: standing(self.service))
            if operations:
                self.history.add(status)
            self.seen = Seen(status, self.seen.runs)
        except Exception as error:
            ended = isinstance(error, ConnectionError)  # the system has, and its server will
            if self.seen.answers and not ended:  # told once, and not every second
                _log.exception("no status for the page")
            self.seen = Seen(self.seen.status, self.seen.runs, answers=False)

    async def _run(self) -> None:
        while True:
            if self.service.operations or Client.instances:
                await self.look()
            await asyncio.sleep(_PERIOD)
