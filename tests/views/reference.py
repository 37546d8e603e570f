"""Views by recounting: a list of all events, and loops over it. Slow, obvious, and what the stores are held to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import headrace as hr
from headrace.views.declare.layout import Layout, Partial
from headrace.views.query.queries import Between, Prefix, Query

SIZE = 10_000_000  # the length of a window, in microseconds

LAYOUT = Layout.of(
    "visits",
    keys={"site": "string", "code": "int"},
    aggregations={
        "n": hr.count(),
        "spent": hr.sum("amount"),
        "weight": hr.sum("grams"),
        "people": hr.approx_distinct("user"),
        "best": hr.top("amount", 2),
        "mean": hr.mean("amount"),
        "last": hr.last("user"),
    },
    columns={"amount": "bigint", "grams": "double"},
    window=hr.FixedWindows(10),
)


@dataclass(frozen=True)
class Event:
    """One visit. No two have the same time, so that one is the last."""

    site: str | None
    code: int | None
    time: int
    user: str
    amount: int

    @property
    def key(self) -> tuple[Any, ...]:
        return (self.site, self.code)

    @property
    def start(self) -> int:
        return self.time // SIZE * SIZE


def partials_of(events: Iterable[Event]) -> list[Partial]:
    """What a layer computes of some events, with the aggregations themselves."""
    groups: dict[Any, list[Event]] = {}
    for event in events:
        groups.setdefault((event.key, event.start), []).append(event)
    made = []
    for (key, start), group in groups.items():
        amounts, users = [event.amount for event in group], [event.user for event in group]
        timed = [(event.time, event.user) for event in group]
        grams = [0.5 * each for each in amounts]
        columns: list[Any] = [group, amounts, grams, users, amounts, amounts, timed]
        accumulators = [fn.dump(fn.add_all(fn.zero(), each)) for fn, each in zip(LAYOUT.fns, columns, strict=True)]
        made.append(Partial(key, start, start + SIZE, tuple(accumulators)))
    return made


def counted(events: list[Event]) -> dict[str, Any]:
    """The answers for a group of events."""
    amounts = [event.amount for event in events]
    return {
        "n": len(events),
        "spent": sum(amounts),
        "weight": 0.5 * sum(amounts),
        "people": len({event.user for event in events}),
        "best": sorted(amounts, reverse=True)[:2],
        "mean": sum(amounts) / len(amounts),
        "last": max(events, key=lambda event: event.time).user,
    }


def recount(events: Iterable[Event], query: Query = Query()) -> list[tuple[Any, ...]]:
    """The rows of the answer: (key, window, values)."""
    by = LAYOUT.keys if query.by is None else query.by
    groups: dict[Any, list[Event]] = {}
    for event in events:
        if _is_meant(event, query):
            window = None if query.across_windows else event.start
            groups.setdefault((tuple((name, getattr(event, name)) for name in by), window), []).append(event)
    rows = []
    for (key, _), group in groups.items():
        starts = [event.start for event in group]
        rows.append((dict(key), (min(starts), max(starts) + SIZE), counted(group)))
    rows.sort(key=_order)
    if query.top is not None:
        name, n = query.top
        rows = sorted(rows, key=lambda row: row[2][name], reverse=True)[:n]
    return rows


def _is_meant(event: Event, query: Query) -> bool:
    for name, wanted in query.key.items():
        value = getattr(event, name)
        if isinstance(wanted, Prefix):
            meant = value is not None and value.startswith(wanted.text)
        elif isinstance(wanted, Between):
            meant = value is not None and (wanted.low is None or wanted.low <= value)
            meant = meant and (wanted.high is None or value <= wanted.high)
        else:
            meant = value == wanted
        if not meant:
            return False
    since, until = query.since, query.until
    return (since is None or event.start >= since) and (until is None or event.start < until)


def _order(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Null keys are in order with the zeros of their types, and after those that are zero."""
    key, window, _ = row
    values = [key.get(name) for name in LAYOUT.keys]
    zeros = [zero if value is None else value for value, zero in zip(values, ("", 0), strict=True)]
    nulls = sum(1 << at for at, value in enumerate(values) if value is None and LAYOUT.keys[at] in key)
    return (*zeros, nulls, window)
