"""A gate that admits a limited number of requests at once and refuses the others with 429."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headrace.server.http.refusals import Refusal


class Gate:
    """Admits at most `limit` at once. Only the event loop may use it, so it needs no lock.

    >>> gate = Gate(1, "queries")
    >>> with gate.entered():
    ...     with gate.entered():
    ...         pass
    Traceback (most recent call last):
        ...
    headrace.server.http.refusals.Refusal: at most 1 queries at once, and there are as many; ask again in a second
    """

    def __init__(self, limit: int, noun: str) -> None:
        self.limit, self.noun, self.inside = limit, noun, 0

    def enter(self, count: int = 1) -> None:
        """Takes a place, or several; refused if there are fewer."""
        if self.inside + count > self.limit:
            raise Refusal(
                429,
                f"at most {self.limit:,} {self.noun} at once, and there are as many; ask again in a second",
                headers={"Retry-After": "1"},
            )
        self.inside += count

    def leave(self, count: int = 1) -> None:
        """Gives the place back, or several."""
        self.inside -= count

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Takes a place for the duration of a block."""
        self.enter()
        try:
            yield
        finally:
            self.leave()
