"""Receives lines from a socket and appends them to a topic; a line counts as received once it is on disk.

A socket sends nothing twice, so a stream reads the topic, which it can read again after a crash.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Final, Protocol

from headrace.edges.lines import Lines
from headrace.log import LogError, Topic
from headrace.model.times import now

_PIECE: Final = 1 << 16  # bytes
_LONGEST_PAUSE: Final = 5.0  # seconds from one attempt to connect to the next


class Connection(Protocol):
    """The methods of a socket that are used."""

    def settimeout(self, value: float | None, /) -> None: ...

    def recv(self, size: int, /) -> bytes: ...

    def shutdown(self, how: int, /) -> None: ...

    def close(self) -> None: ...


class LineReceiver:
    """Appends the lines that a server sends to a topic of one partition, each with its time of arrival.

    A batch has the lines that arrive within `linger` seconds of the first one, and at most `most`; they are received,
    and counted, once they are on disk. If the connection ends, the receiver connects again, after growing pauses; it
    fails after so many `attempts` in a row without a line. Times never go back, even if the clock does.

    It calls `failed` when it fails by itself. Tests pass `connect`, `clock` (microseconds), `elapsed` (seconds) and
    `pause` to control the time.
    """

    def __init__(
        self,
        topic: Topic,
        host: str,
        port: int,
        *,
        most: int = 10_000,
        linger: float = 0.05,
        attempts: int = 20,
        connect: Callable[[tuple[str, int]], Connection] = partial(socket.create_connection, timeout=10),
        clock: Callable[[], int] = now,
        elapsed: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] | None = None,
        failed: Callable[[], object] = lambda: None,
    ) -> None:
        self.topic, self.host, self.port = topic, host, port
        self.most, self.linger, self.attempts = most, linger, attempts
        self.lines = Lines()
        self.received = self.connections = 0
        self.failure: Exception | None = None
        self._connect, self._clock, self._elapsed, self._failed = connect, clock, elapsed, failed
        self._stopping = threading.Event()
        self._pause = pause or self._stopping.wait
        self._connection: Connection | None = None
        _, self._latest, _ = topic.partition(0).spans()
        self._appending = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=f"receiver of {self}", daemon=True)

    def __str__(self) -> str:
        return f"tcp://[{self.host}]:{self.port}" if ":" in self.host else f"tcp://{self.host}:{self.port}"

    def start(self) -> None:
        """Starts to receive, in a thread of its own."""
        self._thread.start()

    def stop(self) -> None:
        """Stops receiving. Complete lines that have arrived are received first."""
        self._stopping.set()
        if (connection := self._connection) is not None:
            with suppress(OSError):  # it may be closed already
                connection.shutdown(socket.SHUT_RD)  # this wakes the thread that reads from it
        self._thread.join()

    def paused(self) -> AbstractContextManager[object]:
        """Returns a context in which nothing is written to the topic."""
        return self._appending

    def counts(self) -> dict[str, int]:
        """Returns how many lines were received, how many were refused and why, and how often it connected."""
        lines = self.lines
        refused = {"too_long": lines.too_long, "not_text": lines.not_text, "torn": lines.torn}
        return {"received": self.received, "connections": self.connections} | refused

    def receive(self) -> None:
        """Receives until it is stopped; raises ConnectionError after too many attempts without a line."""
        fruitless, reason = 0, ""
        while not self._stopping.is_set():
            if fruitless == self.attempts:
                raise ConnectionError(
                    f"{self}: {reason}, {fruitless} times in a row; what was received is in the log: start the server, "
                    "and run the stream again with its checkpoint"
                )
            if fruitless:
                self._pause(min(0.1 * 2 ** min(fruitless - 1, 10), _LONGEST_PAUSE))  # 2.0 ** 1024 is no float
            before = self.received
            try:
                self._from_one_connection()
                reason = "the server closes the connection"
            except OSError as error:
                reason = error.strerror or str(error)
            fruitless = 0 if self.received > before else fruitless + 1

    def _run(self) -> None:
        try:
            self.receive()
        except Exception as error:
            self.failure = error
            self._failed()

    def _from_one_connection(self) -> None:
        connection = self._connect((self.host, self.port))
        self._connection = connection
        self.connections += 1
        try:
            while not self._stopping.is_set() and self._batch(connection):
                pass
        finally:
            self._connection = None
            connection.close()
            self.lines.broken()

    def _batch(self, connection: Connection) -> bool:
        """Receives a batch; returns False at the end of the connection."""
        values: list[str] = []
        times: list[int] = []
        until: float | None = None  # set when the first line arrives
        try:
            while len(values) < self.most:
                left = None if until is None else until - self._elapsed()
                if left is not None and left <= 0:
                    break
                connection.settimeout(left)
                try:
                    piece = connection.recv(_PIECE)
                except TimeoutError:
                    break
                lines = self.lines.feed(piece) if piece else self._last()
                self._latest = max(self._latest, self._clock())
                values += lines
                times += [self._latest] * len(lines)
                if not piece:
                    return False
                if values and until is None:
                    until = self._elapsed() + self.linger
            return True
        finally:
            self._append(values, times)

    def _last(self) -> list[str]:
        """Returns the line before the end, unless this receiver was stopped: then the line may go on."""
        return [] if self._stopping.is_set() else self.lines.end()

    def _append(self, values: list[str], times: list[int]) -> None:
        try:
            with self._appending:
                self.topic.append(0, self.topic.batch([{"value": value} for value in values], timestamps=times))
        except OSError as error:
            raise LogError(
                f"{self}: cannot write {len(values)} lines to the log: {error.strerror}; they are lost, unless the "
                "server sends them again"
            ) from error
        self.received += len(values)
