"""Parts of a view's rows, versions and generations, as they are written: filled, merged into, copied, removed.

What writes much does so in steps, a transaction each, so that a speed layer never waits long for SQLite's one writer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Final, TypeVar

import sqlalchemy as sa

from headrace.views.errors import ViewError
from headrace.views.layout import Layout, Partial, Place, Stored
from headrace.views.merge import gathered
from headrace.views.stores.database import Database, cursor_of
from headrace.views.stores.statements import Condition, Statements

T = TypeVar("T")
Guard = Callable[[sa.Connection], None]
"""Called in each step, it raises an error if the part is not to be written any more."""

_STEP: Final = 20_000
_PLACES: Final = 500  # looked up at once; SQLite takes at most 32,766 values in a statement


class Parts:
    """The rows of one view."""

    def __init__(self, database: Database, layout: Layout) -> None:
        self.database, self.layout = database, layout
        self.statements = Statements(layout, database.backend)

    def fill(self, part: int, partials: Iterable[Partial], guard: Guard) -> int:
        """Puts rows into a part; no place may come twice. Returns how many."""
        place, stored, count = self.layout.place, self.layout.stored, 0
        for chunk in _chunks(partials, _STEP):
            values = [(part, *place(key, start, end), *stored(accs)) for key, start, end, accs in chunk]
            try:
                with self.database.writing() as connection:
                    guard(connection)
                    self._insert(connection, values)
            except self.database.engine.dialect.loaded_dbapi.IntegrityError:
                raise ViewError(
                    f"view {self.layout.name!r}: a batch gives one row for each key and window, but one came twice, "
                    f"among {len(values)} rows from {chunk[0].key} on"
                ) from None
            count += len(values)
        return count

    def merge(self, connection: sa.Connection, part: int, partials: Iterable[Partial]) -> int:
        """Merges rows into those of a part. Returns how many are new."""
        layout, cursor, new = self.layout, cursor_of(connection), 0
        for chunk in _chunks(sorted(gathered(layout, partials).items()), _PLACES):
            before = self._at(cursor, part, [place for place, _ in chunk])
            new += len(chunk) - len(before)
            merged = [
                (place, layout.merge(layout.load(before[place]), found) if place in before else found)
                for place, found in chunk
            ]
            cursor.executemany(self.statements.upsert, [(part, *place, *layout.dump(found)) for place, found in merged])
        return new

    def merge_in_steps(self, part: int, partials: Iterable[Partial], guard: Guard) -> int:
        """The same in several transactions, for a part that nobody reads yet."""
        new = 0
        for chunk in _chunks(partials, _STEP):
            with self.database.writing() as connection:
                guard(connection)
                new += self.merge(connection, part, chunk)
        return new

    def copy(self, source: int, target: int, guard: Guard) -> int:
        """Copies a part into an empty one. Returns how many rows."""
        statements, rest, count = self.statements, Condition(), 0
        while True:
            with self.database.writing() as connection:
                guard(connection)
                cursor = cursor_of(connection)
                cursor.execute(*statements.nth(source, rest, _STEP - 1))
                last = cursor.fetchone()
                step = rest if last is None else statements.upto(rest, last)
                cursor.execute(*statements.copy(source, target, step))
                copied: int = cursor.rowcount
            count += copied
            if last is None:
                return count
            rest = statements.beyond(Condition(), last)

    def count(self, connection: sa.Connection, part: int) -> int:
        """How many rows a part has."""
        cursor = cursor_of(connection)
        cursor.execute(self.statements.count, [part])
        found: int = cursor.fetchone()[0]
        return found

    def remove(self, low: int, high: int) -> None:
        """Deletes the parts from `low` to `high`, which nobody reads any more."""
        while True:
            with self.database.writing() as connection:
                cursor = cursor_of(connection)
                cursor.execute(*self.statements.delete(low, high, _STEP))
                if cursor.rowcount < _STEP:
                    return

    def _at(self, cursor: Any, part: int, places: list[Place]) -> dict[Place, Stored]:
        cursor.execute(*self.statements.at(places, part))
        width = self.statements.width
        return {tuple(row[:width]): tuple(row[width:]) for row in cursor.fetchall()}

    def _insert(self, connection: sa.Connection, values: list[tuple[Any, ...]]) -> None:
        cursor = cursor_of(connection)
        if self.database.backend == "sqlite":
            cursor.executemany(self.statements.insert, values)
            return
        with cursor.copy(self.statements.copy_in) as copy:
            for row in values:
                copy.write_row(row)


def _chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    rest = iter(items)
    while chunk := list(islice(rest, size)):
        yield chunk
