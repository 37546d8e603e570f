"""A server: the application of a service, on a socket that listens."""

from __future__ import annotations

import gc
import resource
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final, Self

import uvicorn

from headrace.server.application import application
from headrace.server.http.listening import PORT, listen, require_tokens_off_loopback, url_of
from headrace.server.http.promptprotocol import prompt_protocol
from headrace.server.http.quietsockets import QuietSocketProtocol
from headrace.server.http.slowreaders import cut_off_slow_readers
from headrace.server.limits import Limits
from headrace.server.routes.metrics import Metrics
from headrace.server.security.proxies import Proxies
from headrace.server.security.tokens import Tokens
from headrace.server.service import Service

_SHUTDOWN: Final = 1  # seconds for open event streams, once the server is to end
_OTHER_FILES: Final = 256  # that a process may have open beside connections
_SWITCH: Final = 0.0005  # seconds that one thread runs while others wait


@contextmanager
def _prompt_python() -> Iterator[None]:
    """Lets the event loop wait less for threads that make large answers, in all of this process.

    By default a thread gives way after 5 ms, several times in each answer; and the garbage that a large answer makes
    is reason to look through all objects there are, for 0.2 s, though most came with the modules and stay.
    """
    interval = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH)
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        sys.setswitchinterval(interval)


class Server:
    """A server of a service. It listens as soon as it is made.

    `run` serves until a signal, a `with` block until its end. With `page=True` it has a web page at `/`; a process has
    one such server at a time.

    It listens at a host and port, or `on` a socket that listens already. Off loopback it wants tokens. They are sent
    in the clear, so put a proxy with TLS in front of it there, and name it in `proxies`.

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
        proxies: Proxies = Proxies(),
    ) -> None:
        if on is not None:
            address = on.getsockname()[0]
            require_tokens_off_loopback(address, address, has_tokens=bool(tokens))
        self._socket = on or listen(host, port, has_tokens=bool(tokens))
        metrics = Metrics(service)
        self.application = application(
            service, tokens=tokens, limits=limits, page=page, https=proxies.https, metrics=metrics
        )
        self.port, self.url = self._socket.getsockname()[1], url_of(host, self._socket)
        config = uvicorn.Config(
            self.application,
            http=cut_off_slow_readers(
                prompt_protocol(limits.header_seconds, _most_connections(limits.connections)),
                limits.send_seconds,
                metrics.count_cut_off,
            ),
            ws=QuietSocketProtocol,
            timeout_graceful_shutdown=_SHUTDOWN,
            ws_max_size=limits.event_bytes,
            access_log=False,
            log_config=None,
            server_header=False,
            proxy_headers=bool(proxies.addresses),
            forwarded_allow_ips=list(proxies.addresses),
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self.run, name="headrace-server", daemon=True)

    def run(self) -> None:
        """Serves until SIGINT or SIGTERM."""
        with _prompt_python():
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


def _most_connections(limit: int) -> int:
    """Returns the limit, or less if the process may not open so many files: without one it could open no store."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return limit if files == resource.RLIM_INFINITY else max(1, min(limit, files - _OTHER_FILES))
