"""Server-sent events of an answer: all rows of a query, and then each row that changes.

The store is polled, and queried again when it has moved on. A stream begins with all rows, so a client that lost its
connection has only to connect again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from typing import Any, TypeVar

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from headrace.model.jsontext import TooLarge, dumps, encode_pieces, join_texts
from headrace.server.http.gate import Gate
from headrace.server.http.refusals import Refusal
from headrace.server.http.workerpool import WorkerPool
from headrace.server.limits import Limits
from headrace.views.jsonencoding import encode_provenance, encode_row
from headrace.views.query.queries import Answer, Provenance, Query
from headrace.views.stores.store import StoredView

T = TypeVar("T")


@dataclass(frozen=True)
class Changes:
    """The events from one answer to the next, in pieces; and of the next, its origin and a digest of each row."""

    pieces: list[bytes]
    provenance: Provenance
    digests: Mapping[bytes, bytes]


class EventStreams:
    """The event streams of all views, of which a limited number is open at once."""

    def __init__(self, limits: Limits, pool: WorkerPool) -> None:
        self.limits, self.pool, self.gate = limits, pool, Gate(limits.listeners, "listeners")

    async def response(self, view: StoredView, query: Query) -> StreamingResponse:
        """Opens the stream of a query. A query without an answer is refused now, while a status can still say so."""
        self.gate.enter()
        with ExitStack() as places:
            places.callback(self.gate.leave)
            first, sending = await self._next(view, query, {})
            places.callback(sending.close)
            return EventResponse(self._events(view, query, first, sending), places.pop_all())

    async def _events(
        self, view: StoredView, query: Query, changes: Changes, sending: ExitStack
    ) -> AsyncIterator[bytes]:
        while True:
            try:
                changes.pieces.reverse()
                while changes.pieces:  # what is sent is not kept
                    if len(changes.pieces) == 1:
                        sending.close()  # a last one needs no place, however slow the client is
                    yield changes.pieces.pop()
            finally:
                sending.close()
            async for heartbeat in self._heartbeats(view, changes.provenance):
                yield heartbeat
            try:
                changes, sending = await self._again(partial(self._next, view, query, changes.digests))
            except TooLarge:
                return  # the client asks again, and is told why not

    def _next(
        self, view: StoredView, query: Query, before: Mapping[bytes, bytes]
    ) -> Awaitable[tuple[Changes, ExitStack]]:
        most = self.limits.answer_bytes
        return self.pool.run_for_sending(lambda: changes_since(before, view.answer(query), most))

    async def _heartbeats(self, view: StoredView, known: Provenance) -> AsyncIterator[bytes]:
        """Yields heartbeats until an answer would come from elsewhere."""
        silent = 0.0
        while _comparable(await self._again(lambda: self.pool.run(view.provenance))) == _comparable(known):
            if silent >= self.limits.heartbeat:
                silent = 0.0
                yield b": nothing new\n\n"
            await asyncio.sleep(self.limits.poll)
            silent += self.limits.poll

    async def _again(self, query: Callable[[], Awaitable[T]]) -> T:
        """Queries the store, and tries again when too much is under way: a stream that has begun can only wait."""
        while True:
            try:
                return await query()
            except Refusal:
                await asyncio.sleep(self.limits.poll)


class EventResponse(StreamingResponse):
    """A response of events that gives its places at gates back when they end."""

    def __init__(self, events: AsyncIterator[bytes], places: ExitStack) -> None:
        super().__init__(events, media_type="text/event-stream")
        self._places = places

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._places:
            await super().__call__(scope, receive, send)


def changes_since(before: Mapping[bytes, bytes], answer: Answer, most: int) -> Changes:
    """Encodes the events that lead to an answer; refused if they have more bytes. It compares all rows: in a thread.

    Rows are compared by digests of their JSON: the rows themselves would take ten times the memory for each listener.
    """
    events: list[bytes] = []
    digests: dict[bytes, bytes] = {}
    size = 0

    def add(text: bytes) -> None:
        nonlocal size
        size += len(text)
        if size > most:
            raise TooLarge(f"the events of an answer have at most {most:,} bytes; ask for fewer rows, with limit")
        events.append(text)

    for row in answer.rows:
        encoded = encode_row(row)
        text = b"".join(encode_pieces(encoded, cells=most, size=most))
        place = dumps({"key": encoded["key"], "window": encoded["window"]})
        digests[place] = blake2b(text, digest_size=16).digest()
        if before.get(place) != digests[place]:
            add(_event("row", text))
    gone: list[bytes] = [_event("gone", place) for place in before if place not in digests]
    add(event("progress", {"next": answer.next, **encode_provenance(answer.provenance)}))
    return Changes(join_texts([*gone, *events]), answer.provenance, digests)


def _comparable(provenance: Provenance) -> Provenance:
    """Drops what changes though no answer does: a cut begins a generation, and time passes."""
    return replace(provenance, generations=range(0), freshness=None)


def event(name: str, data: Any) -> bytes:
    """Encodes one server-sent event; JSON has no line breaks.

    >>> event("row", {"key": {"url": "a\\nb"}})
    b'event: row\\ndata: {"key":{"url":"a\\\\nb"}}\\n\\n'
    """
    return _event(name, dumps(data))


def _event(name: str, data: bytes) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), data)
