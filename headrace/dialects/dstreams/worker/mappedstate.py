"""The state of mapWithState: a value for each key, which only the keys of a batch touch, and when each was touched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from headrace.dialects.dstreams.worker.keyedblocks import Block
from headrace.dialects.dstreams.worker.keystate import State
from headrace.dialects.dstreams.worker.packedvalues import pack, same, unpack
from headrace.dialects.dstreams.worker.updatestate import gathered, items


@dataclass
class MappedTable:
    """The stored values, and the time of the batch that last touched each key, the longest ago first."""

    values: dict[Any, Any]
    touched: dict[Any, int] = field(default_factory=dict)


@dataclass(frozen=True)
class MappedDelta:
    """The changes of a batch at `time`: values, keys that it only touches or removes; and what it maps elements to."""

    time: int
    changed: dict[Any, Any]
    touched: list[Any]
    removed: list[Any]
    mapped: list[Any]


class MapState:
    """Calls the function for each element, in the order of each key, and for keys that were idle for too long.

    `timed` says whether the function takes the time of the batch; its result is then left out if it is None.
    """

    def __init__(self, function: Callable[..., Any], timed: bool, timeout: int | None) -> None:
        self.function, self.timed, self.timeout = function, timed, timeout

    def empty(self, initial: dict[Any, Any]) -> MappedTable:
        values = {key: pack(value) for key, value in initial.items()}
        return MappedTable(values, {} if self.timeout is None else dict.fromkeys(values, -1))

    def step(self, state: MappedTable, blocks: list[Block], time: int) -> MappedDelta:
        changed: dict[Any, Any] = {}
        touched: dict[Any, None] = {}
        removed: dict[Any, None] = {}
        mapped: list[Any] = []
        batch_time = datetime.fromtimestamp(time / 1000)
        function, timed = self.function, self.timed

        def call(key: Any, value: Any, cell: State) -> None:
            result = function(batch_time, key, value, cell) if timed else function(key, value, cell)
            if result is not None or not timed:
                mapped.append(result)

        for key, values in gathered(blocks).items():
            old = state.values.get(key, _NOTHING)
            exists, current = old is not _NOTHING, None if old is _NOTHING else unpack(old)
            updated = False
            for value in values:
                cell = State(exists, current)
                call(key, value, cell)
                updated = updated or cell._changed
                exists, current = cell._exists, cell._value
            if exists:
                if updated and not (old is not _NOTHING and same(stored := pack(current), old)):
                    changed[key] = pack(current) if old is _NOTHING else stored
                if self.timeout is not None:
                    touched[key] = None
            elif old is not _NOTHING:
                removed[key] = None
        if self.timeout is not None:
            for key in self._idle(state, time - self.timeout):
                if key not in touched and key not in removed and key not in changed:
                    call(key, None, State(True, unpack(state.values[key]), timing_out=True))
                    removed[key] = None
        return MappedDelta(time, changed, list(touched), list(removed), mapped)

    def apply(self, state: MappedTable, delta: MappedDelta) -> None:
        state.values.update(delta.changed)
        for key in delta.removed:
            del state.values[key]
            state.touched.pop(key, None)
        for key in delta.touched:
            state.touched.pop(key, None)
            state.touched[key] = delta.time
        if next(iter(state.touched.values()), 0) == -1:  # initial keys count from the first batch on
            state.touched = {key: delta.time if time == -1 else time for key, time in state.touched.items()}

    def rows(self, state: MappedTable, delta: MappedDelta) -> Iterator[Any]:
        return iter(delta.mapped)

    @staticmethod
    def _idle(state: MappedTable, before: int) -> Iterator[Any]:
        """Yields the keys that were last touched before a time."""
        for key, time in state.touched.items():
            if time >= before:
                return
            if time != -1:
                yield key


class Snapshots(MapState):
    """The same state, of which all keys with their values are read."""

    def rows(self, state: MappedTable, delta: MappedDelta) -> Iterator[Any]:
        return items(state.values)


_NOTHING = object()
