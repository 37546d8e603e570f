"""The state of a DoFn for a key and window, and the handles through which the DoFn reads and writes it.

A handle is made once and uses the record that the cursor points to, so that a call makes no objects. Records have plain
values; this module knows how to store them, not when.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa

from headrace.engine.columns.cells import decode_cells, encode_cells
from headrace.engine.stateful.timers import NEVER, TimerQueue
from headrace.model.algebra import combine_fn
from headrace.model.state import CombiningState, ListState, MapState, SetState, StateSpec, ValueState
from headrace.model.times import MIN_TIME
from headrace.model.windows import Window


class _Empty(enum.Enum):
    EMPTY = "empty"


EMPTY: Final = _Empty.EMPTY
"""The content of a state that was never written, or cleared."""

_FIXED: Final = frozenset({int, float, str, bytes, bool, complex})
"""Types of values that cannot be changed in place."""


class Record:
    """The state of one key and window.

    - seq: a number that no other record of the shard ever has; name: the bytes it is found by, in a bucket
    - deadline: the watermark that ends it
    - states: the content of each state; due: the times of each timer and state, as `StateLayout` numbers them
    """

    __slots__ = ("bucket", "deadline", "due", "key", "name", "seq", "spelling", "states", "window")

    def __init__(
        self,
        seq: int,
        bucket: int,
        name: bytes,
        key: Any,
        spelling: bytes | None,
        window: Window,
        deadline: int,
        states: list[Any],
        due: list[int],
    ) -> None:
        self.seq, self.bucket, self.name, self.key, self.spelling = seq, bucket, name, key, spelling
        self.window, self.deadline, self.states, self.due = window, deadline, states, due

    def __lt__(self, other: Record) -> bool:
        return False  # equal entries of a queue may come in any order


class Cursor:
    """The position of a call: its record and event time, processing time, and the input and output watermarks."""

    __slots__ = ("low", "now", "record", "time", "watermark")

    record: Record

    def __init__(self) -> None:
        self.time = self.now = self.watermark = self.low = MIN_TIME


class StateHandle:
    """The handle of one state of the record that the cursor points to."""

    __slots__ = ("_at", "_changed", "_expires", "_goes", "_index", "_queue")

    def __init__(
        self, spec: StateSpec, index: int, at: Cursor, changed: dict[int, Record], goes: int, queue: TimerQueue
    ) -> None:
        self._index, self._at, self._changed = index, at, changed
        self._expires: Any = spec.expires
        self._goes, self._queue = goes, queue  # the place and the queue of the time at which it expires

    def clear(self) -> None:
        record = self._at.record
        record.states[self._index] = EMPTY
        self._changed[record.seq] = record
        if self._expires is not None:
            record.due[self._goes] = NEVER

    def dump(self, value: Any) -> Any:
        """Converts a content to what is stored."""
        return value

    def load(self, stored: Any) -> Any:
        """Converts what was stored to the content."""
        return stored

    def _wrote(self, record: Record, content: Any) -> None:
        record.states[self._index] = content
        self._changed[record.seq] = record
        if self._expires is not None:
            goes, before = self._at.time + self._expires, record.due[self._goes]
            if before == NEVER or goes > before:
                self._queue.put(record, self._goes, goes)


class ValueHandle(StateHandle):
    """The handle of a ValueState."""

    __slots__ = ()

    def read(self) -> Any:
        record = self._at.record
        value = record.states[self._index]
        if value is EMPTY:
            return None
        if type(value) not in _FIXED:
            self._changed[record.seq] = record  # whoever has it may change it
        return value

    def write(self, value: Any) -> None:
        if value is None:
            self.clear()
        else:
            self._wrote(self._at.record, value)


class _Collection(StateHandle):
    """A handle of a state with several items."""

    __slots__ = ()
    _new: Callable[[], Any]

    def _items_to_grow(self) -> Any:
        """Returns the items, of which the caller adds one."""
        record = self._at.record
        items = record.states[self._index]
        if items is EMPTY:
            items = self._new()
        self._wrote(record, items)
        return items

    def _items_to_read(self) -> Any:
        """Returns the items, of which the user may change one in place."""
        record = self._at.record
        items = record.states[self._index]
        if items is EMPTY:
            return ()
        self._changed[record.seq] = record
        return items


class ListHandle(_Collection):
    """The handle of a ListState."""

    __slots__ = ()
    _new = list

    def add(self, value: Any) -> None:
        self._items_to_grow().append(value)

    def read(self) -> list[Any]:
        return list(self._items_to_read())


class SetHandle(_Collection):
    """The handle of a SetState."""

    __slots__ = ()
    _new = set

    def add(self, value: Any) -> None:
        self._items_to_grow().add(value)

    def read(self) -> set[Any]:
        return set(self._items_to_read())


class MapHandle(_Collection):
    """The handle of a MapState."""

    __slots__ = ()
    _new = dict

    def get(self, key: Any, default: Any = None) -> Any:
        items = self._items_to_read()
        return items.get(key, default) if items else default

    def put(self, key: Any, value: Any) -> None:
        self._items_to_grow()[key] = value

    def remove(self, key: Any) -> None:
        record = self._at.record
        items = record.states[self._index]
        if items is not EMPTY and key in items:
            del items[key]
            if items:
                self._wrote(record, items)
            else:
                self.clear()

    def items(self) -> list[tuple[Any, Any]]:
        items = self._items_to_read()
        return list(items.items()) if items else []


class CombiningHandle(StateHandle):
    """The handle of a CombiningState."""

    __slots__ = ("_fn",)

    def __init__(self, spec: StateSpec, *rest: Any) -> None:
        super().__init__(spec, *rest)
        assert isinstance(spec, CombiningState)
        self._fn = combine_fn(spec.fn)

    def add(self, value: Any) -> None:
        record, fn = self._at.record, self._fn
        acc = record.states[self._index]
        if acc is EMPTY:
            acc = fn.zero()
        self._wrote(record, fn.add(acc, (self._at.time, value) if fn.timed else value))

    def read(self) -> Any:
        record = self._at.record
        acc = record.states[self._index]
        if acc is EMPTY:
            return self._fn.finish(self._fn.zero())
        result = self._fn.finish(acc)
        if type(result) not in _FIXED:
            self._changed[record.seq] = record  # it may be a part of the accumulator
        return result

    def dump(self, value: Any) -> Any:
        return self._fn.dump(value)

    def load(self, stored: Any) -> Any:
        return self._fn.load(stored)


HANDLES: Final[dict[type[StateSpec], type[StateHandle]]] = {
    ValueState: ValueHandle,
    ListState: ListHandle,
    SetState: SetHandle,
    MapState: MapHandle,
    CombiningState: CombiningHandle,
}


def dump_states(handle: StateHandle, contents: Sequence[Any]) -> pa.BinaryArray:
    """Encodes the contents of one state in many records as cells, null where it is empty."""
    filled = [content for content in contents if content is not EMPTY]
    if type(handle).dump is not StateHandle.dump:
        filled = list(map(handle.dump, filled))
    cells = encode_cells(filled)
    if len(filled) == len(contents):
        return cells
    there = np.array([content is not EMPTY for content in contents], np.bool_)
    return cells.take(pa.array(np.cumsum(there) - 1, mask=~there))


def load_states(handle: StateHandle, cells: pa.BinaryArray) -> list[Any | Literal[_Empty.EMPTY]]:
    """Decodes the contents that `dump_states` encoded."""
    filled = map(handle.load, decode_cells(cells.drop_null()))
    if not cells.null_count:
        return list(filled)
    return [next(filled) if there else EMPTY for there in cells.is_valid().to_pylist()]
