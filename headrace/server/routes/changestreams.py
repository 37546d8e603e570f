"""Server-sent events of the changes of a view of continuous SQL, as they are committed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from typing import Final

from starlette.responses import StreamingResponse

from headrace.model.errors import HeadraceError
from headrace.server.http.gate import Gate
from headrace.server.http.openapi import COUNT, STRING, Schema, event_stream, json_text, nullable, record
from headrace.server.http.refusals import Refusal
from headrace.server.http.workerpool import WorkerPool
from headrace.server.limits import Limits
from headrace.server.routes.serversentevents import EventResponse, event
from headrace.server.service import RowChange, ViewChanges

_CHUNK: Final = 200  # changes that are encoded at once

_ROW: Final[Schema] = {"type": "object"}
CHANGES: Final = event_stream(
    {
        "oneOf": [
            record({"event": {"const": name}, "data": json_text(data)})
            for name, data in (
                ("change", record({"old": nullable(_ROW), "new": nullable(_ROW)})),
                ("progress", record({"position": COUNT})),
                ("end", record({"reason": STRING})),
            )
        ]
    },
    "A `change` for each row that is there, and then for each that changes, in the order of commits; `progress` after "
    "all that was committed so far; `end` if the view is dropped",
)
"""The description of such a stream."""


class ChangeStreams:
    """The open streams of changes, of which there is a limited number."""

    def __init__(self, limits: Limits, pool: WorkerPool) -> None:
        self._limits, self._pool, self._gate = limits, pool, Gate(limits.listeners, "listeners")

    async def response(self, subscribe: Callable[[], ViewChanges]) -> StreamingResponse:
        """Opens a stream; what is refused is refused now, while a status can still say so."""
        self._gate.enter()
        with ExitStack() as places:
            places.callback(self._gate.leave)
            changes = await self._pool.run(subscribe)
            places.callback(_stop, changes)
            first = await self._pool.run(changes.read)
            return EventResponse(self._events(changes, first), places.pop_all())

    async def _events(self, changes: ViewChanges, found: list[RowChange]) -> AsyncIterator[bytes]:
        for encoded in _encoded(found):
            yield encoded
        yield event("progress", {"position": changes.position})
        silent = 0.0
        while True:
            try:
                found = await self._pool.run(changes.read)
            except Refusal:  # too much is under way: a stream that has begun can only wait
                found = []
            except HeadraceError as error:
                yield event("end", {"reason": str(error)})
                return
            if found:
                silent = 0.0
                for encoded in _encoded(found):
                    yield encoded
                yield event("progress", {"position": changes.position})
                continue
            if silent >= self._limits.heartbeat:
                silent = 0.0
                yield b": nothing new\n\n"
            await asyncio.sleep(self._limits.poll)
            silent += self._limits.poll


def _encoded(changes: list[RowChange]) -> list[bytes]:
    return [
        b"".join(event("change", {"old": each.old, "new": each.new}) for each in changes[at : at + _CHUNK])
        for at in range(0, len(changes), _CHUNK)
    ]


def _stop(changes: ViewChanges) -> None:
    """Ends a subscription, which may wait for a database, in a thread."""
    threading.Thread(target=changes.stop, name="headrace-unsubscribe", daemon=True).start()
