"""A server in a child process: what Spark's driver computes in the parent does not delay its answers.

The parent listens and passes the socket on, so that the address stays when the server is started anew. In the child, a
function that is given by name makes the service. Its arguments are sent over a socket pair, and so are the calls to the
parent: other users of the machine can read the command line and the environment of a process.
"""

from __future__ import annotations

import gc
import importlib
import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from types import TracebackType
from typing import Any, Final, Self

from headrace.server.http.listening import PORT, listen, url_of
from headrace.server.process.rpc import Client, Endpoint, send_message
from headrace.server.security.proxies import Proxies
from headrace.server.security.tokens import Tokens
from headrace.server.server import Server
from headrace.server.service import Operations, Service
from headrace.views.errors import ViewError

_log = logging.getLogger("headrace.server")

_START_SECONDS: Final = 120  # the file of the app is run in it
_STOP_SECONDS: Final = 20
_COMMAND: Final = "from headrace.server.process.childprocess import serve; serve()"


class ServerProcess:
    """A server like `Server`, in a process of its own, which ends with the block and with this process.

    `factory` names a function, as "module:function". The child calls it with `arguments` and the operations of this
    process, and serves the `Service` that it returns. Call `restart_if_ended` now and then.
    """

    def __init__(
        self,
        factory: str,
        arguments: Mapping[str, Any],
        operations: Operations,
        *,
        host: str = "127.0.0.1",
        port: int = PORT,
        tokens: Tokens = Tokens(),
        proxies: Proxies = Proxies(),
    ) -> None:
        self._factory, self._arguments = factory, dict(arguments)
        self._operations, self._tokens, self._proxies = operations, tokens, proxies
        self._socket = listen(host, port, has_tokens=bool(tokens))
        self.url = url_of(host, self._socket)

    def restart_if_ended(self) -> None:
        """Starts the process anew if it has ended."""
        if (status := self._process.poll()) is not None:
            _log.error("the process of the server ended with status %s; it is started anew", status)
            self._stop()
            self._start()

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    def _start(self) -> None:
        self._channel, child_channel = socket.socketpair()
        descriptors = (self._socket.fileno(), child_channel.fileno())
        with child_channel:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _COMMAND, *map(str, descriptors)],
                stdin=subprocess.DEVNULL,
                pass_fds=descriptors,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                start_new_session=True,  # Ctrl-C is for this process, which then ends that one
            )
        send_message(
            self._channel,
            factory=self._factory,
            arguments=self._arguments,
            tokens=self._tokens.dump(),
            proxies=asdict(self._proxies),
        )
        endpoint = Endpoint(self._channel, self._operations)
        self._channel.settimeout(_START_SECONDS)
        try:
            message = endpoint.receive()
        except (OSError, ValueError):
            message = {"failed": "it said nothing"}
        self._channel.settimeout(None)
        self._thread = threading.Thread(target=endpoint.serve, name="headrace-server-calls", daemon=True)
        self._thread.start()
        if "failed" in message:
            self._stop()
            raise ViewError(f"the process of the server did not start: {message['failed']}")

    def _stop(self) -> None:
        with suppress(OSError):  # it may have gone first
            self._channel.shutdown(socket.SHUT_RDWR)  # the child waits for this
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._thread.join()
        self._channel.close()

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._socket.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()
        self._socket.close()


def serve() -> None:
    """Runs in the child process: serves until its parent has ended."""
    listening, channel = (socket.socket(fileno=int(descriptor)) for descriptor in sys.argv[1:])
    operations = Client(channel)
    message = operations.receive()
    try:
        service = _load_factory(message["factory"])(message["arguments"], operations)
        tokens, proxies = Tokens.load(message["tokens"]), Proxies(**message["proxies"])
        server = Server(service, tokens=tokens, on=listening, page=True, proxies=proxies)
    except Exception as error:
        send_message(channel, failed=f"{type(error).__name__}: {error}")
        raise SystemExit(1) from None
    gc.freeze()  # what is there by now stays, and need not be searched while somebody waits
    send_message(channel, ready=True)
    replies = threading.Thread(
        target=operations.receive_replies, args=(server.stop,), name="headrace-system", daemon=True
    )
    replies.start()
    server.run()


def _load_factory(name: str) -> Callable[[Mapping[str, Any], Operations], Service]:
    module, _, function = name.partition(":")
    factory: Callable[[Mapping[str, Any], Operations], Service] = getattr(importlib.import_module(module), function)
    return factory
