"""Merging: rows of a version and of generations become one row each, by the `merge` of their aggregations.

Accumulators are merged, never answers: unique visitors of pages do not add up to those of a site, their sketches do.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from itertools import groupby
from operator import itemgetter
from typing import Any

from headrace.model.windows import Window
from headrace.views.declare.layout import Layout, Partial, Place, Stored
from headrace.views.errors import ViewError
from headrace.views.query.queries import Row

StoredRow = tuple[Place, Stored]
Merged = tuple[Place, list[Any]]
"""A place and its accumulators."""

_place = itemgetter(0)


def merged(layout: Layout, rows: Iterable[StoredRow]) -> Iterator[Merged]:
    """One row for each place, in order.

    >>> import headrace as hr
    >>> layout = Layout.of("hits", keys={"url": "string"}, aggregations={"n": hr.count()})
    >>> version, generation = [(("a", 0, 0, 60), (2,)), (("b", 0, 0, 60), (1,))], [(("a", 0, 0, 60), (5,))]
    >>> list(merged(layout, [*version, *generation]))
    [(('a', 0, 0, 60), [7]), (('b', 0, 0, 60), [1])]
    """
    for place, same in groupby(sorted(rows, key=_place), key=_place):
        yield place, reduce(layout.merge, (layout.load(stored) for _, stored in same))


def gathered(layout: Layout, partials: Iterable[Partial]) -> dict[Place, list[Any]]:
    """The accumulators of each place, where several partials may have the same."""
    found: dict[Place, list[Any]] = {}
    for key, start, end, accumulators in partials:
        place = layout.place(key, start, end)
        # Stored and loaded, so that what is merged is what a store would give back.
        loaded = layout.load(layout.stored(accumulators))
        found[place] = layout.merge(found[place], loaded) if place in found else loaded
    return found


def rolled_up(layout: Layout, rows: Iterable[Merged], group: Callable[[Place], Place]) -> list[Merged]:
    """One row for each group of places, in the order of the groups; of their windows, from the first to the last.

    `group` gives a place whose start and end are None if windows are merged too.
    """
    found: dict[Place, list[Any]] = {}
    spans: dict[Place, tuple[int, int]] = {}
    for place, accumulators in rows:
        kept = group(place)
        start, end = spans.get(kept, place[-2:])
        spans[kept] = (min(start, place[-2]), max(end, place[-1]))
        found[kept] = layout.merge(found[kept], accumulators) if kept in found else accumulators
    complete = [((*kept[:-2], *spans[kept]), accumulators) for kept, accumulators in found.items()]
    return sorted(complete, key=_place)


def largest(layout: Layout, rows: Iterable[Merged], name: str, n: int) -> list[Merged]:
    """The n rows with the largest answers of an aggregation; those without one, None or NaN, come last."""
    position = layout.aggregation(name)
    fn = layout.fns[position]

    def rank(row: Merged) -> tuple[bool, Any]:
        answer = fn.finish(row[1][position])
        there = answer is not None and answer == answer
        return (there, answer if there else 0)

    try:
        return heapq.nlargest(n, rows, key=rank)
    except TypeError as error:
        raise ViewError(f"the answers of {name!r} have no order: {error}; choose another aggregation") from None


def finished(layout: Layout, row: Merged, by: Sequence[str]) -> Row:
    """A row of an answer, with the keys that are told apart."""
    place, accumulators = row
    key = dict(zip(layout.keys, layout.key(place), strict=True))
    kept = {name: key[name] for name in by}
    return Row(kept, Window(*place[-2:]), layout.finish(accumulators), layout.approximate(accumulators))
