"""Merges the rows of a batch version and of generations into one row per key and window.

Accumulators are merged, never results: unique visitors of pages do not add up to those of a site, their sketches do.
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
"""A place and its loaded accumulators."""

_place = itemgetter(0)


def merge_rows(layout: Layout, rows: Iterable[StoredRow]) -> Iterator[Merged]:
    """Merges stored rows by place; yields one row for each place, in order.

    >>> import headrace as hr
    >>> layout = Layout.of("hits", keys={"url": "string"}, aggregations={"n": hr.count()})
    >>> version, generation = [(("a", 0, 0, 60), (2,)), (("b", 0, 0, 60), (1,))], [(("a", 0, 0, 60), (5,))]
    >>> list(merge_rows(layout, [*version, *generation]))
    [(('a', 0, 0, 60), [7]), (('b', 0, 0, 60), [1])]
    """
    for place, same in groupby(sorted(rows, key=_place), key=_place):
        yield place, reduce(layout.merge, (layout.load(stored) for _, stored in same))


def gather_partials(layout: Layout, partials: Iterable[Partial]) -> dict[Place, list[Any]]:
    """Merges partial aggregates by place; returns the accumulators of each."""
    by_place: dict[Place, list[Any]] = {}
    for key, start, end, accumulators in partials:
        place = layout.place(key, start, end)
        # Stored and loaded, so that what is merged is what a store would return.
        loaded = layout.load(layout.stored(accumulators))
        by_place[place] = layout.merge(by_place[place], loaded) if place in by_place else loaded
    return by_place


def roll_up(layout: Layout, rows: Iterable[Merged], group: Callable[[Place], Place]) -> list[Merged]:
    """Merges rows by group, in the order of the groups; the window of a group spans the windows of its rows.

    `group` maps a place to that of its group, whose start and end are None if windows are merged too.
    """
    groups: dict[Place, list[Any]] = {}
    spans: dict[Place, tuple[int, int]] = {}
    for place, accumulators in rows:
        key = group(place)
        start, end = spans.get(key, place[-2:])
        spans[key] = (min(start, place[-2]), max(end, place[-1]))
        groups[key] = layout.merge(groups[key], accumulators) if key in groups else accumulators
    complete = [((*key[:-2], *spans[key]), accumulators) for key, accumulators in groups.items()]
    return sorted(complete, key=_place)


def largest(layout: Layout, rows: Iterable[Merged], name: str, n: int) -> list[Merged]:
    """Returns the n rows with the largest results of an aggregation; rows without a result, None or NaN, come last."""
    position = layout.aggregation(name)
    fn = layout.fns[position]

    def rank(row: Merged) -> tuple[bool, Any]:
        result = fn.finish(row[1][position])
        has_result = result is not None and result == result
        return (has_result, result if has_result else 0)

    try:
        return heapq.nlargest(n, rows, key=rank)
    except TypeError as error:
        raise ViewError(f"the results of {name!r} have no order: {error}; choose another aggregation") from None


def finish_row(layout: Layout, row: Merged, by: Sequence[str]) -> Row:
    """Finishes a row of an answer, with the keys that it is grouped by."""
    place, accumulators = row
    key = dict(zip(layout.keys, layout.key(place), strict=True))
    grouped = {name: key[name] for name in by}
    return Row(grouped, Window(*place[-2:]), layout.finish(accumulators), layout.approximate(accumulators))
