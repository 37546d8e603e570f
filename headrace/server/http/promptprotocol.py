"""An HTTP protocol for uvicorn that closes connections whose request heads come too slowly or are too long.

uvicorn itself would wait for ever, and keep everything.
"""

from __future__ import annotations

import asyncio
from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_MAX_HEAD: Final = 32 << 10  # bytes


def prompt_protocol(seconds: float) -> type[asyncio.Protocol]:
    """Makes the protocol of clients that must send the head of a request within so many seconds.

    >>> issubclass(prompt_protocol(10), asyncio.Protocol)
    True
    """

    class PromptProtocol(HttpToolsProtocol):
        timer: asyncio.TimerHandle | None = None
        unread = 0  # bytes that arrived outside of a body: of a head, or around the chunks of a body
        upgraded = False  # to a WebSocket; from then on another protocol has the connection

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._start_timer()

        def data_received(self, data: bytes) -> None:
            self.unread += len(data)
            super().data_received(data)
            if self.upgraded:
                return
            if self.unread > _MAX_HEAD and not self.transport.is_closing():
                self.send_400_response(f"The head of a request has at most {_MAX_HEAD} bytes.")
            elif self.cycle is not None and not self.cycle.response_complete:
                self._stop_timer()
            elif self.timer is None:
                self._start_timer()

        def on_headers_complete(self) -> None:
            self.unread = 0
            super().on_headers_complete()

        def on_body(self, body: bytes) -> None:
            self.unread = 0
            super().on_body(body)

        def on_message_complete(self) -> None:
            self.unread = 0
            super().on_message_complete()

        def handle_websocket_upgrade(self) -> None:
            self.upgraded = True
            self._stop_timer()
            super().handle_websocket_upgrade()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            self._stop_timer()

        def _start_timer(self) -> None:
            self.timer = self.loop.call_later(seconds, self.transport.close)

        def _stop_timer(self) -> None:
            if self.timer is not None:
                self.timer.cancel()
                self.timer = None

    return PromptProtocol
