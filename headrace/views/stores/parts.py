"""Writes the parts of a view's rows, which are versions and generations: fills, merges and removes them.

Large writes are done in steps of one transaction each, so that a speed layer never waits long for SQLite's one writer.
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
from headrace.views.query.merge import gather_partials
from headrace.views.stores.database import Database, cursor_of
from headrace.views.stores.statements import Condition, Statements

T = TypeVar("T")
Guard = Callable[[sa.Connection], None]
"""Called in each step; raises an error if the part must not be written any more."""

_STEP: Final = 20_000  # rows of one transaction
_PLACES: Final = 500  # places that are looked up at once


class Parts:
    """The rows of one view, by part."""

    def __init__(self, database: Database, layout: Layout) -> None:
        self.database, self.layout = database, layout
        self.statements = Statements(layout, database.backend)

    def fill(self, part: int, rows: pa.RecordBatch, guard: Guard) -> int:
        """Inserts rows into a part and returns their number; no place may occur twice."""
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
                    f"view {self.layout.name!r}: a batch has one row for each key and window, but one occurs twice, "
                    f"among {chunk.num_rows} rows from {first} on"
                ) from None
        return count

    def merge(self, connection: sa.Connection, part: int, partials: Iterable[Partial]) -> int:
        """Merges partial aggregates into the rows of a part; returns the number of new rows."""
        layout, cursor, new = self.layout, cursor_of(connection), 0
        for chunk in _chunks(sorted(gather_partials(layout, partials).items()), _PLACES):
            stored = self._at(cursor, part, [place for place, _ in chunk])
            new += len(chunk) - len(stored)
            merged = [
                (place, layout.merge(layout.load(stored[place]), values) if place in stored else values)
                for place, values in chunk
            ]
            rows = [(part, *place, *layout.dump(values)) for place, values in merged]
            cursor.executemany(self.statements.upsert, rows)
        return new

    def absorb(self, source: int, target: int, guard: Guard) -> int:
        """Merges a part into another that nobody reads yet; returns the number of new rows there."""
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
        """Returns the number of rows of a part."""
        cursor = cursor_of(connection)
        cursor.execute(self.statements.count, [part])
        count: int = cursor.fetchone()[0]
        return count

    def count_exclusive(self, part: int, others: list[int]) -> int:
        """Returns the number of rows of a part whose keys and windows no other part has."""
        with self.database.reading(patient=True) as connection:
            cursor = cursor_of(connection)
            cursor.execute(*self.statements.count_exclusive(part, others))
            count: int = cursor.fetchone()[0]
        return count

    def remove(self, low: int, high: int) -> None:
        """Deletes the rows of the parts from `low` to `high`, which nobody reads any more."""
        while True:
            with self.database.reading(patient=True) as connection:
                cursor = cursor_of(connection)
                cursor.execute(*self.statements.parts(low, high))
                part = cursor.fetchone()[0]
            if part is None:
                return
            for step in self._steps(part):
                with self.database.writing() as connection:
                    cursor_of(connection).execute(*self.statements.delete(part, step))

    def _rows(self, part: int) -> Iterator[list[tuple[Place, Stored]]]:
        """Yields the rows of a part in order, some at a time."""
        width, rest = self.statements.width, Condition()
        while True:
            with self.database.reading(patient=True) as connection:
                cursor = cursor_of(connection)
                cursor.execute(*self.statements.select([part], rest, _STEP))
                rows = [(tuple(row[:width]), tuple(row[width:])) for row in cursor.fetchall()]
            if not rows:
                return
            yield rows
            rest = self.statements.beyond(Condition(), rows[-1][0])

    def _steps(self, part: int) -> Iterator[Condition]:
        """Yields conditions that divide the rows of a part into steps. In PostgreSQL, where nobody waits, it is one."""
        statements, rest = self.statements, Condition()
        last: Place | None = () if self.database.backend == "sqlite" else None
        while last is not None:
            with self.database.reading(patient=True) as connection:
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
            # One by one: for a list of places SQLite would read the whole part.
            one = self.statements.one
            looked_up = (cursor.execute(one, (part, *place)).fetchone() for place in places)
            rows = [row for row in looked_up if row is not None]
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
    """Encodes rows of a part as CSV for COPY; bytes are hexadecimal digits."""
    columns = [pa.repeat(part, rows.num_rows)]
    for column in rows.columns:
        binary = pa.types.is_binary(column.type)
        columns.append(pa.array(["\\x" + value.hex() for value in column.to_pylist()]) if binary else column)
    sink = pa.BufferOutputStream()
    names = ["__part", *rows.schema.names]
    csv.write_csv(pa.record_batch(columns, names=names), sink, csv.WriteOptions(include_header=False))
    return sink.getvalue()


def _chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    rest = iter(items)
    while chunk := list(islice(rest, size)):
        yield chunk
