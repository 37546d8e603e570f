"""The state of updateStateByKey: a value for each key, which a function updates in every batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from headrace.dialects.dstreams.worker.keyedblocks import Block
from headrace.dialects.dstreams.worker.packedvalues import is_plain, pack, same, unpack


class TableDelta(NamedTuple):
    """The values that a batch changes, as they are stored, and the keys that it removes."""

    changed: dict[Any, Any]
    removed: list[Any]


class UpdateState:
    """Calls `update(values, state)` for every key, also for those without new values; None removes the key.

    Most keys have no new values: for them a batch costs the call, and nothing is written unless their state changes.
    """

    def __init__(self, update: Callable[[Any, Any], Any]) -> None:
        self.update = update

    def empty(self, initial: dict[Any, Any]) -> dict[Any, Any]:
        return {key: pack(value) for key, value in initial.items()}

    def step(self, state: dict[Any, Any], blocks: list[Block], time: int) -> TableDelta:
        update, changed, removed = self.update, dict[Any, Any](), list[Any]()
        values = gathered(blocks)
        for key, new in values.items():
            old = state.get(key)
            updated = update(new, unpack(old))
            if updated is None:
                if key in state:
                    removed.append(key)
            elif not same(stored := pack(updated), old):
                changed[key] = stored
        if is_plain(state):
            for key, old in state.items():  # each of these lines counts, since most keys come here in each batch
                if key in values:
                    continue
                updated = update([], old)
                if updated is old or (type(updated) is int is type(old) and updated == old):
                    continue
                if updated is None:
                    removed.append(key)
                elif not same(stored := pack(updated), old):
                    changed[key] = stored
        else:
            for key, old in state.items():
                if key not in values:
                    updated = update([], unpack(old))
                    if updated is None:
                        removed.append(key)
                    elif not same(stored := pack(updated), old):
                        changed[key] = stored
        return TableDelta(changed, removed)

    def apply(self, state: dict[Any, Any], delta: TableDelta) -> None:
        for key in delta.removed:
            del state[key]
        state.update(delta.changed)

    def rows(self, state: dict[Any, Any], delta: TableDelta) -> Iterator[tuple[Any, Any]]:
        return items(state)


def gathered(blocks: list[Block]) -> dict[Any, list[Any]]:
    """Puts the lists of each key's values together, in the order of tasks."""
    if len(blocks) == 1:
        return blocks[0].pairs
    values: dict[Any, list[Any]] = {}
    for block in blocks:
        for key, new in block.pairs.items():
            if key in values:
                values[key] += new
            else:
                values[key] = new
    return values


def items(table: dict[Any, Any]) -> Iterator[tuple[Any, Any]]:
    """Yields the pairs of a table, with values that are the receiver's own."""
    if is_plain(table):
        return iter(table.items())
    return ((key, unpack(stored)) for key, stored in table.items())
