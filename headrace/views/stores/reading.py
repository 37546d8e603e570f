"""Answers: the rows of the live parts that a query means, read in one snapshot and merged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from headrace.views.declare.layout import Place
from headrace.views.errors import ViewError
from headrace.views.query.merge import Merged, finished, largest, merged, rolled_up
from headrace.views.query.queries import Between, Prefix, Query, Row, dump_place, load_place
from headrace.views.stores.parts import Parts
from headrace.views.stores.statements import Condition

MOST_READ: Final = 200_000
"""As many rows as an answer may merge that is not a page of the view's own rows."""

_PARTS: Final = 50  # in one statement; SQLite takes 500
_VALUES: Final = 30_000  # in one statement; SQLite takes 32,766


def rows_for(cursor: Any, parts: Parts, live: list[int], query: Query) -> tuple[list[Row], str | None]:
    """The rows that the query means, and where the next page begins."""
    layout = parts.layout
    by = layout.keys if query.by is None else query.by
    meant = condition(parts, query)
    after = None if query.after is None else load_place(layout, query.after)
    apart = set(by) == set(layout.keys)
    rows: Iterable[Merged]
    if query.top is not None:
        position = layout.aggregation(query.top[0])
        fits = query.top[1] * parts.statements.width <= _VALUES
        if apart and fits and layout.kinds[position] == "bigint":
            meant = _among_the_largest(cursor, parts, live, meant, query)
        rows = _scan_all(cursor, parts, live, meant)
        if not apart or query.across_windows:
            rows = rolled_up(layout, rows, _group(parts, by, query.across_windows))
        return [finished(layout, row, by) for row in largest(layout, rows, *query.top)], None
    if apart and not query.across_windows:
        wanted = meant if after is None else parts.statements.beyond(meant, after)
        page = list(_scan(cursor, parts, live, wanted, query.limit + 1))
    else:
        groups = rolled_up(layout, _scan_all(cursor, parts, live, meant), _group(parts, by, query.across_windows))
        page = [row for row in groups if after is None or row[0] > after]
    following = dump_place(page[query.limit - 1][0]) if len(page) > query.limit else None
    return [finished(layout, row, by) for row in page[: query.limit]], following


def condition(parts: Parts, query: Query) -> Condition:
    """What rows must satisfy to be meant."""
    layout, keys, mark = parts.layout, parts.statements.keys, parts.statements.mark
    found = Condition()
    nulls = there = 0
    for name, wanted in query.key.items():
        position = layout.position(name)
        column = keys[position]
        if wanted is None:
            nulls |= 1 << position
            found = found.both(f"{column} = {mark}", layout.types[position].zero)
            continue
        there |= 1 << position
        if isinstance(wanted, Prefix):
            if layout.types[position].name != "string":
                raise ViewError(f"only text has prefixes; {name!r} is a {layout.types[position].name}")
            low = layout.stored_key(position, wanted.text)
            found = found.both(f"{column} >= {mark}", low)
            if (high := _after_prefix(low)) is not None:
                found = found.both(f"{column} < {mark}", high)
        elif isinstance(wanted, Between):
            if wanted.low is not None:
                found = found.both(f"{column} >= {mark}", layout.stored_key(position, wanted.low))
            if wanted.high is not None:
                found = found.both(f"{column} <= {mark}", layout.stored_key(position, wanted.high))
        else:
            found = found.both(f"{column} = {mark}", layout.stored_key(position, wanted))
    if nulls | there == (1 << len(keys)) - 1:
        found = found.both(f'"__nulls" = {mark}', nulls)  # it ends the key in the index
    elif nulls | there:
        found = found.both(f'"__nulls" & {mark} = {mark}', nulls | there, nulls)
    if query.since is not None:
        found = found.both(f'"__start" >= {mark}', int(query.since))
    if query.until is not None:
        found = found.both(f'"__start" < {mark}', int(query.until))
    return found


def _scan(cursor: Any, parts: Parts, live: list[int], meant: Condition, limit: int) -> Iterator[Merged]:
    """The first `limit` merged rows or more: for them no more than the first `limit` rows of each part are needed."""
    width = parts.statements.width
    found = []
    for some in range(0, len(live), _PARTS):
        cursor.execute(*parts.statements.select(live[some : some + _PARTS], meant, limit))
        found += [(tuple(row[:width]), tuple(row[width:])) for row in cursor.fetchall()]
    return merged(parts.layout, found)


def _scan_all(cursor: Any, parts: Parts, live: list[int], meant: Condition) -> Iterator[Merged]:
    for count, row in enumerate(_scan(cursor, parts, live, meant, MOST_READ + 1)):
        if count == MOST_READ:
            raise ViewError(
                f"view {parts.layout.name!r}: the answer would merge more than {MOST_READ:,} rows; "
                "ask for fewer keys or windows"
            )
        yield row


def _among_the_largest(cursor: Any, parts: Parts, live: list[int], meant: Condition, query: Query) -> Condition:
    """And only rows of the groups with the largest totals: whole numbers are their own accumulators."""
    assert query.top is not None
    if not live:
        return meant
    statements = parts.statements
    groups = ", ".join([*statements.keys, '"__nulls"']) if query.across_windows else statements.places
    cursor.execute(*statements.largest(live, meant, *query.top, groups=groups))
    best = cursor.fetchall()
    if not best:
        return meant
    row = f"({', '.join([statements.mark] * len(best[0]))})"
    return meant.both(f"({groups}) IN (VALUES {', '.join([row] * len(best))})", *(each for row in best for each in row))


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
