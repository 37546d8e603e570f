"""The state of reduceByKeyAndWindow: the reduced values of each batch in the window, and of the window."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from headrace.dialects.dstreams.worker.keyedblocks import Block, Merge, is_addition, merge_blocks
from headrace.dialects.dstreams.worker.packedvalues import is_plain, pack, unpack
from headrace.dialects.dstreams.worker.updatestate import items


@dataclass
class WindowState:
    """The state of a partition: values of the window that ends at `time`, and of each batch in it, all as stored."""

    table: dict[Any, Any]
    batches: dict[int, dict[Any, Any]]
    time: int | None = None


@dataclass(frozen=True)
class WindowDelta:
    """The reduced values of the batches that enter the window, which then ends at `time`."""

    time: int
    batches: dict[int, dict[Any, Any]]


class ReduceWindow:
    """Reduces the values of a window by key; times are in milliseconds.

    With an inverse, and a window of more than five slides, a window is the one before it without what left and with
    what came; shorter ones are reduced anew, which is what Spark does. In the former a key stays until `keep` is false
    of it, even if nothing is left of its values.
    """

    def __init__(
        self, reduce: Merge, inverse: Merge | None, keep: Callable[[Any], bool] | None, width: int, slide: int
    ) -> None:
        self.reduce, self.inverse, self.width, self.slide = reduce, inverse, width, slide
        self.keep = None if inverse is None else keep  # without an inverse, Spark does not look at it

    def empty(self, initial: dict[Any, Any]) -> WindowState:
        return WindowState({}, {})

    def step(self, state: WindowState, blocks: list[Block], time: int) -> WindowDelta:
        batches: dict[int, list[dict[Any, Any]]] = {}
        for block in blocks:
            batches.setdefault(block.tag, []).append(block.pairs)
        return WindowDelta(
            time, {tag: _packed(merge_blocks(parts, self.reduce)) for tag, parts in sorted(batches.items())}
        )

    def apply(self, state: WindowState, delta: WindowDelta) -> None:
        begin = delta.time - self.width
        state.batches.update(delta.batches)
        left = [state.batches.pop(time) for time in sorted(state.batches) if time <= begin]
        if self.inverse is not None and self.width > 5 * self.slide and state.time is not None:
            table = state.table
            _subtract(table, self._reduced(left), self.inverse)
            _add(
                table, self._reduced(delta.batches[time] for time in sorted(delta.batches) if time > begin), self.reduce
            )
        else:
            table = self._reduced(state.batches[time] for time in sorted(state.batches))
        if self.keep is not None:
            table = {key: stored for key, stored in table.items() if self.keep((key, unpack(stored)))}
        state.table, state.time = table, delta.time

    def rows(self, state: WindowState, delta: WindowDelta) -> Iterator[tuple[Any, Any]]:
        return items(state.table)

    def _reduced(self, tables: Iterable[dict[Any, Any]]) -> dict[Any, Any]:
        reduced: dict[Any, Any] = {}
        for table in tables:
            _add(reduced, table, self.reduce)
        return reduced


def _packed(table: dict[Any, Any]) -> dict[Any, Any]:
    return table if is_plain(table) else {key: pack(value) for key, value in table.items()}


def _add(table: dict[Any, Any], other: dict[Any, Any], reduce: Merge) -> None:
    """Adds the values of another table, key by key."""
    if not table:
        table.update(other)
    elif is_plain(table) and is_plain(other):
        addition = is_addition(reduce)
        for key, value in other.items():
            if key in table:
                table[key] = table[key] + value if addition else reduce(table[key], value)
            else:
                table[key] = value
        if not is_plain(table):
            table.update({key: pack(table[key]) for key in other})
    else:
        for key, stored in other.items():
            table[key] = pack(reduce(unpack(table[key]), unpack(stored))) if key in table else stored


def _subtract(table: dict[Any, Any], other: dict[Any, Any], inverse: Merge) -> None:
    for key, stored in other.items():
        if key in table and stored is not None:
            table[key] = pack(inverse(unpack(table[key]), unpack(stored)))
