"""A limit of the time in which clients take their answers: whoever reads too slowly, or not at all, is cut off.

uvicorn itself would keep the rest of an answer, and the connection, for as long as the client keeps it open.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

_AT_ONCE: Final = struct.pack("ii", 1, 0)
_ENOUGH: Final = 800_000  # bytes of a large answer in the time limit
_PIPELINED: Final = 32  # requests of a connection that wait for the answer to one before


def cut_off_slow_readers(
    protocol: type[asyncio.Protocol], seconds: float, on_cut: Callable[[], None]
) -> type[asyncio.Protocol]:
    """Makes a protocol of uvicorn whose clients take an answer within a time limit, or 0.8 MB of a larger one.

    Time counts while there is more to send than the operating system takes. An event stream has the time whenever
    events wait. `on_cut` is called for each client that is cut off.

    >>> issubclass(cut_off_slow_readers(HttpToolsProtocol, 30, lambda: None), HttpToolsProtocol)
    True
    """
    assert issubclass(protocol, HttpToolsProtocol)

    class SendingProtocol(protocol):  # type: ignore[valid-type, misc]
        answering: RequestResponseCycle | None = None  # of pipelined requests, the one that is answered now
        sending: asyncio.TimerHandle | None = None
        begun: tuple[RequestResponseCycle | None, int] = (None, 0)  # when the time began: the answer, and its rest

        def on_message_begin(self) -> None:
            if len(self.pipeline) >= _PIPELINED:
                self.fault = f"At most {_PIPELINED} requests of a connection wait for the answer to one before."
                raise ValueError(self.fault)  # ends the parser, which answers
            super().on_message_begin()

        def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
            self.answering = cycle
            super()._start_asgi_task(cycle, app)

        def pause_writing(self) -> None:
            super().pause_writing()
            if self.sending is None:
                self._limit_sending()

        def resume_writing(self) -> None:
            super().resume_writing()
            if self.answering is None or self.answering.response_complete:
                self._limit_sending()
            elif self.answering.chunked_encoding:  # an event stream, which has no length
                self._stop_sending()

        def on_response_complete(self) -> None:
            self._limit_sending()
            super().on_response_complete()

        def handle_websocket_upgrade(self) -> None:
            self._stop_sending()
            super().handle_websocket_upgrade()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            self._stop_sending()

        def _limit_sending(self) -> None:
            """Limits the time for what is not sent yet, if there is any."""
            self._stop_sending()
            self.begun = self.answering, self._rest()
            if self.transport.get_write_buffer_size():
                self.sending = self.loop.call_later(seconds, self._cut_off)

        def _rest(self) -> int:
            """Returns how many bytes of the answer are still to be written."""
            return 0 if self.answering is None else self.answering.expected_content_length

        def _stop_sending(self) -> None:
            if self.sending is not None:
                self.sending.cancel()
                self.sending = None

        def _cut_off(self) -> None:
            self.sending = None
            answer, rest = self.begun
            if answer is not self.answering or rest - self._rest() >= _ENOUGH:
                self._limit_sending()
            elif self.transport.get_write_buffer_size():
                on_cut()
                # Without this the operating system would go on sending what it has taken, up to some MB.
                self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
                self.transport.abort()

    return SendingProtocol
