"""Calls from the process of a server to that of its system: lines of JSON over a socket, a call and then its reply."""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Final

from headrace.server.service import Operations
from headrace.views.errors import ViewError

_log = logging.getLogger("headrace.server")

_CALLS: Final = ("status", "compute", "dead_letters")


class Remote:
    """The operations of a system in another process.

    >>> class System:
    ...     def status(self):
    ...         return {"pid": 7}
    >>> here, there = socket.socketpair()
    >>> threading.Thread(target=Calls(there, System()).answer, daemon=True).start()
    >>> system = Remote(here)
    >>> threading.Thread(target=system.attend, args=(lambda: None,), daemon=True).start()
    >>> system.status()
    {'pid': 7}
    """

    def __init__(self, channel: socket.socket) -> None:
        self._channel, self._lines = channel, channel.makefile("rb")
        self._replies: SimpleQueue[dict[str, Any] | None] = SimpleQueue()
        self._turn = threading.Lock()

    def heard(self) -> Any:
        """What the other process says first, before it is called."""
        return json.loads(self._lines.readline())

    def attend(self, ended: Callable[[], None]) -> None:
        """Takes replies until the other process is gone, however it went."""
        with suppress(OSError):
            for line in self._lines:
                self._replies.put(json.loads(line))
        self._replies.put(None)
        ended()

    def status(self) -> dict[str, Any]:
        """How far everything is."""
        found: dict[str, Any] = self._call("status")
        return found

    def compute(self, view: str, *, incremental: bool) -> dict[str, Any]:
        """Begins a batch version."""
        found: dict[str, Any] = self._call("compute", view=view, incremental=incremental)
        return found

    def dead_letters(self, limit: int) -> list[dict[str, Any]]:
        """The records that no view could take."""
        found: list[dict[str, Any]] = self._call("dead_letters", limit=limit)
        return found

    def _call(self, name: str, **arguments: Any) -> Any:
        ended = ConnectionError("the system of this server has ended")
        with self._turn:
            try:
                tell(self._channel, call=name, arguments=arguments)
            except OSError:
                raise ended from None
            reply = self._replies.get()
        if reply is None:
            self._replies.put(None)  # for whoever calls next
            raise ended
        if "refused" in reply:
            raise ViewError(reply["refused"])
        if "failed" in reply:
            raise RuntimeError(f"{name} failed in the process of the system, whose log says how")
        return reply["result"]


class Calls:
    """The other end of a `Remote`: calls that come in, and the operations that answer them."""

    def __init__(self, channel: socket.socket, operations: Operations) -> None:
        self._channel, self._lines = channel, channel.makefile("rb")
        self._operations = operations

    def heard(self) -> Any:
        """What the other process says first, before it calls."""
        return json.loads(self._lines.readline())

    def answer(self) -> None:
        """Answers calls until the other process is gone."""
        with suppress(OSError):
            for line in self._lines:
                call = json.loads(line)
                tell(self._channel, **_reply(self._operations, call["call"], call["arguments"]))


def tell(channel: socket.socket, **said: Any) -> None:
    """Says something to the other end.

    >>> here, there = socket.socketpair()
    >>> tell(here, ready=True)
    >>> there.recv(100)
    b'{"ready": true}\\n'
    """
    channel.sendall(json.dumps(said).encode() + b"\n")


def _reply(operations: Operations, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    if name not in _CALLS:
        raise ValueError(f"there is no operation {name!r}")
    try:
        return {"result": getattr(operations, name)(**arguments)}
    except ViewError as error:
        return {"refused": str(error)}
    except Exception:
        _log.exception("%s failed", name)
        return {"failed": True}
