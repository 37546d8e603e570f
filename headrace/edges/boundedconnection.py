"""A connection to PostgreSQL on which every statement has a time limit, also if the server never answers.

PostgreSQL's own `statement_timeout` is kept by the server, and `tcp_user_timeout` by its machine: neither helps against
a server that accepts statements and is silent, or sends a byte now and then.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any, Final

import psycopg

ANSWER: Final = 30.0
"""Seconds in which a server answers a statement, unless more was allowed."""


class BoundedConnection(psycopg.Connection[Any]):
    """A connection that is closed, and raises an OperationalError, when a statement takes longer than `patience`."""

    patience = ANSWER

    def wait(self, gen: Generator[Any, Any, Any], *args: Any, **options: Any) -> Any:
        """Waits for what psycopg does on the connection, which is a generator, for so long at most."""
        return super().wait(self._bounded(gen, time.monotonic() + self.patience), *args, **options)

    def _bounded(self, gen: Generator[Any, Any, Any], deadline: float) -> Generator[Any, Any, Any]:
        """Goes through a generator; psycopg resumes it when the socket is ready, and ten times a second."""
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if time.monotonic() > deadline:
                    break
                wanted = gen.send(ready)
        except StopIteration as end:
            return end.value
        self.close()  # it is in the middle of an answer: nobody may use it again
        raise psycopg.OperationalError(
            f"the server has not answered a statement for {self.patience:g} seconds; pg_stat_activity says what it "
            "waits for, if it is well"
        )
