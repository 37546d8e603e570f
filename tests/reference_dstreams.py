"""The definition of DStreams: a stream is a list of batches, each a list of elements, or None where it has no batch.

Batch number n (from 1) ends n intervals after the start. Durations are in intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

Batch = "list[Any] | None"
Stream = "list[list[Any] | None]"


def each(stream: list[Any], function: Callable[[list[Any]], list[Any]]) -> list[Any]:
    """Applies a function to each batch."""
    return [None if batch is None else function(batch) for batch in stream]


def both(left: list[Any], right: list[Any], function: Callable[[list[Any], list[Any]], list[Any]]) -> list[Any]:
    """Applies a function to the batches of two streams."""
    return [None if a is None or b is None else function(a, b) for a, b in zip(left, right, strict=True)]


def groups(pairs: Iterable[Any]) -> dict[Any, list[Any]]:
    found: dict[Any, list[Any]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


def reduced(values: list[Any], reduce: Callable[[Any, Any], Any]) -> Any:
    result = values[0]
    for value in values[1:]:
        result = reduce(result, value)
    return result


def reduce_by_key(pairs: list[Any], reduce: Callable[[Any, Any], Any]) -> list[Any]:
    return [(key, reduced(values, reduce)) for key, values in groups(pairs).items()]


def join(left: list[Any], right: list[Any], *, outer: str = "") -> list[Any]:
    """Joins by key; `outer` has "l" or "r" for the sides whose elements are there without a partner, too."""
    a, b = groups(left), groups(right)
    return [
        (key, (x, y))
        for key in {**a, **b}
        for x in a.get(key, [None] if "r" in outer else [])
        for y in b.get(key, [None] if "l" in outer else [])
    ]


def window(stream: list[Any], width: int, slide: int = 1) -> list[Any]:
    """The elements of the last `width` batches, at every batch whose number is a multiple of `slide`."""
    return [
        None if number % slide else [x for batch in stream[max(number - width, 0) : number] for x in batch or ()]
        for number in range(1, len(stream) + 1)
    ]


def reduce_window(
    stream: list[Any],
    reduce: Callable[[Any, Any], Any],
    inverse: Callable[[Any, Any], Any] | None,
    width: int,
    slide: int = 1,
    keep: Callable[[Any], bool] | None = None,
) -> list[Any]:
    """Reduces windows by key. With an inverse, those of more than five slides are made from the one before."""
    if inverse is None or width <= 5 * slide:
        result = each(window(stream, width, slide), lambda pairs: reduce_by_key(pairs, reduce))
        return each(result, lambda pairs: [p for p in pairs if inverse is None or keep is None or keep(p)])
    result, table = list[Any](), None
    for number in range(1, len(stream) + 1):
        if number % slide:
            result.append(None)
            continue
        if table is None:
            table = dict(reduce_by_key(window(stream, width, slide)[number - 1], reduce))
        else:
            begin, before = number - width, number - slide - width
            left = [x for batch in stream[max(before, 0) : max(begin, 0)] for x in batch]
            came = [x for batch in stream[number - slide : number] for x in batch]
            for key, value in reduce_by_key(left, reduce):
                if key in table:
                    table[key] = inverse(table[key], value)
            for key, value in reduce_by_key(came, reduce):
                table[key] = reduce(table[key], value) if key in table else value
        table = {key: value for key, value in table.items() if keep is None or keep((key, value))}
        result.append(list(table.items()))
    return result


def update_state(stream: list[Any], update: Callable[[Any, Any], Any], initial: Iterable[Any] = ()) -> list[Any]:
    table: dict[Any, Any] = dict(initial)
    result: list[Any] = []
    for batch in stream:
        if batch is None:
            result.append(None)
            continue
        came = groups(batch)
        updated = {key: update(came.get(key, []), table.get(key)) for key in {**table, **came}}
        table = {key: state for key, state in updated.items() if state is not None}
        result.append(list(table.items()))
    return result


class Cell:
    """The state of a key for the length of a call."""

    def __init__(self, table: dict[Any, Any], key: Any, timing_out: bool = False) -> None:
        self.table, self.key, self.timing_out = table, key, timing_out

    def exists(self) -> bool:
        return self.key in self.table

    def get(self) -> Any:
        return self.table[self.key]

    def getOption(self) -> Any:
        return self.table.get(self.key)

    def update(self, state: Any) -> None:
        self.table[self.key] = state

    def remove(self) -> None:
        del self.table[self.key]

    def isTimingOut(self) -> bool:
        return self.timing_out


def map_with_state(
    stream: list[Any], function: Callable[..., Any], *, timeout: int | None = None, initial: Iterable[Any] = ()
) -> tuple[list[Any], list[Any]]:
    """Calls a function for each element, and for keys idle for more than `timeout`; returns results and all states."""
    table = dict(initial)
    touched = dict.fromkeys(table, 1)
    mapped, snapshots = [], []
    for number, batch in enumerate(stream, 1):
        results = []
        for key, value in batch:
            results.append(function(key, value, Cell(table, key)))
            if key in table:
                touched[key] = number
        if timeout is not None:
            for key in [key for key in table if touched[key] < number - timeout]:
                results.append(function(key, None, Cell(table, key, timing_out=True)))
                del table[key]
        mapped.append(results)
        snapshots.append(list(table.items()))
    return mapped, snapshots
