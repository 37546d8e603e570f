"""An HTTP protocol for uvicorn that lets no client hold a connection that others need, nor send a head without end.

It closes connections whose request heads come too slowly or are too long, and, when there are too many connections,
one that waits for its client. uvicorn itself would wait for ever, keep everything, and answer everybody with 503.
"""

from __future__ import annotations

import asyncio
from typing import Final, NoReturn

from uvicorn.protocols.http.flow_control import service_unavailable
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from headrace.server.http.connections import Connections, network_of

_MAX_HEAD: Final = 32 << 10  # bytes
_MAX_PATH: Final = 2 << 10  # bytes, before they are unquoted; the query comes after it
_MAX_HEADERS: Final = 100


def prompt_protocol(seconds: float, limit: int) -> type[asyncio.Protocol]:
    """Makes the protocol of a server with at most `limit` connections, which wait for a head for so many seconds.

    >>> issubclass(prompt_protocol(10, 1_000), asyncio.Protocol)
    True
    """

    class PromptProtocol(HttpToolsProtocol):
        waiting: Connections[PromptProtocol] = Connections()
        timer: asyncio.TimerHandle | None = None
        unread = 0  # bytes that arrived outside of a body: of a head, or around the chunks of a body
        in_head = False
        fault = ""  # of the head
        upgraded = False  # to a WebSocket; from then on another protocol has the connection

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._start_timer()
            self.waiting.add(self, network_of(self.client[0] if self.client else ""))
            if len(self.connections) > limit:  # those of WebSockets are among them
                self._make_room()

        def data_received(self, data: bytes) -> None:
            self.unread += len(data)
            super().data_received(data)
            if self.upgraded:
                return
            self._note_waiting()
            if self.unread > _MAX_HEAD and not self.transport.is_closing():
                self.send_400_response(f"The head of a request has at most {_MAX_HEAD} bytes.")
            elif self.cycle is not None and not self.cycle.response_complete:
                self._stop_timer()
            elif self.timer is None:
                self._start_timer()

        def on_message_begin(self) -> None:
            self.in_head = True
            super().on_message_begin()

        def on_header(self, name: bytes, value: bytes) -> None:
            if not self.in_head:
                return  # a trailer: who sends it behind a proxy could say what only the proxy may say
            if len(self.headers) >= _MAX_HEADERS:
                self._end_parsing(f"A request has at most {_MAX_HEADERS} headers.")
            super().on_header(name, value)

        def on_headers_complete(self) -> None:
            self.unread, self.in_head = 0, False
            if len(self.url) > _MAX_PATH and b"?" not in self.url[: _MAX_PATH + 1]:
                self._end_parsing(f"The path of a request has at most {_MAX_PATH} bytes.")
            super().on_headers_complete()

        def on_body(self, body: bytes) -> None:
            self.unread = 0
            super().on_body(body)

        def on_message_complete(self) -> None:
            self.unread = 0
            super().on_message_complete()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._note_waiting()

        def pause_writing(self) -> None:
            super().pause_writing()
            self._note_waiting()

        def resume_writing(self) -> None:
            super().resume_writing()
            self._note_waiting()

        def send_400_response(self, msg: str) -> None:
            super().send_400_response(self.fault or msg)

        def handle_websocket_upgrade(self) -> None:
            self.upgraded = True
            self._stop_timer()
            self.waiting.remove(self)
            super().handle_websocket_upgrade()

        def connection_lost(self, exc: Exception | None) -> None:
            self.waiting.remove(self)
            super().connection_lost(exc)
            self._stop_timer()

        def _end_parsing(self, fault: str) -> NoReturn:
            self.fault = fault  # which is the answer
            raise ValueError(fault)

        def _note_waiting(self) -> None:
            """Notes whether it is the client's turn: to send the rest of a request or the next one, or to read."""
            cycle = self.cycle
            works = cycle is not None and not cycle.response_complete and not cycle.more_body
            self.waiting.set_waiting(self, not works or self.flow.write_paused)

        def _make_room(self) -> None:
            other = self.waiting.next_to_close()
            if other is None or other is self:  # all others work for their clients
                self.app = service_unavailable
                return
            self.waiting.remove(other)
            self.connections.discard(other)
            other.transport.abort()  # to close it could take for ever, if its client does not read

        def _start_timer(self) -> None:
            self.timer = self.loop.call_later(seconds, self.transport.close)

        def _stop_timer(self) -> None:
            if self.timer is not None:
                self.timer.cancel()
                self.timer = None

    return PromptProtocol
