"""The connections of open pages: who may use one, what may come over it, and when it ends.

NiceGUI knows a page by the id of its client, and obeys whoever names it. So nothing reaches NiceGUI that has not passed
here: a connection belongs to the visitor who loaded its page, carries the messages of that page, and ends when the
visitor's session does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.server.http.refusals import Refusal
from headrace.server.limits import Limits
from headrace.server.page import nicegui_internals
from headrace.server.page.pagemessages import GREETING, BadMessage, read_message
from headrace.server.security.visitors import Visitor

VISITOR: Final = "headrace.visitor"
"""The name of the visitor in the scope of a request."""

_SOCKET: Final = "headrace.socket"  # of a connection, in its scope
_DISCONNECT: Final[Message] = {"type": "websocket.disconnect", "code": 1008}
_SEND_SECONDS: Final = 30  # for one message; who is slower gets no more
_MAX_UNSENT: Final = 100  # messages: those of more than a minute, for a browser that hardly reads
_MAX_STRANGERS: Final = 20  # of one token, at once: connections to pages that are not there, or are others'
_BURST: Final = 10  # seconds whose events may come at once


class PageSockets:
    """The connections of one server's pages. A page has one: another that comes ends the first."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits, self.clock = limits, clock
        self._open: dict[str, PageSocket] = {}
        self._strangers: list[PageSocket] = []  # which are told to load their page anew

    async def serve(self, app: ASGIApp, visitor: Visitor, scope: Scope, receive: Receive, send: Send) -> None:
        """Connects a page with NiceGUI, which is `app`, if it is the visitor's own; another is told to load anew."""
        query = nicegui_internals.socket_query(scope["query_string"])
        if scope["type"] != "websocket" or scope["path"] != nicegui_internals.SOCKET_PATH or query is None:
            raise Refusal(404, "Not Found: a page has one WebSocket here, and there is nothing else")
        loaded = nicegui_internals.client_scope(query["client_id"])
        is_own = loaded is not None and loaded[VISITOR] == visitor
        client_id = query["client_id"] if is_own else nicegui_internals.UNKNOWN_CLIENT
        socket = PageSocket(
            client_id, visitor, Pace(self.limits.events, self.limits.events * _BURST, self.clock), receive, send
        )
        written = nicegui_internals.write_socket_query({**query, "client_id": client_id})
        with self._counted(socket, is_own=is_own) as former:
            if former is not None:
                await former.close("another has come in its place")
            await app({**scope, "query_string": written, _SOCKET: socket}, socket.receive, socket.send)

    @contextmanager
    def _counted(self, socket: PageSocket, *, is_own: bool) -> Iterator[PageSocket | None]:
        """Counts a connection for the duration of a block, which is given the one whose place it takes."""
        if is_own:
            former = self._open.get(socket.client_id)
            self._open[socket.client_id] = socket
        else:
            token = socket.visitor.grant().token
            of_token = [each for each in self._strangers if each.visitor.grant().token == token]
            former = of_token[0] if len(of_token) >= _MAX_STRANGERS else None
            if former is not None:
                self._strangers.remove(former)
            self._strangers.append(socket)
        try:
            yield former
        finally:
            if self._open.get(socket.client_id) is socket:
                del self._open[socket.client_id]
            if socket in self._strangers:
                self._strangers.remove(socket)


class PageSocket:
    """One connection: it passes what its page may send and its visitor may see."""

    def __init__(self, client_id: str, visitor: Visitor, pace: Pace, receive: Receive, send: Send) -> None:
        self.client_id, self.visitor = client_id, visitor
        self._pace, self._receive, self._send = pace, receive, send
        self._has_greeted = self._is_over = False

    async def receive(self) -> Message:
        """Receives the next message that NiceGUI shall read."""
        while True:
            message = await self._receive()
            if message["type"] != "websocket.receive" or self._is_over:
                return _DISCONNECT if self._is_over else message
            if "read" not in self.visitor.scopes():
                await self._sign_out()
                return _DISCONNECT
            try:
                text = self._read(message)
            except BadMessage as refused:
                await self.close(str(refused))
                return _DISCONNECT
            if text is not None:
                return {"type": "websocket.receive", "text": text}

    def _read(self, message: Message) -> str | None:
        text = message.get("text")
        if not isinstance(text, str):
            raise BadMessage("pages send text only")
        if not self._pace.allows():
            raise BadMessage("this page sends too much")
        if text != GREETING:
            return read_message(text, self.client_id)
        if self._has_greeted:
            raise BadMessage("a page connects once")
        self._has_greeted = True
        return text

    async def send(self, message: Message) -> None:
        """Sends a message of NiceGUI, unless the visitor's session is over: then the page is."""
        if self._is_over:
            return
        if message["type"] == "websocket.send" and "read" not in self.visitor.scopes():
            await self._sign_out()
            return
        self._is_over = message["type"] == "websocket.close"
        async with asyncio.timeout(_SEND_SECONDS):
            await self._send(message)
        if (message.get("text") or "").startswith(nicegui_internals.REFUSED):
            await self.close("this page is to be loaded anew")
        elif nicegui_internals.unsent_messages(_SOCKET, self) > _MAX_UNSENT:
            await self.close("this page reads too slowly")

    async def close(self, reason: str) -> None:
        """Ends the connection; the page may come with another."""
        if not self._is_over:
            self._is_over = True
            await self._say({"type": "websocket.close", "code": 1008, "reason": reason})

    async def _sign_out(self) -> None:
        """Sends the page to where one signs in, and forgets it."""
        if not self._is_over:
            self._is_over = True
            await self._say({"type": "websocket.send", "text": nicegui_internals.open_message("/login")})
            await self._say({"type": "websocket.close", "code": 1008, "reason": "signed out"})
            nicegui_internals.delete_client(self.client_id)

    async def _say(self, message: Message) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_SEND_SECONDS):
                await self._send(message)


class Pace:
    """Allows so many a second for long, and so many at once.

    >>> pace = Pace(1, 2, clock=lambda: 0.0)
    >>> [pace.allows() for _ in range(3)]
    [True, True, False]
    """

    def __init__(self, per_second: float, at_once: float, clock: Callable[[], float]) -> None:
        self._per_second, self._at_once, self._clock = per_second, at_once, clock
        self._left, self._at = at_once, clock()

    def allows(self) -> bool:
        """Tells whether one more may come now, and counts it."""
        now = self._clock()
        passed = max(now - self._at, 0)  # a clock may be set back
        self._left = min(self._left + passed * self._per_second, self._at_once)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True
