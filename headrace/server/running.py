"""Running the server: where it listens, and that it is safe to listen there."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
from types import TracebackType
from typing import Any, Final, Self

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from headrace.server.application import application
from headrace.server.limits import Limits
from headrace.server.service import Service
from headrace.server.tokens import Tokens

PORT: Final = 8787
_LONGEST_HEAD: Final = 32 << 10  # bytes
_LEAVING: Final = 1  # seconds for open streams of changes, once the server is to end


class Server:
    """A server of a service. It listens from its beginning; `run` serves until a signal, a `with` block until its end.
    With `page=True` it has a web page at `/`; a process has one such server at a time.

    Off loopback it wants tokens. They travel as they are, so put a proxy with TLS in front of it there.

    >>> import json, urllib.request
    >>> with Server(Service({}, {}), port=0) as server:
    ...     json.load(urllib.request.urlopen(f"{server.url}/healthz"))
    {'status': 'alive'}
    >>> Server(Service({}, {}), host="0.0.0.0")
    Traceback (most recent call last):
        ...
    ValueError: 0.0.0.0 can be reached from other machines, and everybody there could read and write all; give tokens, \
or listen on 127.0.0.1
    """

    def __init__(
        self,
        service: Service,
        *,
        host: str = "127.0.0.1",
        port: int = PORT,
        tokens: Tokens = Tokens(),
        limits: Limits = Limits(),
        page: bool = False,
    ) -> None:
        family, address = _resolved(host, port)
        if not tokens and not ipaddress.ip_address(address[0]).is_loopback:
            raise ValueError(
                f"{host} can be reached from other machines, and everybody there could read and write all; give "
                "tokens, or listen on 127.0.0.1"
            )
        self.application = application(service, tokens=tokens, limits=limits, page=page)
        self._socket = socket.create_server(address, family=family)
        # Connections inherit it. asyncio would set it, were the socket's protocol named; without, answers wait 40 ms.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.host, self.port = host, self._socket.getsockname()[1]
        config = uvicorn.Config(
            self.application,
            http=_protocol(limits.header_seconds),
            limit_concurrency=limits.connections,
            timeout_graceful_shutdown=_LEAVING,
            h11_max_incomplete_event_size=_LONGEST_HEAD,
            ws_max_size=limits.body_bytes,
            access_log=False,
            log_config=None,
            server_header=False,
            proxy_headers=False,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self.run, name="headrace-server", daemon=True)

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    def run(self) -> None:
        """Serves until SIGINT or SIGTERM."""
        self._server.run(sockets=[self._socket])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()


def _resolved(host: str, port: int) -> tuple[socket.AddressFamily, tuple[Any, ...]]:
    """What a name stands for: it is the address that is judged, and listened on."""
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_ADDRCONFIG
        )[0]
    except OSError as error:
        raise ValueError(f"cannot listen on {host!r}: {error.strerror}; give an address of this machine") from None
    return family, address[:2]


def _protocol(seconds: float) -> type[asyncio.Protocol]:
    """HTTP, for clients that send the head of a request within so many seconds; uvicorn itself would wait for ever."""

    class Prompt(H11Protocol):
        waiting: asyncio.TimerHandle | None = None
        upgraded = False  # to a WebSocket, which has a protocol of its own

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._wait()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.cycle is not None and not self.cycle.response_complete:
                self._wait_no_more()
            elif self.waiting is None and not self.upgraded:
                self._wait()

        def handle_websocket_upgrade(self, event: h11.Request) -> None:
            self._wait_no_more()
            super().handle_websocket_upgrade(event)
            self.upgraded = True

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
