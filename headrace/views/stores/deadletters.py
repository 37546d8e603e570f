"""Dead letters in a store: records that are no events of a view, each with its position, reason and time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from headrace.model.elementwise import DeadLetter
from headrace.views.stores.database import Database
from headrace.views.stores.storetables import DEAD_LETTERS

_LONGEST: Final = 10_000  # characters of a record that are stored: more would fill the store with what nobody reads


@dataclass(frozen=True)
class StoredDeadLetter:
    """A record that is no event of a view; `met` is the time at which it was first read."""

    view: str
    position: str
    reason: str
    message: str
    record: str
    met: int


class DeadLetters:
    """The dead letters of a store.

    >>> import tempfile
    >>> from headrace.views.stores import Store
    >>> letters = Store(f"sqlite:///{tempfile.mkdtemp()}/views.db", clock=lambda: 5).dead_letters
    >>> bad = DeadLetter("{", "visits", "malformed", "it is not a JSON object", "visits/0@7")
    >>> letters.add("visitors", [bad])
    >>> letters.add("visitors", [bad])  # stored once, however often its micro-batch runs
    >>> [(letter.position, letter.reason, letter.met) for letter in letters.newest(10)], letters.counts()
    ([('visits/0@7', 'malformed', 5)], {'visitors': 1})
    """

    def __init__(self, database: Database, clock: Callable[[], int]) -> None:
        self._database, self._clock = database, clock

    def add(self, view: str, letters: Iterable[DeadLetter]) -> None:
        """Adds the dead letters that the store does not have."""
        met = self._clock()
        rows = [
            {
                "view": view,
                "position": letter.position,
                "reason": letter.error,
                "message": letter.message,
                "record": str(letter.element).replace("\0", "\N{SYMBOL FOR NULL}")[:_LONGEST],
                "met": met,
            }
            for letter in letters
        ]
        if not rows:
            return
        insert = (sqlite if self._database.backend == "sqlite" else postgresql).insert(DEAD_LETTERS)
        with self._database.writing() as connection:
            connection.execute(insert.on_conflict_do_nothing(), rows)

    def newest(self, limit: int) -> list[StoredDeadLetter]:
        """Returns the newest dead letters, newest first."""
        order = (DEAD_LETTERS.c.met.desc(), DEAD_LETTERS.c.position.desc(), DEAD_LETTERS.c.view)
        with self._database.reading() as connection:
            return [
                StoredDeadLetter(*row)
                for row in connection.execute(sa.select(DEAD_LETTERS).order_by(*order).limit(limit))
            ]

    def counts(self) -> dict[str, int]:
        """Counts the dead letters by view."""
        counted = sa.select(DEAD_LETTERS.c.view, sa.func.count()).group_by(DEAD_LETTERS.c.view)
        with self._database.reading() as connection:
            return {view: count for view, count in connection.execute(counted)}
