"""Relations: collections with the columns that a query may name, and the scope in which names are resolved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import sqlglot
from sqlglot import exp

from headrace.dialects.sql.grammar import ContinuousSql
from headrace.dialects.sql.sqlerrors import error_at
from headrace.model.columns import WINDOW_END, WINDOW_START
from headrace.model.knowncolumns import no_column
from headrace.model.matching import Parameter
from headrace.model.pipeline import PCollection
from headrace.model.sortorder import SortOrder
from headrace.model.windows import WindowFn

NUMBER: Final = "_query"
"""The column with the number of a query, where queries of one shape are computed together."""
COMPARED: Final = "_compared"
"""How the names of columns begin that are there to be compared with the constants of queries."""
BOUNDS: Final = {"window_start": WINDOW_START, "window_end": WINDOW_END}
"""The columns of a table in windows, and what they are in the engine."""
ROW_BOUNDS: Final = {"window_start": "CAST(__start AS BIGINT)", "window_end": "CAST(__end AS BIGINT)"}
"""The same of windows of a number of rows: the numbers of their first row, from 0, and of the one behind their last."""


def sql_text(node: exp.Expr) -> str:
    """Returns an expression as text for Spark."""
    return node.sql(dialect=ContinuousSql, normalize_functions=False, comments=False)


def column_named(name: str) -> exp.Expr:
    """Returns the expression of a column."""
    return exp.column(exp.to_identifier(name, quoted=True))


def bound_columns(bounds: Mapping[str, str] = BOUNDS) -> dict[str, exp.Expr]:
    """Returns the columns with the bounds of windows."""
    return {name: sqlglot.parse_one(each, dialect=ContinuousSql) for name, each in bounds.items()}


def is_column(node: exp.Expr) -> bool:
    """Returns whether an expression is just a column of the collection."""
    return isinstance(node, exp.Column)


def is_bound(node: exp.Expr) -> bool:
    """Returns whether an expression is a bound of the window."""
    return not is_column(node) and sql_text(node) in (*BOUNDS.values(), *ROW_BOUNDS.values())


@dataclass(frozen=True)
class MatchedQueries:
    """Queries of one shape: the file of their table, and the columns that they compare with constants."""

    table: str
    parameters: tuple[Parameter, ...]


@dataclass(frozen=True)
class Relation:
    """A collection, its columns by name as expressions over it, and the columns that identify a row, if some do.

    Columns may be names for others, or bounds of windows, which are no columns of the collection yet; those that the
    collection has are `stored`. `time` is the column with the event time. `windows` are those that rows are still to be
    assigned to: only who groups them knows when results are emitted. `retracts`: rows may be taken back. `ranking` is
    how rows are still to be ranked: only who limits the rank knows how many there are. `queries` are those that rows
    are still to be matched with. `combinations` say how columns of several rows become one, and some columns are
    `hidden`, which only these need.
    """

    collection: PCollection
    columns: Mapping[str, exp.Expr]
    stored: tuple[str, ...]
    key: tuple[str, ...] | None = None
    time: str | None = None
    windows: WindowFn | None = None
    retracts: bool = False
    ranking: Ranking | None = None
    queries: MatchedQueries | None = None
    combinations: Mapping[str, str] = field(default_factory=dict)
    hidden: tuple[str, ...] = ()

    @property
    def time_column(self) -> exp.Expr:
        """The expression of the column with the event time."""
        assert self.time is not None
        return self.columns.get(self.time, column_named(self.time))

    @property
    def windowed(self) -> bool:
        """Whether rows are in windows, or are to be."""
        return self.windows is not None or not self.collection.windowing.is_global


@dataclass(frozen=True)
class Ranking:
    """The rank of rows, from 1: the column that it is to be in, by which columns they are partitioned, and their order.

    `place` is where the query says so.
    """

    rows: Relation
    name: str
    keys: tuple[str, ...]
    by: tuple[SortOrder, ...]
    place: exp.Expr


@dataclass
class Scope:
    """The columns that a SELECT may name, by the table that qualifies them. All are of one collection."""

    text: str
    tables: dict[str, Mapping[str, exp.Expr]]

    def resolve(self, node: exp.Expr) -> exp.Expr:
        """Returns an expression with every name replaced by what the column is in the collection."""
        copied = exp.Paren(this=node.copy())
        for column in list(copied.find_all(exp.Column)):
            column.replace(self._resolved(column))
        resolved: exp.Expr = copied.this
        return resolved

    def columns(self, table: str | None, node: exp.Expr) -> list[tuple[str, exp.Expr]]:
        """Returns all columns, or those of one table, for the star that a query has."""
        tables = self.tables.values() if table is None else [self.tables[self._known_table(table, node)]]
        return [(name, each.copy()) for columns in tables for name, each in columns.items()]

    def has(self, name: str) -> bool:
        """Returns whether some table has a column."""
        return any(spelled(name, columns) is not None for columns in self.tables.values())

    def _resolved(self, column: exp.Column) -> exp.Expr:
        parts = [part.name for part in column.parts]
        qualified = spelled(parts[0], self.tables) if len(parts) > 1 else None
        among = self.tables if qualified is None else {qualified: self.tables[qualified]}
        name, *rest = column.parts if qualified is None else column.parts[1:]
        found = {table: each for table, each in among.items() if spelled(name.name, each) is not None}
        if len(found) > 1:
            which = " or ".join(f"{table}.{name.name}" for table in found)
            raise error_at(column, self.text, f"several tables have a column {name.name!r}; write {which}")
        if not found:
            names = dict.fromkeys(each for columns in among.values() for each in columns)
            raise error_at(column, self.text, no_column(name.name, names))
        (columns,) = found.values()
        result = columns[spelled(name.name, columns) or ""].copy()
        for part in rest:  # fields of structs
            result = exp.Dot(this=result, expression=part.copy())
        return result

    def _known_table(self, name: str, node: exp.Expr) -> str:
        known = spelled(name, self.tables)
        if known is None:
            raise error_at(node, self.text, f"there is no table {name!r} here; there are {', '.join(self.tables)}")
        return known


def spelled(name: str, names: Iterable[str]) -> str | None:
    """Returns a name as it is spelled among others, upper or lower case; None if it is not there."""
    lower = name.lower()
    return next((each for each in names if each.lower() == lower), None)


def renamed(relation: Relation, names: Iterable[str]) -> Relation:
    """Returns a relation whose columns have other names, in order."""
    new = dict(zip(relation.columns, names, strict=True))
    key = None if relation.key is None else tuple(new[name] for name in relation.key)
    return replace(relation, columns={new[name]: each for name, each in relation.columns.items()}, key=key)
