"""Parts of a view's rows, versions and generations, as they are written: filled, merged, removed.

What writes much does so in steps, a transaction each, so that a speed layer never waits long for SQLite's one writer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice, repeat
from typing import Any, Final, TypeVar

import pyarrow as pa
import sqlalchemy as sa
from pyarrow import csv

from headrace.views.declare.layout import Layout, Partial, Place, Stored
from headrace.views.errors import ViewError
from headrace.views.query.merge import gathered
from headrace.views.stores.database import Database, cursor_of
from headrace.views.stores.statements import Condition, Statements

T = TypeVar("T")
Guard = Callable[[sa.Connection], None]
"""Called in each step, it raises an error if the part is not to be written any more."""

_STEP: Final = 20_000
_PLACES: Final = 500  # looked up at once


class Parts:
    """The rows of one view."""

    def __init__(self, database: Database, layout: Layout) -> None:
        self.database, self.layout = database, layout
        self.statements = Statements(layout, database.backend)

    def fill(self, part: int, rows: pa.RecordBatch, guard: Guard) -> int:
        """Puts rows into a part; no place may come twice. Returns how many."""
        count: int = rows.num_rows
        for at in range(0, count, _STEP):
            chunk = rows.slice(at, _STEP)
            try:
                with self.database.writing() as connection:
                    guard(connection)
                    self._insert(cursor_of(connection), part, chunk)
            except self.database.engine.dialect.loaded_dbapi.IntegrityError:
                first = {name: chunk.column(name)[0].as_py() for name in self.layout.keys}
                raise ViewError(
                    f"view {self.layout.name!r}: a batch gives one row for each key and window, but one came twice, "
                    f"among {chunk.num_rows} rows from {first} on"
                ) from None
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

    def absorb(self, source: int, target: int, guard: Guard) -> int:
        """Merges a part into another, which nobody reads yet. Returns how many rows are new there."""
        layout, new = self.layout, 0
        for rows in self._rows(target):
            with self.database.writing() as connection:
                guard(connection)
                cursor = cursor_of(connection)
                for chunk in _chunks(rows, _PLACES):
                    other = self._at(cursor, source, [place for place, _ in chunk])
                    merged = [
                        (target, *place, *layout.dump(layout.merge(layout.load(other[place]), layout.load(stored))))
                        for place, stored in chunk
                        if place in other
                    ]
                    if merged:
                        cursor.executemany(self.statements.upsert, merged)
        for step in self._steps(source):
            with self.database.writing() as connection:
                guard(connection)
                cursor = cursor_of(connection)
                cursor.execute(*self.statements.copy(source, target, step))
                new += cursor.rowcount
        return new

    def count(self, connection: sa.Connection, part: int) -> int:
        """How many rows a part has."""
        cursor = cursor_of(connection)
        cursor.execute(self.statements.count, [part])
        found: int = cursor.fetchone()[0]
        return found

    def alone(self, part: int, others: list[int]) -> int:
        """How many rows of a part are of keys and windows that others do not know."""
        with self.database.reading() as connection:
            cursor = cursor_of(connection)
            cursor.execute(*self.statements.alone(part, others))
            found: int = cursor.fetchone()[0]
        return found

    def remove(self, low: int, high: int) -> None:
        """Deletes the parts from `low` to `high`, which nobody reads any more."""
        while True:
            with self.database.reading() as connection:
                cursor = cursor_of(connection)
                cursor.execute(*self.statements.parts(low, high))
                part = cursor.fetchone()[0]
            if part is None:
                return
            for step in self._steps(part):
                with self.database.writing() as connection:
                    cursor_of(connection).execute(*self.statements.delete(part, step))

    def _rows(self, part: int) -> Iterator[list[tuple[Place, Stored]]]:
        """The rows of a part, some at a time, in order."""
        width, rest = self.statements.width, Condition()
        while True:
            with self.database.reading() as connection:
                cursor = cursor_of(connection)
                cursor.execute(*self.statements.select([part], rest, _STEP))
                rows = [(tuple(row[:width]), tuple(row[width:])) for row in cursor.fetchall()]
            if not rows:
                return
            yield rows
            rest = self.statements.beyond(Condition(), rows[-1][0])

    def _steps(self, part: int) -> Iterator[Condition]:
        """Conditions that divide the rows of a part into steps, in order. PostgreSQL, where nobody waits, takes one."""
        statements, rest = self.statements, Condition()
        last: Place | None = () if self.database.backend == "sqlite" else None
        while last is not None:
            with self.database.reading() as connection:
                cursor = cursor_of(connection)
                cursor.execute(*statements.nth(part, rest, _STEP - 1))
                last = cursor.fetchone()
            if last is not None:
                yield statements.upto(rest, last)
                rest = statements.beyond(Condition(), last)
        yield rest

    def _at(self, cursor: Any, part: int, places: list[Place]) -> dict[Place, Stored]:
        width = self.statements.width
        if self.database.backend == "sqlite":
            # One by one: SQLite would look for a list of places by reading the whole part.
            one = self.statements.one
            found = (cursor.execute(one, (part, *place)).fetchone() for place in places)
            rows = [row for row in found if row is not None]
        else:
            cursor.execute(*self.statements.at(places, part))
            rows = cursor.fetchall()
        return {tuple(row[:width]): tuple(row[width:]) for row in rows}

    def _insert(self, cursor: Any, part: int, rows: pa.RecordBatch) -> None:
        if self.database.backend == "sqlite":
            columns = (column.to_pylist() for column in rows.columns)
            cursor.executemany(self.statements.insert, zip(repeat(part), *columns))
            return
        with cursor.copy(self.statements.copy_in) as copy:
            copy.write(_csv(part, rows))


def _csv(part: int, rows: pa.RecordBatch) -> pa.Buffer:
    """Rows of a part as COPY takes them; bytes are written in hexadecimal digits."""
    columns = [pa.repeat(part, rows.num_rows)]
    for column in rows.columns:
        binary = pa.types.is_binary(column.type)
        columns.append(pa.array(["\\x" + each.hex() for each in column.to_pylist()]) if binary else column)
    written = pa.BufferOutputStream()
    names = ["__part", *rows.schema.names]
    csv.write_csv(pa.record_batch(columns, names=names), written, csv.WriteOptions(include_header=False))
    return written.getvalue()


def _chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    rest = iter(items)
    while chunk := list(islice(rest, size)):
        yield chunk
