"""Peers that do not keep to their protocol, on loopback: silent, noisy, slow, or gone in the middle; and a proxy."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

Behaviour = Callable[[socket.socket, threading.Event], None]
"""Plays one connection; the event is set when the peer is to end."""


def silent(connection: socket.socket, ended: threading.Event) -> None:
    """Takes all, answers nothing."""
    while connection.recv(1 << 16):
        pass


def noisy(connection: socket.socket, ended: threading.Event) -> None:
    """Answers everything with random bytes."""
    noise = random.Random(7)
    while connection.recv(1 << 16):
        connection.sendall(noise.randbytes(4_000))


def drip(connection: socket.socket, ended: threading.Event, piece: bytes) -> None:
    """Sends a piece every tenth of a second, without end."""
    while not ended.wait(0.1):
        connection.sendall(piece)


def huge(connection: socket.socket, ended: threading.Event) -> None:
    """Says that two gigabytes follow, in the head of a frame of Kafka's."""
    connection.recv(1 << 16)
    connection.sendall(b"\x7f\xff\xff\xff" + b"\0" * 60)
    silent(connection, ended)


def cut(connection: socket.socket, ended: threading.Event) -> None:
    """Begins an answer of a hundred bytes, and goes after ten."""
    connection.recv(1 << 16)
    connection.sendall(b"\0\0\0\x64" + b"\0" * 6)


def closing(connection: socket.socket, ended: threading.Event) -> None:
    """Goes as soon as it is asked something."""
    connection.recv(1)


def dripping(connection: socket.socket, ended: threading.Event) -> None:
    """Sends a byte of an answer every tenth of a second."""
    connection.recv(1 << 16)
    drip(connection, ended, b"\0")


BEHAVIOURS: Final = {each.__name__: each for each in (silent, noisy, huge, cut, closing, dripping)}


def as_postgresql(behaviour: Behaviour) -> Behaviour:
    """Plays a PostgreSQL that admits everybody; from the first statement on it behaves otherwise."""

    def play(connection: socket.socket, ended: threading.Event) -> None:
        connection.recv(8)
        connection.sendall(b"N")  # no TLS
        connection.recv(1 << 16)
        connection.sendall(b"R\0\0\0\x08\0\0\0\0" + b"Z\0\0\0\x05I")
        behaviour(connection, ended)

    return play


def huge_row(connection: socket.socket, ended: threading.Event) -> None:
    """Answers a statement of PostgreSQL's with the head of a row of a gigabyte."""
    connection.recv(1 << 16)
    connection.sendall(b"D\x3f\xff\xff\xff\0\1")
    silent(connection, ended)


def dripping_notices(connection: socket.socket, ended: threading.Event) -> None:
    """Answers a statement of PostgreSQL's with messages that mean nothing, one after the other."""
    connection.recv(1 << 16)
    drip(connection, ended, b"S\0\0\0\x08a\0b\0")


def echoing_password(connection: socket.socket, ended: threading.Event) -> None:
    """Asks a client of PostgreSQL's for its password, and tells it in an error."""
    connection.recv(8)
    connection.sendall(b"N")
    connection.recv(1 << 16)
    connection.sendall(b"R\0\0\0\x08\0\0\0\3")
    password = connection.recv(1 << 16)[5:-1]
    fields = b"SFATAL\0C28P01\0Mno " + password + b" here" + b"!" * 9_000 + b"\0\0"
    connection.sendall(b"E" + (len(fields) + 4).to_bytes(4) + fields)


@contextmanager
def playing(behaviour: Behaviour) -> Iterator[int]:
    """Plays a peer on a free port of loopback, which it yields."""
    ended = threading.Event()
    connections: list[socket.socket] = []

    def play(connection: socket.socket) -> None:
        with suppress(OSError), connection:
            behaviour(connection, ended)

    def accept(server: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connection, _ = server.accept()
                connections.append(connection)
                threading.Thread(target=play, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=accept, args=(server,), daemon=True).start()
        try:
            yield int(server.getsockname()[1])
        finally:
            ended.set()
            with suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)
            for connection in connections:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)


class Proxy:
    """A proxy between clients and a server. While it is `stalled`, connections are open and no byte passes."""

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self._passing = threading.Event()
        self._passing.set()

    @property
    def stalled(self) -> bool:
        return not self._passing.is_set()

    @stalled.setter
    def stalled(self, stalled: bool) -> None:
        (self._passing.clear if stalled else self._passing.set)()

    def play(self, client: socket.socket, ended: threading.Event) -> None:
        """Plays one connection."""
        with socket.create_connection(self._server) as server:
            back = threading.Thread(target=self._pump, args=(server, client, ended), daemon=True)
            back.start()
            self._pump(client, server, ended)
            back.join()

    def _pump(self, source: socket.socket, target: socket.socket, ended: threading.Event) -> None:
        with suppress(OSError):
            while piece := source.recv(1 << 16):
                while not self._passing.wait(0.05):
                    if ended.is_set():
                        return
                target.sendall(piece)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
