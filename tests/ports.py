"""Ports for servers that tests start in processes of their own."""

from __future__ import annotations

import random
import socket

_FROM, _TO = 10_000, 32_000  # below those that Linux gives to connections, which might take it before the server does
_drawn: set[int] = set()
_chance = random.SystemRandom()  # or workers of the suite that run at once would draw the same


def free_port() -> int:
    """A port of loopback that nobody listens on, another one each time."""
    while True:
        port = _chance.randrange(_FROM, _TO)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in _drawn:
            _drawn.add(port)
            return port
