"""The answers of queries: the table that a stream's changes make, and its comparison with another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from headrace.dialects.sql.planner import Planned
from headrace.model.sinks import WindowedValue


def answer(changes: Iterable[WindowedValue], plan: Planned) -> list[tuple[Any, ...]]:
    """Returns the table that changes make: rows are replaced by their key, or else taken back."""
    rows: dict[Any, Any] = {}
    others: Counter[Any] = Counter()
    for change in changes:
        row = tuple(change.value)
        if plan.key is not None:
            key = tuple(getattr(change.value, name) for name in plan.key)
            if not change.retraction:
                rows[key] = row
            elif rows.get(key) == row:
                del rows[key]
        else:
            others[row] += -1 if change.retraction else 1
    assert all(number >= 0 for number in others.values())
    return [*rows.values(), *others.elements()]


def assert_same(name: str, found: Sequence[tuple[Any, ...]], expected: Sequence[tuple[Any, ...]]) -> None:
    assert sorted(map(_shown, found)) == sorted(map(_shown, expected)), name


def _shown(row: tuple[Any, ...]) -> str:
    return repr(tuple(_plain(value) for value in row))


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 9)
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value
