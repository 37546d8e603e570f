"""Changes of an answer, as server-sent events: the rows of a query, and each of them again whenever it changes.

The store is looked at from time to time, and asked again when it has moved on. A listener begins with all rows, so one
that lost its connection has only to come again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any, TypeVar

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from headrace.server.http.jsonresponse import dumps
from headrace.server.http.refusals import Refused
from headrace.server.http.workerpool import Worker
from headrace.server.limits import Gate, Limits
from headrace.views.jsonencoding import encode_provenance, encode_row
from headrace.views.query.queries import Answer, Provenance, Query, Row
from headrace.views.stores.store import StoredView

T = TypeVar("T")


class Changes:
    """The listeners of all views."""

    def __init__(self, limits: Limits, worker: Worker) -> None:
        self.limits, self.worker, self.gate = limits, worker, Gate(limits.listeners, "listeners")

    async def response(self, view: StoredView, query: Query) -> StreamingResponse:
        """The events of a query. A query that has no answer is refused now, while there is a status to say so."""
        first = await self.worker.run(lambda: view.answer(query))
        self.gate.enter()
        return _Events(self._events(view, query, first), self.gate)

    async def _events(self, view: StoredView, query: Query, found: Answer) -> AsyncIterator[bytes]:
        before: dict[Any, Row] = {}
        while True:
            rows = {(*row.key.values(), *row.window): row for row in found.rows}
            for place in before.keys() - rows.keys():
                gone = encode_row(before[place])
                yield event("gone", {"key": gone["key"], "window": gone["window"]})
            for place, row in rows.items():
                if before.get(place) != row:
                    yield event("row", encode_row(row))
            yield event("progress", {"next": found.next, **encode_provenance(found.provenance)})
            before = rows
            async for sign in self._until_moved(view, found.provenance):
                yield sign
            found = await self._asked(lambda: view.answer(query))

    async def _until_moved(self, view: StoredView, known: Provenance) -> AsyncIterator[bytes]:
        """Signs of life until an answer would come from elsewhere."""
        silent = 0.0
        while _shown(await self._asked(view.provenance)) == _shown(known):
            if silent >= self.limits.heartbeat:
                silent = 0.0
                yield b": nothing new\n\n"
            await asyncio.sleep(self.limits.poll)
            silent += self.limits.poll

    async def _asked(self, question: Callable[[], T]) -> T:
        """An answer of the store; when too much is under way, a stream that has begun can only wait."""
        while True:
            try:
                return await self.worker.run(question)
            except Refused:
                await asyncio.sleep(self.limits.poll)


class _Events(StreamingResponse):
    """Events, and a place at the gate until they end."""

    def __init__(self, events: AsyncIterator[bytes], gate: Gate) -> None:
        super().__init__(events, media_type="text/event-stream")
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._gate.leave()


def _shown(found: Provenance) -> Provenance:
    """Without what changes though no answer does: a cut begins a generation, and time passes."""
    return replace(found, generations=range(0), freshness=None)


def event(name: str, data: Any) -> bytes:
    """One server-sent event; JSON has no line breaks.

    >>> event("row", {"key": {"url": "a\\nb"}})
    b'event: row\\ndata: {"key":{"url":"a\\\\nb"}}\\n\\n'
    """
    return b"event: %b\ndata: %b\n\n" % (name.encode(), dumps(data))
