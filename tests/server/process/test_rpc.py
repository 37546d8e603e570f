"""Calls to the process of a system: every result arrives as it was, and lists line by line."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest

from headrace.server.process.rpc import Client, Endpoint
from headrace.views.errors import ViewError

LETTERS = [{"record": "\u4e2d" * 10_000, "position": f"visits/0@{number}"} for number in range(1_000)]


class System:
    """Operations with these dead letters."""

    def status(self) -> Any:
        return {"topics": {}, "jobs": [1, [2]]}

    def compute(self, view: str, *, incremental: bool) -> Any:
        raise ViewError(f"{view} is computed already")

    def dead_letters(self, limit: int) -> Any:
        return LETTERS[:limit]


def test_lists_arrive_line_by_line() -> None:
    here, there = socket.socketpair()
    with here, there:
        threading.Thread(target=Endpoint(there, System()).serve, daemon=True).start()
        client = Client(here)
        longest = 0

        class Lines:
            """The lines of the channel, measured."""

            def __iter__(self) -> Any:
                nonlocal longest
                for line in lines:
                    longest = max(longest, len(line))
                    yield line

        lines, client._lines = client._lines, Lines()  # type: ignore[assignment]
        threading.Thread(target=client.receive_replies, args=(lambda: None,), daemon=True).start()
        for limit in (0, 1, 1_000):
            assert client.dead_letters(limit) == LETTERS[:limit]
            assert client.status() == System().status()
            with pytest.raises(ViewError, match="visitors is computed already"):
                client.compute("visitors", incremental=False)
        assert longest < 70_000
