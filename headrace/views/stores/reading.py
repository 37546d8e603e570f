"""Reads the rows that answer a query from the live parts of a view, in one snapshot, and merges them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from headrace.views.declare.layout import Place
from headrace.views.errors import ViewError
from headrace.views.query.merge import Merged, finish_row, largest, merge_rows, roll_up
from headrace.views.query.queries import Between, Prefix, Query, Row, dump_place, load_place
from headrace.views.stores.parts import Parts
from headrace.views.stores.statements import Condition

MOST_READ: Final = 200_000
"""The maximal number of rows that an answer may merge, unless it is a page of the view's rows as they are."""

_PARTS: Final = 50  # in one statement; SQLite takes 500
_VALUES: Final = 30_000  # in one statement; SQLite takes 32,766


def answer_rows(cursor: Any, parts: Parts, live: list[int], query: Query) -> tuple[list[Row], str | None]:
    """Returns the rows that answer a query, and the `next` of the page."""
    layout = parts.layout
    by = layout.keys if query.by is None else query.by
    wanted = condition(parts, query)
    after = None if query.after is None else load_place(layout, query.after)
    every_key = set(by) == set(layout.keys)
    rows: Iterable[Merged]
    if query.top is not None:
        position = layout.aggregation(query.top[0])
        fits = query.top[1] * parts.statements.width <= _VALUES
        if every_key and fits and layout.kinds[position] == "bigint":
            wanted = _restrict_to_largest(cursor, parts, live, wanted, query)
        rows = _scan_all(cursor, parts, live, wanted)
        if not every_key or query.across_windows:
            rows = roll_up(layout, rows, _group(parts, by, query.across_windows))
        return [finish_row(layout, row, by) for row in largest(layout, rows, *query.top)], None
    if every_key and not query.across_windows:
        rest = wanted if after is None else parts.statements.beyond(wanted, after)
        page = list(_scan(cursor, parts, live, rest, query.limit + 1))
    else:
        groups = roll_up(layout, _scan_all(cursor, parts, live, wanted), _group(parts, by, query.across_windows))
        page = [row for row in groups if after is None or row[0] > after]
    following = dump_place(page[query.limit - 1][0]) if len(page) > query.limit else None
    return [finish_row(layout, row, by) for row in page[: query.limit]], following


def stored_length(cursor: Any, parts: Parts, live: list[int], query: Query) -> int:
    """Returns the bytes of accumulators of any length that a page has in the store, without reading them."""
    if not parts.statements.variable:
        return 0
    wanted, total = condition(parts, query), 0
    if query.after is not None:
        wanted = parts.statements.beyond(wanted, load_place(parts.layout, query.after))
    for some in range(0, len(live), _PARTS):
        cursor.execute(*parts.statements.lengths(live[some : some + _PARTS], wanted, query.limit + 1))
        total += int(cursor.fetchone()[0])
    return total


def condition(parts: Parts, query: Query) -> Condition:
    """Returns the SQL condition of the rows that a query selects."""
    layout, keys, mark = parts.layout, parts.statements.keys, parts.statements.mark
    selected = Condition()
    nulls = there = 0
    for name, value in query.key.items():
        position = layout.position(name)
        column = keys[position]
        if value is None:
            nulls |= 1 << position
            selected = selected.both(f"{column} = {mark}", layout.types[position].zero)
            continue
        there |= 1 << position
        if isinstance(value, Prefix):
            if layout.types[position].name != "string":
                raise ViewError(f"only text has prefixes; {name!r} is a {layout.types[position].name}")
            low = layout.stored_key(position, value.text)
            selected = selected.both(f"{column} >= {mark}", low)
            if (high := _after_prefix(low)) is not None:
                selected = selected.both(f"{column} < {mark}", high)
        elif isinstance(value, Between):
            if value.low is not None:
                selected = selected.both(f"{column} >= {mark}", layout.stored_key(position, value.low))
            if value.high is not None:
                selected = selected.both(f"{column} <= {mark}", layout.stored_key(position, value.high))
        else:
            selected = selected.both(f"{column} = {mark}", layout.stored_key(position, value))
    if nulls | there == (1 << len(keys)) - 1:
        selected = selected.both(f'"__nulls" = {mark}', nulls)  # it ends the key in the index
    elif nulls | there:
        selected = selected.both(f'"__nulls" & {mark} = {mark}', nulls | there, nulls)
    if query.since is not None:
        selected = selected.both(f'"__start" >= {mark}', int(query.since))
    if query.until is not None:
        selected = selected.both(f'"__start" < {mark}', int(query.until))
    return selected


def _scan(cursor: Any, parts: Parts, live: list[int], wanted: Condition, limit: int) -> Iterator[Merged]:
    """Merges the first rows of each part: the first `limit` merged rows need no more than the first `limit` of each."""
    width = parts.statements.width
    rows = []
    for some in range(0, len(live), _PARTS):
        cursor.execute(*parts.statements.select(live[some : some + _PARTS], wanted, limit))
        rows += [(tuple(row[:width]), tuple(row[width:])) for row in cursor.fetchall()]
    return merge_rows(parts.layout, rows)


def _scan_all(cursor: Any, parts: Parts, live: list[int], wanted: Condition) -> Iterator[Merged]:
    for count, row in enumerate(_scan(cursor, parts, live, wanted, MOST_READ + 1)):
        if count == MOST_READ:
            raise ViewError(
                f"view {parts.layout.name!r}: the answer would merge more than {MOST_READ:,} rows; "
                "ask for fewer keys or windows"
            )
        yield row


def _restrict_to_largest(cursor: Any, parts: Parts, live: list[int], wanted: Condition, query: Query) -> Condition:
    """Restricts a condition to the groups with the largest totals; integers are their own accumulators."""
    assert query.top is not None
    if not live:
        return wanted
    statements = parts.statements
    groups = ", ".join([*statements.keys, '"__nulls"']) if query.across_windows else statements.places
    cursor.execute(*statements.largest(live, wanted, *query.top, groups=groups))
    best = cursor.fetchall()
    if not best:
        return wanted
    row = f"({', '.join([statements.mark] * len(best[0]))})"
    return wanted.both(
        f"({groups}) IN (VALUES {', '.join([row] * len(best))})", *(each for row in best for each in row)
    )


def _group(parts: Parts, by: Sequence[str], across_windows: bool) -> Callable[[Place], Place]:
    """Returns the function from a place to that of its group, in which the keys not grouped by are null."""
    layout = parts.layout
    grouped = [layout.position(name) for name in by]
    bits = sum(1 << position for position in grouped)
    zeros = [each.zero for each in layout.types]

    def group(place: Place) -> Place:
        key = zeros.copy()
        for position in grouped:
            key[position] = place[position]
        window = (None, None) if across_windows else place[-2:]
        return (*key, place[-3] & bits, *window)

    return group


def _after_prefix(prefix: str) -> str | None:
    """Returns the first text after all texts that begin with a prefix; None if there is none.

    >>> _after_prefix("foo.com/"), _after_prefix("\\U0010ffff")
    ('foo.com0', None)
    """
    shorter = prefix.rstrip("\U0010ffff")
    if not shorter:
        return None
    following = ord(shorter[-1]) + 1
    return shorter[:-1] + chr(0xE000 if following == 0xD800 else following)  # surrogates are no text
