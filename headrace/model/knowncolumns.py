"""Infers the columns of collections without Spark, as far as possible, and describes columns that do not exist."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Final, TypeVar

from headrace.model.columns import Aggregate, Select, TopRows, Where
from headrace.model.keyed import Flatten, Reshuffle, WindowInto
from headrace.model.matching import MatchQueries
from headrace.model.pipeline import Graph, PCollection
from headrace.model.sqlnames import column_of, result_name

T = TypeVar("T")

VALUES: Final = {"user", "session_user", "localtimestamp"} | {
    f"current_{what}" for what in ("date", "timestamp", "time", "user", "catalog", "database", "schema", "timezone")
}
"""Words that have a value in SQL if there is no column with the name."""


def columns_of(
    graph: Graph, collection: PCollection, known: Callable[[PCollection], Mapping[str, T | None] | None]
) -> Mapping[str, T | None] | None:
    """Infers the columns of a collection with their types, None for a type that only Spark knows.

    `known` gives the columns of a collection that need not be inferred. None if not even names can be inferred.
    """
    if (declared := known(collection)) is not None:
        return declared
    node = graph.producer(collection)
    if not node.inputs:
        return None
    inputs = [columns_of(graph, each, known) for each in node.inputs]
    before = inputs[0] if all(each == inputs[0] for each in inputs) else None
    match node.transform:
        case Where() | WindowInto() | Flatten() | Reshuffle():
            return before
        case TopRows(rank=rank):
            return before if before is None or rank is None else {**before, rank: None}
        case MatchQueries(keep=keep, number=number):
            return None if before is None else {**{name: before.get(name) for name in keep}, number: None}
        case Select() as select:
            return _selected(select, before)
        case Aggregate(keys=keys, aggregations=aggregations):
            return {**{key: (before or {}).get(key) for key in keys}, **dict.fromkeys(aggregations)}
    return None


def _selected(select: Select, before: Mapping[str, T | None] | None) -> Mapping[str, T | None] | None:
    columns: dict[str, T | None] = {}
    for expression in select.columns:
        if expression == "*" and before is not None:
            columns |= before
        elif (name := result_name(expression)) is not None:
            columns[name] = (before or {}).get(column_of(expression) or "")
        else:
            return None  # its name is Spark's affair
    return columns | {name: (before or {}).get(column_of(each) or "") for name, each in select.named.items()}


def no_column(name: str, columns: Iterable[str]) -> str:
    """Says that there is no such column, which one may be meant, and which there are.

    >>> no_column("ctiy", ["city", "price"])
    "there is no column 'ctiy', did you mean 'city'? There are city, price"
    >>> no_column("x", ["city"])
    "there is no column 'x'; there are city"
    """
    there = list(columns)
    nearest = nearest_name(name, there)
    hint = "; there are" if nearest is None else f", did you mean {nearest!r}? There are"
    return f"there is no column {name!r}{hint} {', '.join(there) or 'none'}"


def nearest_name(name: str, names: Iterable[str]) -> str | None:
    """Returns the name that is most like another; None if none is.

    >>> nearest_name("CTIY", ["city", "price"]), nearest_name("x", ["city"])
    ('city', None)
    """
    by_lower = {each.lower(): each for each in names}
    found = get_close_matches(name.lower(), by_lower, n=1)
    return by_lower[found[0]] if found else None
