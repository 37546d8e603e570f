"""SQL statements for a view's rows, written out: SQLite and PostgreSQL take the same, and a query is one statement.

Names are those of the layout, which are plain words, in quotes; every value is bound.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from headrace.views.declare.layout import Layout

_ARRAYS: dict[type, str] = {str: "text[]", int: "bigint[]", bytes: "bytea[]"}


@dataclass
class Condition:
    """A condition on rows: SQL that continues a WHERE, and the values of its placeholders."""

    sql: str = ""
    values: list[Any] = field(default_factory=list)

    def both(self, sql: str, *values: Any) -> Condition:
        """Returns the conjunction of this condition and another."""
        return Condition(f"{self.sql} AND {sql}", [*self.values, *values])


class Statements:
    """The SQL statements for the rows of one view."""

    def __init__(self, layout: Layout, backend: str) -> None:
        self.mark = "?" if backend == "sqlite" else "%s"
        self.table = f'"view_{layout.name}"'
        self.keys = [f'"{name}"' for name in layout.keys]
        places = [*self.keys, '"__nulls"', '"__start"', '"__end"']
        accumulators = [f'"{name}"' for name in layout.aggregations]
        self.places, self.width = ", ".join(places), len(places)
        self.columns = ", ".join([*places, *accumulators])
        self.every = f'"__part", {self.columns}'
        marks = ", ".join([self.mark] * (1 + self.width + len(accumulators)))
        texts = [f'"{name}"' for name, kind in zip(layout.aggregations, layout.kinds, strict=True) if kind == "bytes"]
        self.variable = bool(texts)  # whether accumulators may have any length
        self._lengths = " + ".join(f"coalesce(length({name}), 0)" for name in texts)
        self.insert = f"INSERT INTO {self.table} ({self.every}) VALUES ({marks})"
        changes = ", ".join(f"{name} = excluded.{name}" for name in accumulators)
        self.upsert = f'{self.insert} ON CONFLICT ("__part", {self.places}) DO UPDATE SET {changes}'
        self.copy_in = f"COPY {self.table} ({self.every}) FROM STDIN WITH (FORMAT csv)"
        self.count = f'SELECT count(*) FROM {self.table} WHERE "__part" = {self.mark}'
        self._select = lru_cache(64)(self._selected)  # most queries have one of a few forms
        types = ", ".join(
            f"{self.mark}::{_ARRAYS[kind]}" for kind in [*(each.stored for each in layout.types), *[int] * 3]
        )
        wanted = ", ".join(f"w{number}" for number in range(self.width))
        same = " AND ".join(f"{name} = w{number}" for number, name in enumerate(places))
        here = " AND ".join(f"{name} = {self.mark}" for name in places)
        self._alike = " AND ".join(f"other.{name} = this.{name}" for name in places)
        self.one = f'SELECT {self.columns} FROM {self.table} WHERE "__part" = {self.mark} AND {here}'
        self._joined = f"SELECT {self.columns} FROM unnest({types}) AS wanted({wanted}) JOIN {self.table} ON {same}"

    def row(self) -> str:
        """Returns a tuple of placeholders for a place."""
        return f"({', '.join([self.mark] * self.width)})"

    def at(self, places: list[tuple[Any, ...]], part: int) -> tuple[str, list[Any]]:
        """Selects the rows of a part at some places, in PostgreSQL, which would plan a list of rows one by one."""
        columns = [list(column) for column in zip(*places, strict=True)]
        return f'{self._joined} AND "__part" = {self.mark}', [*columns, part]

    def beyond(self, condition: Condition, place: tuple[Any, ...]) -> Condition:
        """Restricts a condition to rows after a place."""
        return condition.both(f"({self.places}) > {self.row()}", *place)

    def upto(self, condition: Condition, place: tuple[Any, ...]) -> Condition:
        """Restricts a condition to rows up to a place."""
        return condition.both(f"({self.places}) <= {self.row()}", *place)

    def select(self, parts: list[int], condition: Condition, limit: int) -> tuple[str, list[Any]]:
        """Selects the first rows of each part that satisfy a condition."""
        values = [value for part in parts for value in (part, *condition.values, limit)]
        return self._select(len(parts), condition.sql), values

    def lengths(self, parts: list[int], condition: Condition, limit: int) -> tuple[str, list[Any]]:
        """Selects the total length of accumulators in the first rows of each part."""
        where = f'"__part" = {self.mark}{condition.sql} ORDER BY {self.places} LIMIT {self.mark}'
        each = f"SELECT * FROM (SELECT {self._lengths} AS length FROM {self.table} WHERE {where}) AS r"
        values = [value for part in parts for value in (part, *condition.values, limit)]
        return f"SELECT coalesce(sum(length), 0) FROM ({' UNION ALL '.join([each] * len(parts))}) AS lengths", values

    def largest(
        self, parts: list[int], condition: Condition, name: str, n: int, *, groups: str
    ) -> tuple[str, list[Any]]:
        """Selects the groups with the largest totals."""
        marks = ", ".join([self.mark] * len(parts))
        where = f'"__part" IN ({marks}){condition.sql}'
        order = f'sum("{name}") DESC, {groups} LIMIT {self.mark}'
        select = f"SELECT {groups} FROM {self.table} WHERE {where} GROUP BY {groups} ORDER BY {order}"
        return select, [*parts, *condition.values, n]

    def nth(self, part: int, condition: Condition, n: int) -> tuple[str, list[Any]]:
        """Selects the place of the n-th row of a part that satisfies a condition, from 0."""
        where = f'"__part" = {self.mark}{condition.sql} ORDER BY {self.places} LIMIT 1 OFFSET {self.mark}'
        return f"SELECT {self.places} FROM {self.table} WHERE {where}", [part, *condition.values, n]

    def copy(self, source: int, target: int, condition: Condition) -> tuple[str, list[Any]]:
        """Copies rows of a part into another, except those whose places the other has."""
        where = f'"__part" = {self.mark}{condition.sql} ORDER BY {self.places}'
        rows = f"SELECT {target:d}, {self.columns} FROM {self.table} WHERE {where}"
        return f"INSERT INTO {self.table} ({self.every}) {rows} ON CONFLICT DO NOTHING", [
            source,
            *condition.values,
        ]

    def count_exclusive(self, part: int, others: list[int]) -> tuple[str, list[Any]]:
        """Counts the rows of a part at places that no other part has."""
        marks = ", ".join([self.mark] * len(others))
        elsewhere = f'SELECT 1 FROM {self.table} AS other WHERE other."__part" IN ({marks}) AND {self._alike}'
        where = f'this."__part" = {self.mark} AND NOT EXISTS ({elsewhere})'
        return f"SELECT count(*) FROM {self.table} AS this WHERE {where}", [part, *others]

    def parts(self, low: int, high: int) -> tuple[str, list[Any]]:
        """Selects the first of the parts from `low` to `high` that has rows."""
        between = f'"__part" BETWEEN {self.mark} AND {self.mark}'
        return f'SELECT min("__part") FROM {self.table} WHERE {between}', [low, high]

    def delete(self, part: int, condition: Condition) -> tuple[str, list[Any]]:
        """Deletes rows of a part."""
        return f'DELETE FROM {self.table} WHERE "__part" = {self.mark}{condition.sql}', [part, *condition.values]

    def _selected(self, parts: int, condition: str) -> str:
        where = f'"__part" = {self.mark}{condition} ORDER BY {self.places} LIMIT {self.mark}'
        one = f"SELECT {self.columns} FROM {self.table} WHERE {where}"
        if parts == 1:
            return one
        return " UNION ALL ".join(f"SELECT * FROM ({one}) AS r{number}" for number in range(parts))
