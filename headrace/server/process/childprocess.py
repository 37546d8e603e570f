"""A server in a process of its own, beside that of its system: what Spark's driver computes does not hold answers up.

The process of the system listens and hands the socket on, so that the address stays when the server is started anew.
What is to be served goes over a socket pair, and so do the calls to the system: arguments and environment of a process
can be read by others.
"""

from __future__ import annotations

import gc
import logging
import os
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from headrace.dialects.storm.cluster.control import Control
from headrace.server.process.rpc import Calls, Remote, tell
from headrace.server.security.tokens import Tokens
from headrace.server.server import PORT, Server, listen, url_of
from headrace.server.service import Operations, Service
from headrace.views.adhoc.sparkengine import SparkAdHoc
from headrace.views.declare.app import App
from headrace.views.errors import ViewError
from headrace.views.stores import Store

_log = logging.getLogger("headrace.server")

_STARTING: Final = 120  # seconds, in which it runs the file of the app
_ENDING: Final = 20
_COMMAND: Final = "from headrace.server.process.childprocess import serve; serve()"


@dataclass(frozen=True)
class Served:
    """What is served: the file of an app, the URL of its store, its log, as `feed_of` takes it, and where its master
    data is. Ad-hoc SQL may run on the Spark master `spark`. The cluster of topologies in the directory `storm`, if one
    is named, is shown beside it."""

    app: str
    store: str
    log: str
    master: str
    spark: str
    storm: str = ""


class Apart:
    """A server like `Server`, in a process of its own. That ends with the block, and with this process.

    Whoever runs it calls `look` now and then, which starts it anew if it has ended.
    """

    def __init__(
        self,
        served: Served,
        operations: Operations,
        *,
        host: str = "127.0.0.1",
        port: int = PORT,
        tokens: Tokens = Tokens(),
    ) -> None:
        self._served, self._operations, self._tokens = served, operations, tokens
        self._socket = listen(host, port, tokens)
        self.url = url_of(host, self._socket)

    def look(self) -> None:
        """Starts the process anew if it has ended."""
        if (status := self._process.poll()) is not None:
            _log.error("the process of the server ended with status %s; it is started anew", status)
            self._end()
            self._start()

    @property
    def pid(self) -> int:
        """The process that answers."""
        return self._process.pid

    def _start(self) -> None:
        self._channel, theirs = socket.socketpair()
        passed = (self._socket.fileno(), theirs.fileno())
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-c",
                    "from headrace.server.process.childprocess import serve; serve()",
                    *map(str, passed),
                ],
                stdin=subprocess.DEVNULL,
                pass_fds=passed,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                start_new_session=True,  # Ctrl-C is for this process, which then ends that one
            )
        tell(self._channel, served=asdict(self._served), tokens=self._tokens.dump())
        calls = Calls(self._channel, self._operations)
        self._channel.settimeout(_STARTING)
        try:
            said = calls.heard()
        except (OSError, ValueError):
            said = {"failed": "it said nothing"}
        self._channel.settimeout(None)
        self._thread = threading.Thread(target=calls.answer, name="headrace-server-calls", daemon=True)
        self._thread.start()
        if "failed" in said:
            self._end()
            raise ViewError(f"the process of the server did not start: {said['failed']}")

    def _end(self) -> None:
        with suppress(OSError):  # it may have gone first
            self._channel.shutdown(socket.SHUT_RDWR)  # what the process waits for
        try:
            self._process.wait(_ENDING)
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
        self._end()
        self._socket.close()


def serve() -> None:
    """What the process does: it serves until its system has ended."""
    listening, channel = (socket.socket(fileno=int(each)) for each in sys.argv[1:])
    system = Remote(channel)
    told = system.heard()
    try:
        server = Server(
            _service(Served(**told["served"]), system), tokens=Tokens.load(told["tokens"]), on=listening, page=True
        )
    except Exception as error:
        tell(channel, failed=f"{type(error).__name__}: {error}")
        raise SystemExit(1) from None
    gc.freeze()  # what is there by now stays, and need not be looked through while somebody waits
    tell(channel, ready=True)
    threading.Thread(target=system.attend, args=(server.stop,), name="headrace-system", daemon=True).start()
    server.run()


def _service(served: Served, system: Any) -> Service:
    adhoc = SparkAdHoc(master=served.spark)
    store, master = Store(served.store), Path(served.master)
    service = Service.of(App.load(served.app), store, served.log, system, master=master, spark=adhoc)
    return replace(service, topologies=Control(served.storm)) if served.storm else service
