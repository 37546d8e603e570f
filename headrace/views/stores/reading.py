"""Answers: the rows of the live parts that a query means, read in one snapshot and merged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

import sqlalchemy as sa

from headrace.views.errors import ViewError
from headrace.views.layout import Place
from headrace.views.merge import Merged, StoredRow, finished, largest, merged, rolled_up
from headrace.views.queries import Between, Prefix, Query, Row, dump_place, load_place
from headrace.views.stores.parts import Parts

MOST_READ: Final = 200_000
"""As many rows as an answer may merge that is not a page of the view's own rows."""


def rows_for(
    connection: sa.Connection, parts: Parts, live: Sequence[int], query: Query
) -> tuple[list[Row], str | None]:
    """The rows that the query means, and where the next page begins."""
    layout = parts.layout
    by = layout.keys if query.by is None else query.by
    matching = conditions(parts, query)
    after = None if query.after is None else load_place(layout, query.after)
    apart = set(by) == set(layout.keys)
    if query.top is not None:
        position, n = layout.aggregation(query.top[0]), query.top[1]
        if apart and layout.kinds[position] == "bigint":
            matching.append(_largest_in_database(connection, parts, live, matching, position, n, query.across_windows))
        rows = _scan_all(connection, parts, live, matching)
        if not apart or query.across_windows:
            rows = iter(rolled_up(layout, rows, _group(parts, by, query.across_windows)))
        return [finished(layout, row, by) for row in largest(layout, rows, *query.top)], None
    if apart and not query.across_windows:
        if after is not None:
            matching.append(_beyond(parts, after))
        rows = _scan(connection, parts, live, matching, query.limit + 1)
    else:
        every = _scan_all(connection, parts, live, matching)
        groups = rolled_up(layout, every, _group(parts, by, query.across_windows))
        rows = (row for row in groups if after is None or row[0] > after)
    page = list(islice(rows, query.limit + 1))
    following = dump_place(page[query.limit - 1][0]) if len(page) > query.limit else None
    return [finished(layout, row, by) for row in page[: query.limit]], following


def conditions(parts: Parts, query: Query) -> list[sa.ColumnElement[bool]]:
    """What rows must satisfy to be meant."""
    layout, rows = parts.layout, parts.rows
    found: list[sa.ColumnElement[bool]] = []
    nulls = there = 0
    for name, wanted in query.key.items():
        position = layout.position(name)
        column = rows.place[position]
        if wanted is None:
            nulls |= 1 << position
            found.append(column == layout.types[position].zero)
            continue
        there |= 1 << position
        if isinstance(wanted, Prefix):
            if layout.types[position].name != "string":
                raise ViewError(f"only text has prefixes; {name!r} is a {layout.types[position].name}")
            low = layout.stored_key(position, wanted.text)
            found.append(column >= low)
            if (high := _after_prefix(low)) is not None:
                found.append(column < high)
        elif isinstance(wanted, Between):
            if wanted.low is not None:
                found.append(column >= layout.stored_key(position, wanted.low))
            if wanted.high is not None:
                found.append(column <= layout.stored_key(position, wanted.high))
        else:
            found.append(column == layout.stored_key(position, wanted))
    if nulls | there == (1 << len(layout.keys)) - 1:
        found.append(rows.nulls == nulls)  # it ends the key in the index
    elif nulls | there:
        found.append(rows.nulls.bitwise_and(nulls | there) == nulls)
    if query.since is not None:
        found.append(rows.start >= int(query.since))
    if query.until is not None:
        found.append(rows.start < int(query.until))
    return found


def _scan(
    connection: sa.Connection,
    parts: Parts,
    live: Sequence[int],
    matching: Sequence[sa.ColumnElement[bool]],
    limit: int,
) -> Iterator[Merged]:
    """Merged rows in order. The first `limit` of them need no more than the first `limit` rows of each part."""
    rows, width = parts.rows, len(parts.rows.place)

    def run(part: int) -> Iterator[StoredRow]:
        found = sa.select(*rows.columns).where(rows.part == part, *matching).order_by(*rows.place).limit(limit)
        for row in connection.execute(found):
            yield tuple(row[:width]), tuple(row[width:])

    return merged(parts.layout, [run(part) for part in live])


def _scan_all(
    connection: sa.Connection, parts: Parts, live: Sequence[int], matching: Sequence[sa.ColumnElement[bool]]
) -> Iterator[Merged]:
    for count, row in enumerate(_scan(connection, parts, live, matching, MOST_READ + 1)):
        if count == MOST_READ:
            raise ViewError(
                f"view {parts.layout.name!r}: the answer would merge more than {MOST_READ:,} rows; "
                "ask for fewer keys or windows"
            )
        yield row


def _largest_in_database(
    connection: sa.Connection,
    parts: Parts,
    live: Sequence[int],
    matching: Sequence[sa.ColumnElement[bool]],
    position: int,
    n: int,
    across_windows: bool,
) -> sa.ColumnElement[bool]:
    """That a row is of one of the n groups with the largest totals: whole numbers are their own accumulators."""
    rows = parts.rows
    group: tuple[sa.Column[Any], ...] = rows.place[:-2] if across_windows else rows.place
    total = sa.func.sum(rows.accumulators[position])
    totals = sa.select(*group).where(rows.part.in_(live), *matching).group_by(*group)
    best = connection.execute(totals.order_by(total.desc(), *group).limit(n))
    return sa.tuple_(*group).in_([tuple(row) for row in best])


def _beyond(parts: Parts, place: Place) -> sa.ColumnElement[bool]:
    columns = parts.rows.place
    values = [sa.bindparam(None, value, column.type) for value, column in zip(place, columns, strict=True)]
    return sa.tuple_(*columns) > sa.tuple_(*values)


def _group(parts: Parts, by: Sequence[str], across_windows: bool) -> Callable[[Place], Place]:
    """From a place to that of its group: keys that are not told apart are null."""
    layout = parts.layout
    kept = [layout.position(name) for name in by]
    bits = sum(1 << position for position in kept)
    zeros = [each.zero for each in layout.types]

    def group(place: Place) -> Place:
        key = zeros.copy()
        for position in kept:
            key[position] = place[position]
        window = (None, None) if across_windows else place[-2:]
        return (*key, place[-3] & bits, *window)

    return group


def _after_prefix(prefix: str) -> str | None:
    """The first text after all that begin with the prefix.

    >>> _after_prefix("foo.com/"), _after_prefix("\\U0010ffff")
    ('foo.com0', None)
    """
    shorter = prefix.rstrip("\U0010ffff")
    if not shorter:
        return None
    following = ord(shorter[-1]) + 1
    return shorter[:-1] + chr(0xE000 if following == 0xD800 else following)  # surrogates are no text
