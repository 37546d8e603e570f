"""Dead letters: the records that no view could take, each with its place, its reason and when it was met."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from headrace.model.elementwise import DeadLetter
from headrace.views.stores.database import Database
from headrace.views.stores.storetables import LETTERS

_LONGEST: Final = 10_000  # letters of a record that are kept: more would fill the store with what nobody reads


@dataclass(frozen=True)
class Letter:
    """A record that a view could not take."""

    view: str
    position: str
    reason: str
    message: str
    record: str
    met: int


class Letters:
    """The dead letters of a store.

    >>> import tempfile
    >>> from headrace.views.stores import Store
    >>> letters = Store(f"sqlite:///{tempfile.mkdtemp()}/views.db", clock=lambda: 5).letters
    >>> bad = DeadLetter("{", "visits", "malformed", "it is not a JSON object", "visits/0@7")
    >>> letters.add("visitors", [bad])
    >>> letters.add("visitors", [bad])  # once, however often its micro-batch runs
    >>> [(each.position, each.reason, each.met) for each in letters.newest(10)], letters.counts()
    ([('visits/0@7', 'malformed', 5)], {'visitors': 1})
    """

    def __init__(self, database: Database, clock: Callable[[], int]) -> None:
        self._database, self._clock = database, clock

    def add(self, view: str, letters: Iterable[DeadLetter]) -> None:
        """Keeps those that are not there."""
        met = self._clock()
        rows = [
            {
                "view": view,
                "position": each.position,
                "reason": each.error,
                "message": each.message,
                "record": str(each.element).replace("\0", "\N{SYMBOL FOR NULL}")[:_LONGEST],
                "met": met,
            }
            for each in letters
        ]
        if not rows:
            return
        insert = (sqlite if self._database.backend == "sqlite" else postgresql).insert(LETTERS)
        with self._database.writing() as connection:
            connection.execute(insert.on_conflict_do_nothing(), rows)

    def newest(self, limit: int) -> list[Letter]:
        """The newest, newest first."""
        order = (LETTERS.c.met.desc(), LETTERS.c.position.desc(), LETTERS.c.view)
        with self._database.reading() as connection:
            return [Letter(*row) for row in connection.execute(sa.select(LETTERS).order_by(*order).limit(limit))]

    def counts(self) -> dict[str, int]:
        """How many there are, by view."""
        counted = sa.select(LETTERS.c.view, sa.func.count()).group_by(LETTERS.c.view)
        with self._database.reading() as connection:
            return {view: count for view, count in connection.execute(counted)}
