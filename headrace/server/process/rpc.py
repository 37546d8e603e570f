"""Calls from the process of a server to that of its system: lines of JSON over a socket, a call and then its reply.

Calls are numbered: a statement of SQL may take seconds, and others are answered meanwhile.

Before a reply with a list, each element has a line of its own: Python runs no other thread while it reads or writes a
line, and a thousand dead letters in one would take most of a second.
"""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Final

from headrace.server.service import Operations, StatementOutcome
from headrace.views.errors import ViewError
from headrace.views.systemstatus import DeadLetterJson, JobStatus, SystemStatus

_log = logging.getLogger("headrace.server")

_METHODS: Final = ("status", "compute", "dead_letters", "execute", "catch_up")
_LONG: Final = frozenset({"execute", "catch_up"})  # those that others do not wait for
_AT_ONCE: Final = 4  # of these


class Client:
    """The operations of a system in another process, which answers with an `Endpoint`.

    >>> class System:
    ...     def status(self):
    ...         return {"pid": 7}
    >>> here, there = socket.socketpair()
    >>> threading.Thread(target=Endpoint(there, System()).serve, daemon=True).start()
    >>> system = Client(here)
    >>> threading.Thread(target=system.receive_replies, args=(lambda: None,), daemon=True).start()
    >>> system.status()
    {'pid': 7}
    """

    def __init__(self, channel: socket.socket) -> None:
        self._channel, self._lines = channel, channel.makefile("rb")
        self._replies: dict[int, SimpleQueue[dict[str, Any] | None]] = {}
        self._number, self._ended, self._lock = 0, False, threading.Lock()

    def receive(self) -> Any:
        """Reads the first message of the other process, before any call."""
        return json.loads(self._lines.readline())

    def receive_replies(self, on_end: Callable[[], None]) -> None:
        """Reads replies until the other process is gone, however it ended; then calls `on_end`."""
        with suppress(OSError):
            for line in self._lines:
                reply = json.loads(line)
                self._replies[reply["number"]].put(reply)
        with self._lock:
            self._ended = True
            for waiting in self._replies.values():
                waiting.put(None)
        on_end()

    def status(self) -> SystemStatus:
        """Returns the status of topics, views and batch jobs."""
        status: SystemStatus = self._call("status")
        return status

    def compute(self, view: str, *, incremental: bool) -> JobStatus:
        """Begins a batch version; returns the job."""
        job: JobStatus = self._call("compute", view=view, incremental=incremental)
        return job

    def dead_letters(self, limit: int) -> list[DeadLetterJson]:
        """Returns the records that are no events of a view."""
        letters: list[DeadLetterJson] = self._call("dead_letters", limit=limit)
        return letters

    def execute(self, text: str) -> StatementOutcome:
        """Executes a statement of continuous SQL."""
        outcome: StatementOutcome = self._call("execute", text=text)
        return outcome

    def catch_up(self) -> None:
        """Waits until the views of continuous SQL have all rows that are in their streams now."""
        self._call("catch_up")

    def _call(self, method: str, **arguments: Any) -> Any:
        ended = ConnectionError("the system of this server has ended")
        replies: SimpleQueue[dict[str, Any] | None] = SimpleQueue()
        with self._lock:
            if self._ended:
                raise ended
            number = self._number = self._number + 1
            self._replies[number] = replies
            try:
                send_message(self._channel, number=number, call=method, arguments=arguments)
            except OSError:
                del self._replies[number]
                raise ended from None
        elements = []
        while (reply := replies.get()) is not None and "element" in reply:
            elements.append(reply["element"])
        with self._lock:
            del self._replies[number]
        if reply is None:
            raise ended
        if "refused" in reply:
            raise ViewError(reply["refused"])
        if "failed" in reply:
            raise RuntimeError(f"{method} failed in the process of the system, whose log says how")
        return elements if "elements" in reply else reply["result"]


class Endpoint:
    """The other end of a `Client`: receives calls and answers them with the operations of a system."""

    def __init__(self, channel: socket.socket, operations: Operations) -> None:
        self._channel, self._lines = channel, channel.makefile("rb")
        self._operations, self._sending = operations, threading.Lock()

    def receive(self) -> Any:
        """Reads the first message of the other process, before it calls."""
        return json.loads(self._lines.readline())

    def serve(self) -> None:
        """Answers calls until the other process is gone: one after the other, but for those that may take long."""
        with suppress(OSError), ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="headrace-statements") as long:
            for line in self._lines:
                call = json.loads(line)
                if call["call"] in _LONG:
                    long.submit(self._answer, call)
                else:
                    self._answer(call)

    def _answer(self, call: dict[str, Any]) -> None:
        number, reply = call["number"], _reply(self._operations, call["call"], call["arguments"])
        with suppress(OSError):  # the other process may have gone
            if isinstance(result := reply.get("result"), list):
                for element in result:
                    self._send(number=number, element=element)
                reply = {"elements": len(result)}
            self._send(number=number, **reply)

    def _send(self, **fields: Any) -> None:
        with self._sending:
            send_message(self._channel, **fields)


def send_message(channel: socket.socket, **fields: Any) -> None:
    """Sends a message to the other end.

    >>> here, there = socket.socketpair()
    >>> send_message(here, ready=True)
    >>> there.recv(100)
    b'{"ready": true}\\n'
    """
    channel.sendall(json.dumps(fields).encode() + b"\n")


def _reply(operations: Operations, method: str, arguments: dict[str, Any]) -> dict[str, Any]:
    if method not in _METHODS:
        raise ValueError(f"there is no operation {method!r}")
    try:
        return {"result": getattr(operations, method)(**arguments)}
    except ViewError as error:
        return {"refused": str(error)}
    except Exception:
        _log.exception("%s failed", method)
        return {"failed": True}
