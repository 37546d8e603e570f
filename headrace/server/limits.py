"""Limits: how much one request may take, and how many may be under way at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from headrace.server.http.refusals import Refused
from headrace.views import adhoc


@dataclass(frozen=True)
class Limits:
    """What requests may take.

    - body_bytes, body_seconds: how large a body is, and how long it may take to arrive
    - queries, query_seconds: questions to the store under way, and how long one is waited for
    - posts: requests to topics under way
    - statements, sql: ad-hoc statements under way, and what each may use; sql_rows: rows of views that one may read
    - listeners, poll, heartbeat: streams of changes that are open, and the seconds between two looks at the store and
      between two signs of life
    - connections, header_seconds: open connections, and how long the head of a request may take to arrive

    >>> Limits(body_bytes=1_000).body_bytes
    1000
    """

    body_bytes: int = 4 << 20
    body_seconds: float = 10
    queries: int = 64
    query_seconds: float = 30
    posts: int = 16
    statements: int = 2
    sql: adhoc.Limits = field(default_factory=adhoc.Limits)
    sql_rows: int = 200_000
    listeners: int = 100
    poll: float = 0.5
    heartbeat: float = 15
    connections: int = 1_000
    header_seconds: float = 10


class Gate:
    """Lets in so many at once, and refuses the others; it is used from the event loop alone.

    >>> gate = Gate(1, "questions")
    >>> with gate.entered():
    ...     with gate.entered():
    ...         pass
    Traceback (most recent call last):
        ...
    headrace.server.http.refusals.Refused: 1 questions are under way, as many as there may be; ask again in a second
    """

    def __init__(self, most: int, what: str) -> None:
        self.most, self.what, self.inside = most, what, 0

    def enter(self) -> None:
        if self.inside >= self.most:
            raise Refused(
                429,
                f"{self.most} {self.what} are under way, as many as there may be; ask again in a second",
                headers={"Retry-After": "1"},
            )
        self.inside += 1

    def leave(self) -> None:
        self.inside -= 1

    @contextmanager
    def entered(self) -> Iterator[None]:
        """For the time of a block."""
        self.enter()
        try:
            yield
        finally:
            self.leave()
