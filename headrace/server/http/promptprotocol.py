"""HTTP for clients that are prompt and brief: what uvicorn itself would wait for, or keep, for ever."""

from __future__ import annotations

import asyncio
from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_LONGEST_HEAD: Final = 32 << 10  # bytes


def protocol(seconds: float) -> type[asyncio.Protocol]:
    """HTTP, for clients that send the head of a request within so many seconds.

    >>> issubclass(protocol(10), asyncio.Protocol)
    True
    """

    class Prompt(HttpToolsProtocol):
        waiting: asyncio.TimerHandle | None = None
        unread = 0  # bytes that came and are no body: of a head, or of what chunks have around them
        upgraded = False  # to a WebSocket: from then on it is another protocol's connection

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._wait()

        def data_received(self, data: bytes) -> None:
            self.unread += len(data)
            super().data_received(data)
            if self.upgraded:
                return
            if self.unread > _LONGEST_HEAD and not self.transport.is_closing():
                self.send_400_response(f"The head of a request has at most {_LONGEST_HEAD} bytes.")
            elif self.cycle is not None and not self.cycle.response_complete:
                self._wait_no_more()
            elif self.waiting is None:
                self._wait()

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
            self._wait_no_more()
            super().handle_websocket_upgrade()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            self._wait_no_more()

        def _wait(self) -> None:
            self.waiting = self.loop.call_later(seconds, self.transport.close)

        def _wait_no_more(self) -> None:
            if self.waiting is not None:
                self.waiting.cancel()
                self.waiting = None

    return Prompt
