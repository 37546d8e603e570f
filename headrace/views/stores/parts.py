"""Parts of a view's rows, versions and generations, as they are written: filled, merged into, copied, removed.

What writes much does so in steps, a transaction each, so that a speed layer never waits long for SQLite's one writer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from headrace.views.errors import ViewError
from headrace.views.layout import Layout, Partial, Place
from headrace.views.merge import Merged, gathered
from headrace.views.stores.database import Database
from headrace.views.stores.tables import rows_of

T = TypeVar("T")
Guard = Callable[[sa.Connection], None]
"""Called in each step, it raises an error if the part is not to be written any more."""

_STEP: Final = 50_000
_PLACES: Final = 500  # looked up at once; SQLite takes at most 32,766 values in a statement


class Parts:
    """The rows of one view."""

    def __init__(self, database: Database, layout: Layout) -> None:
        self.database, self.layout, self.rows = database, layout, rows_of(layout)

    def fill(self, part: int, partials: Iterable[Partial], guard: Guard) -> int:
        """Puts rows into a part; no place may come twice. Returns how many."""
        place, stored, count = self.layout.place, self.layout.stored, 0
        for chunk in _chunks(partials, _STEP):
            values = [(part, *place(key, start, end), *stored(accs)) for key, start, end, accs in chunk]
            try:
                with self.database.writing() as connection:
                    guard(connection)
                    self._insert(connection, values)
            except sa.exc.IntegrityError:
                raise ViewError(
                    f"view {self.layout.name!r}: a batch gives one row for each key and window, but one came twice, "
                    f"among {len(values)} rows from {values[0][1 : -len(self.layout.fns)]} on"
                ) from None
            count += len(values)
        return count

    def merge(self, connection: sa.Connection, part: int, partials: Iterable[Partial]) -> int:
        """Merges rows into those of a part. Returns how many are new."""
        found, new = gathered(self.layout, partials), 0
        for chunk in _chunks(sorted(found.items()), _PLACES):
            before = self._at(connection, part, [place for place, _ in chunk])
            new += len(chunk) - len(before)
            self._upsert(connection, part, [(place, self._merged(before, place, accs)) for place, accs in chunk])
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
        rows, count, last = self.rows, 0, None
        names = [column.name for column in (rows.part, *rows.columns)]
        while True:
            taken = sa.select(sa.literal(target, sa.BigInteger), *rows.columns).where(rows.part == source)
            if last is not None:
                taken = taken.where(sa.tuple_(*rows.place) > sa.tuple_(*last))
            taken = taken.order_by(*rows.place).limit(_STEP)
            with self.database.writing() as connection:
                guard(connection)
                insert = sa.insert(rows.table).from_select(names, taken).execution_options(preserve_rowcount=True)
                done = connection.execute(insert).rowcount
                newest = sa.select(*rows.place).where(rows.part == target)
                newest = newest.order_by(*(column.desc() for column in rows.place)).limit(1)
                found = connection.execute(newest).first()
            count += done
            if done < _STEP or found is None:
                return count
            last = [sa.bindparam(None, value, column.type) for value, column in zip(found, rows.place, strict=True)]

    def count(self, connection: sa.Connection, part: int) -> int:
        """How many rows a part has."""
        return connection.execute(
            sa.select(sa.func.count()).select_from(self.rows.table).where(self.rows.part == part)
        ).scalar_one()

    def remove(self, condition: sa.ColumnElement[bool]) -> None:
        """Deletes rows, which nobody reads any more."""
        rows = self.rows
        every = sa.tuple_(rows.part, *rows.place)
        some = sa.select(rows.part, *rows.place).where(condition).limit(_STEP)
        while True:
            with self.database.writing() as connection:
                if connection.execute(sa.delete(rows.table).where(every.in_(some))).rowcount < _STEP:
                    return

    def _at(self, connection: sa.Connection, part: int, places: Sequence[Place]) -> dict[Place, tuple[Any, ...]]:
        rows, width = self.rows, len(self.rows.place)
        found = sa.select(*rows.columns).where(rows.part == part, sa.tuple_(*rows.place).in_(places))
        return {tuple(row[:width]): tuple(row[width:]) for row in connection.execute(found)}

    def _merged(self, before: dict[Place, tuple[Any, ...]], place: Place, accumulators: list[Any]) -> list[Any]:
        if place not in before:
            return accumulators
        return self.layout.merge(self.layout.load(before[place]), accumulators)

    def _upsert(self, connection: sa.Connection, part: int, rows: Sequence[Merged]) -> None:
        insert = (sqlite if self.database.backend == "sqlite" else postgresql).insert(self.rows.table)
        changed = {column.name: insert.excluded[column.name] for column in self.rows.accumulators}
        upsert = insert.on_conflict_do_update(index_elements=[self.rows.part, *self.rows.place], set_=changed)
        names = [column.name for column in (self.rows.part, *self.rows.columns)]
        values = [(part, *place, *self.layout.dump(accumulators)) for place, accumulators in rows]
        connection.execute(upsert, [dict(zip(names, row, strict=True)) for row in values])

    def _insert(self, connection: sa.Connection, values: list[tuple[Any, ...]]) -> None:
        names = [column.name for column in (self.rows.part, *self.rows.columns)]
        if self.database.backend == "sqlite":
            connection.execute(sa.insert(self.rows.table), [dict(zip(names, row, strict=True)) for row in values])
            return
        quote = self.database.engine.dialect.identifier_preparer.quote
        columns = ", ".join(map(quote, names))
        copying = f"COPY {quote(self.rows.table.name)} ({columns}) FROM STDIN"
        driver: Any = connection.connection.driver_connection
        with driver.cursor() as cursor, cursor.copy(copying) as copy:
            for row in values:
                copy.write_row(row)


def _chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    rest = iter(items)
    while chunk := list(islice(rest, size)):
        yield chunk
