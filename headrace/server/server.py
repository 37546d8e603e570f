"""Running the server: where it listens, and that it is safe to listen there."""

from __future__ import annotations

import ipaddress
import socket
import threading
from types import TracebackType
from typing import Any, Final, Self

import uvicorn

from headrace.server.application import application
from headrace.server.http.promptprotocol import protocol
from headrace.server.limits import Limits
from headrace.server.security.tokens import Tokens
from headrace.server.service import Service

PORT: Final = 8787
_LEAVING: Final = 1  # seconds for open streams of changes, once the server is to end


class Server:
    """A server of a service. It listens from its beginning; `run` serves until a signal, a `with` block until its end.
    With `page=True` it has a web page at `/`; a process has one such server at a time.

    It listens at a host and port, or `on` a socket that listens already. Off loopback it wants tokens. They travel as
    they are, so put a proxy with TLS in front of it there.

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
        on: socket.socket | None = None,
        page: bool = False,
    ) -> None:
        if on is not None:
            _refuse_strangers(on.getsockname()[0], on.getsockname()[0], tokens)
        self._socket = on or listen(host, port, tokens)
        self.application = application(service, tokens=tokens, limits=limits, page=page)
        self.port, self.url = self._socket.getsockname()[1], url_of(host, self._socket)
        config = uvicorn.Config(
            self.application,
            http=protocol(limits.header_seconds),
            limit_concurrency=limits.connections,
            timeout_graceful_shutdown=_LEAVING,
            ws_max_size=limits.body_bytes,
            access_log=False,
            log_config=None,
            server_header=False,
            proxy_headers=False,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self.run, name="headrace-server", daemon=True)

    def run(self) -> None:
        """Serves until SIGINT or SIGTERM."""
        self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        """Ends `run`, which takes a moment."""
        self._server.should_exit = True

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._thread.join()
        self._socket.close()


def listen(host: str, port: int, tokens: Tokens) -> socket.socket:
    """A socket for a server: at an address that others reach only if tokens keep them out.

    >>> listen("127.0.0.1", 0, Tokens()).getsockname()[0]
    '127.0.0.1'
    """
    family, address = _resolved(host, port)
    _refuse_strangers(host, address[0], tokens)
    listening = socket.create_server(address, family=family)
    # Connections inherit it. asyncio would set it, were the socket's protocol named; without, answers wait 40 ms.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def url_of(host: str, listening: socket.socket) -> str:
    """Where a server is that listens there.

    >>> url_of("::1", listen("127.0.0.1", 0, Tokens())).rpartition(":")[0]
    'http://[::1]'
    """
    return f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"


def _refuse_strangers(host: str, address: str, tokens: Tokens) -> None:
    if not tokens and not ipaddress.ip_address(address).is_loopback:
        raise ValueError(
            f"{host} can be reached from other machines, and everybody there could read and write all; give "
            "tokens, or listen on 127.0.0.1"
        )


def _resolved(host: str, port: int) -> tuple[socket.AddressFamily, tuple[Any, ...]]:
    """What a name stands for: it is the address that is judged, and listened on."""
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_ADDRCONFIG
        )[0]
    except OSError as error:
        raise ValueError(f"cannot listen on {host!r}: {error.strerror}; give an address of this machine") from None
    return family, address[:2]
