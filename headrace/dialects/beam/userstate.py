"""User state of Beam's stateful DoFns: the records of a shard, and the handles by which a DoFn reads and writes them.

A record has the state and the timers of one key and window. Beam asks a context for handles (`UserState`); a cursor
says which record they are of, so that no key is encoded while a bundle runs. A DoFn must not be able to change state
through an object that it has read or yields: what is not plain is kept as bytes, by the coder of its spec.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from apache_beam import coders
from apache_beam.transforms import userstate
from apache_beam.transforms.window import BoundedWindow
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import PaneInfo

from headrace.dialects.beam.beamtimers import SetTimer, TimerHandle, Timers

Content = TypeVar("Content")

_PLAIN: Final = frozenset({int, float, complex, str, bytes, bool, type(None), Timestamp})
"""Types whose objects nobody can change."""


@dataclass(eq=False, slots=True)
class Record:
    """The state and timers of a key and window; contents that were loaded are bytes until somebody asks for them."""

    name: bytes
    user_key: Any
    window: BoundedWindow
    seq: int
    deadline: int
    states: dict[str, Any] = field(default_factory=dict)
    encoded: dict[str, bytes] = field(default_factory=dict)
    timers: dict[tuple[str, str], SetTimer] = field(default_factory=dict)

    @property
    def is_blank(self) -> bool:
        """Whether it has neither state nor timers."""
        return not (self.states or self.encoded or self.timers)


class Cursor:
    """Points to the record of the element or timer that is being processed, and notes which records change.

    A stage may serve several shards, one after the other: `changed` and `timers` are those of the shard it serves.
    """

    __slots__ = ("changed", "record", "timers")

    def __init__(self) -> None:
        self.record: Record
        self.changed: dict[int, Record] = {}
        self.timers = Timers()

    def touched(self) -> Record:
        """Returns the record, which is about to change."""
        record = self.record
        self.changed[record.seq] = record
        return record


class _Encoded(bytes):
    """An object as its coder encodes it."""

    __slots__ = ()


def _frozen(coder: coders.Coder, value: Any) -> Any:
    """Returns a value such that nobody can change it."""
    return value if type(value) in _PLAIN else _Encoded(coder.encode(value))


def _thawed(coder: coders.Coder, value: Any) -> Any:
    """Returns the value that `_frozen` was given, or one like it that nobody else has."""
    return coder.decode(bytes(value)) if type(value) is _Encoded else value


class StateHandle(userstate.RuntimeState, Generic[Content]):
    """The state of one spec, of the record that the cursor points to."""

    def __init__(self, spec: userstate.StateSpec, at: Cursor) -> None:
        self.name, self._coder, self._at = spec.name, spec.coder, at

    def clear(self) -> None:
        """Empties the state."""
        record = self._at.touched()
        record.states.pop(self.name, None)
        record.encoded.pop(self.name, None)

    def commit(self) -> None:
        """Does nothing: what is written is in the record."""

    def encode(self, content: Content) -> bytes:
        """Encodes a content to be stored."""
        raise NotImplementedError

    def decode(self, encoded: bytes) -> Content:
        """Decodes what `encode` encoded."""
        raise NotImplementedError

    def _empty(self) -> Content:
        raise NotImplementedError

    def _content(self) -> Content | None:
        """Returns the content to be read; None if the state is empty."""
        record = self._at.record
        if self.name in record.encoded:
            record.states[self.name] = self.decode(record.encoded.pop(self.name))
        return record.states.get(self.name)

    def _changing(self) -> Content:
        """Returns the content to be changed."""
        content, record = self._content(), self._at.touched()
        if content is None:
            content = record.states[self.name] = self._empty()
        return content


class ValueState(StateHandle[list[Any]], userstate.ReadModifyWriteRuntimeState):
    """One value, in a list since it may be None."""

    def read(self) -> Any:
        """Returns the value, None if there is none."""
        content = self._content()
        return _thawed(self._coder, content[0]) if content else None

    def write(self, value: Any) -> None:
        """Replaces the value."""
        record = self._at.touched()
        record.encoded.pop(self.name, None)
        record.states[self.name] = [_frozen(self._coder, value)]

    def encode(self, content: list[Any]) -> bytes:
        (value,) = content
        return bytes(value) if type(value) is _Encoded else self._coder.encode(value)

    def decode(self, encoded: bytes) -> list[Any]:
        return [_frozen(self._coder, self._coder.decode(encoded))]


class BagState(StateHandle[list[Any]], userstate.BagRuntimeState):
    """Values in the order in which they were added."""

    def read(self) -> list[Any]:
        """Returns the values, as a list that later changes do not touch."""
        coder = self._coder
        return [_thawed(coder, value) for value in self._content() or ()]

    def add(self, value: Any) -> None:
        """Adds a value."""
        self._changing().append(_frozen(self._coder, value))

    def encode(self, content: list[Any]) -> bytes:
        return coders.IterableCoder(self._coder).encode([_thawed(self._coder, value) for value in content])

    def decode(self, encoded: bytes) -> list[Any]:
        return [_frozen(self._coder, value) for value in coders.IterableCoder(self._coder).decode(encoded)]

    def _empty(self) -> list[Any]:
        return []


class SetState(StateHandle[set[Any]], userstate.SetRuntimeState):
    """Different values; they can be hashed, so nobody can change them."""

    def read(self) -> set[Any]:
        """Returns the values, as a set that later changes do not touch."""
        return set(self._content() or ())

    def add(self, value: Any) -> None:
        """Adds a value."""
        self._changing().add(value)

    def encode(self, content: set[Any]) -> bytes:
        return _sorted_iterable(self._coder, content)

    def decode(self, encoded: bytes) -> set[Any]:
        return set(coders.IterableCoder(self._coder).decode(encoded))

    def _empty(self) -> set[Any]:
        return set()


def _sorted_iterable(coder: coders.Coder, values: set[Any]) -> bytes:
    """Encodes values in the order of their bytes, so that equal sets have equal bytes."""
    return coders.IterableCoder(coder).encode(sorted(values, key=coder.encode))


class CombiningState(StateHandle[list[Any]], userstate.CombiningValueRuntimeState):
    """An accumulator, in a list since a CombineFn may return another one."""

    def __init__(self, spec: userstate.CombiningValueStateSpec, at: Cursor) -> None:
        super().__init__(spec, at)
        self._spec = spec
        self._used: Any = None  # the CombineFn, while a bundle uses it

    def read(self) -> Any:
        """Returns the result of all values added."""
        content = self._content()
        if content is None:
            return self._fn.extract_output(self._fn.create_accumulator())
        (accumulator,) = content
        if type(accumulator) not in _PLAIN:  # the result may be the accumulator, or a part of it
            accumulator = self._coder.decode(self._coder.encode(accumulator))
        return self._fn.extract_output(accumulator)

    def add(self, value: Any) -> None:
        """Adds a value."""
        content = self._changing()
        content[0] = self._fn.add_input(content[0], value)

    def finalize(self) -> None:
        """Ends the life of the CombineFn, if the bundle used it."""
        if self._used is not None:
            self._used.teardown()
            self._used = None

    @property
    def _fn(self) -> Any:
        if self._used is None:
            self._used = copy.deepcopy(self._spec.combine_fn)
            self._used.setup()
        return self._used

    def encode(self, content: list[Any]) -> bytes:
        return self._coder.encode(content[0])

    def decode(self, encoded: bytes) -> list[Any]:
        return [self._coder.decode(encoded)]

    def _empty(self) -> list[Any]:
        return [self._fn.create_accumulator()]


class OrderedListState(StateHandle[dict[int, list[Any]]], userstate.OrderedListRuntimeState):
    """Values by time, which Beam cuts to milliseconds; those of one time in the order in which they were added."""

    def read(self) -> list[tuple[Timestamp, Any]]:
        """Returns all pairs of time and value, in order."""
        return self._between(None, None)

    def add(self, value: tuple[Timestamp, Any]) -> None:
        """Adds a value at a time."""
        time, item = value
        self._changing().setdefault(_millis(time), []).append(_frozen(self._coder, item))

    def read_range(self, min_time_stamp: Timestamp, limit_time_stamp: Timestamp) -> list[tuple[Timestamp, Any]]:
        """Returns the pairs of times from `min_time_stamp` and before `limit_time_stamp`, in order."""
        return self._between(_millis(min_time_stamp), _millis(limit_time_stamp))

    def clear_range(self, min_time_stamp: Timestamp, limit_time_stamp: Timestamp) -> None:
        """Removes the values of times from `min_time_stamp` and before `limit_time_stamp`."""
        low, high, content = _millis(min_time_stamp), _millis(limit_time_stamp), self._changing()
        for millis in [millis for millis in content if low <= millis < high]:
            del content[millis]
        if not content:
            self.clear()

    def encode(self, content: dict[int, list[Any]]) -> bytes:
        pairs = [(millis, _thawed(self._coder, value)) for millis in sorted(content) for value in content[millis]]
        return self._pairs().encode(pairs)

    def decode(self, encoded: bytes) -> dict[int, list[Any]]:
        content: dict[int, list[Any]] = {}
        for millis, value in self._pairs().decode(encoded):
            content.setdefault(millis, []).append(_frozen(self._coder, value))
        return content

    def _empty(self) -> dict[int, list[Any]]:
        return {}

    def _pairs(self) -> coders.Coder:
        return coders.IterableCoder(coders.TupleCoder((coders.VarIntCoder(), self._coder)))

    def _between(self, low: int | None, high: int | None) -> list[tuple[Timestamp, Any]]:
        content = self._content() or {}
        return [
            (Timestamp(micros=1000 * millis), _thawed(self._coder, value))
            for millis in sorted(content)
            if (low is None or low <= millis) and (high is None or millis < high)
            for value in content[millis]
        ]


def _millis(time: Any) -> int:
    return int(Timestamp.of(time).micros // 1000)


_HANDLES: Final[dict[type, type[StateHandle[Any]]]] = {
    userstate.ReadModifyWriteStateSpec: ValueState,
    userstate.BagStateSpec: BagState,
    userstate.SetStateSpec: SetState,
    userstate.CombiningValueStateSpec: CombiningState,
    userstate.OrderedListStateSpec: OrderedListState,
}


class UserState(userstate.UserStateContext):
    """The context that Beam asks for state and timers, in place of its own; it notes itself in the state handler.

    >>> from apache_beam.transforms.window import GlobalWindow
    >>> state, seen = UserState(), userstate.BagStateSpec("seen", coders.VarIntCoder())
    >>> state.at.record = Record(b"k", "k", GlobalWindow(), 0, 0)
    >>> state.get_state(seen).add(7)
    >>> state.get_state(seen).read(), state.dump(state.at.record)
    ([7], {'seen': b'\\x00\\x00\\x00\\x01\\x07'})
    """

    def __init__(
        self,
        state_handler: Any = None,
        transform_id: str = "",
        key_coder: coders.Coder | None = None,
        window_coder: coders.Coder | None = None,
    ) -> None:
        self.at = Cursor()
        self._handles: dict[str, StateHandle[Any]] = {}
        if state_handler is not None:
            state_handler.user_state = self

    @property
    def timers(self) -> Timers:
        """The timers of the shard that is served."""
        return self.at.timers

    def add_timer_info(self, timer_family_id: str, timer_info: Any) -> None:
        """Does nothing: timers are not encoded."""

    def get_state(self, state_spec: userstate.StateSpec, key: Any = None, window: Any = None) -> StateHandle[Any]:
        """Returns the handle of a state of the cursor's record."""
        handle = self._handles.get(state_spec.name)
        if handle is None:
            handle = self._handles[state_spec.name] = _HANDLES[type(state_spec)](state_spec, self.at)
        return handle

    def get_timer(
        self, timer_spec: userstate.TimerSpec, key: Any, window: Any, timestamp: Timestamp, pane: PaneInfo
    ) -> TimerHandle:
        """Returns the handle of a timer of the cursor's record."""
        return TimerHandle(timer_spec, self.at, timestamp, pane)

    def dump(self, record: Record) -> dict[str, bytes]:
        """Encodes the states of a record, by name."""
        contents = record.states.items()
        return {**record.encoded, **{name: self._handles[name].encode(content) for name, content in contents}}

    def commit(self) -> None:
        """Does nothing: what a bundle wrote is in the records."""

    def reset(self) -> None:
        """Ends the life of the CombineFns that the bundle used."""
        for handle in self._handles.values():
            handle.finalize()
