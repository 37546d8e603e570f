"""Server-sent events of an answer: all rows of a query, and then each row that changes.

The store is polled, and queried again when it has moved on. A stream begins with all rows, so a client that lost its
connection has only to connect again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any, TypeVar

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from headrace.server.http.gate import Gate
from headrace.server.http.jsonresponse import dumps
from headrace.server.http.refusals import Refusal
from headrace.server.http.workerpool import WorkerPool
from headrace.server.limits import Limits
from headrace.views.jsonencoding import encode_provenance, encode_row
from headrace.views.query.queries import Answer, Provenance, Query, Row
from headrace.views.stores.store import StoredView

T = TypeVar("T")


class EventStreams:
    """The event streams of all views, of which a limited number is open at once."""

    def __init__(self, limits: Limits, pool: WorkerPool) -> None:
        self.limits, self.pool, self.gate = limits, pool, Gate(limits.listeners, "listeners")

    async def response(self, view: StoredView, query: Query) -> StreamingResponse:
        """Opens the stream of a query. A query without an answer is refused now, while a status can still say so."""
        first = await self.pool.run(lambda: view.answer(query))
        self.gate.enter()
        return _EventResponse(self._events(view, query, first), self.gate)

    async def _events(self, view: StoredView, query: Query, answer: Answer) -> AsyncIterator[bytes]:
        before: dict[Any, Row] = {}
        while True:
            rows = {(*row.key.values(), *row.window): row for row in answer.rows}
            for place in before.keys() - rows.keys():
                gone = encode_row(before[place])
                yield event("gone", {"key": gone["key"], "window": gone["window"]})
            for place, row in rows.items():
                if before.get(place) != row:
                    yield event("row", encode_row(row))
            yield event("progress", {"next": answer.next, **encode_provenance(answer.provenance)})
            before = rows
            async for heartbeat in self._heartbeats(view, answer.provenance):
                yield heartbeat
            answer = await self._query(lambda: view.answer(query))

    async def _heartbeats(self, view: StoredView, known: Provenance) -> AsyncIterator[bytes]:
        """Yields heartbeats until an answer would come from elsewhere."""
        silent = 0.0
        while _comparable(await self._query(view.provenance)) == _comparable(known):
            if silent >= self.limits.heartbeat:
                silent = 0.0
                yield b": nothing new\n\n"
            await asyncio.sleep(self.limits.poll)
            silent += self.limits.poll

    async def _query(self, query: Callable[[], T]) -> T:
        """Queries the store, and tries again when too much is under way: a stream that has begun can only wait."""
        while True:
            try:
                return await self.pool.run(query)
            except Refusal:
                await asyncio.sleep(self.limits.poll)


class _EventResponse(StreamingResponse):
    """A response of events that gives its place at the gate back when they end."""

    def __init__(self, events: AsyncIterator[bytes], gate: Gate) -> None:
        super().__init__(events, media_type="text/event-stream")
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._gate.leave()


def _comparable(provenance: Provenance) -> Provenance:
    """Drops what changes though no answer does: a cut begins a generation, and time passes."""
    return replace(provenance, generations=range(0), freshness=None)


def event(name: str, data: Any) -> bytes:
    """Encodes one server-sent event; JSON has no line breaks.

    >>> event("row", {"key": {"url": "a\\nb"}})
    b'event: row\\ndata: {"key":{"url":"a\\\\nb"}}\\n\\n'
    """
    return b"event: %b\ndata: %b\n\n" % (name.encode(), dumps(data))
