"""Persistent state of a key: typed, there in the callbacks of its key only, and stored with what they produced."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, overload

from headrace.dialects.millwheel.api.recordsandtimers import ComputationError
from headrace.model.state import StateSpec, ValueState
from headrace.model.times import DurationLike

if TYPE_CHECKING:
    from headrace.dialects.millwheel.api.computation import Computation

T = TypeVar("T")

Lent = dict[str, tuple[Any, int]]
"""States that a callback has read and could change in place, each with the references that it had before."""

_FIXED: Final = frozenset({int, float, str, bytes, bool})
"""The most usual types of values that cannot be changed in place."""
_WIDER: Final[dict[type, tuple[type, ...]]] = {float: (float, int), complex: (complex, float, int)}
"""Which values are of a type besides its own, as for annotations."""


class Persistent(Generic[T]):
    """Declares state of a computation: a value of a type for each key, which begins as `default()`, or `kind()`.

    In a callback, the attribute is that of the callback's key: read it, assign to it, change it in place, `del` it.
    Elsewhere it is refused. With `expires`, it begins anew when so much event time has passed since it was assigned.

    >>> from headrace import millwheel as mw
    >>> class Count(mw.Computation):
    ...     inputs = {"queries": mw.key("query")}
    ...     seen = mw.Persistent(int)
    ...     def process_record(self, record):
    ...         self.seen += 1
    >>> Count().seen
    Traceback (most recent call last):
        ...
    headrace.dialects.millwheel.api.recordsandtimers.ComputationError: Count.seen is state of a key, which exists in process_record and process_timer of that key only; read it there
    """  # noqa: E501 (the message is one line)

    def __init__(
        self, kind: type[T], default: Callable[[], T] | None = None, *, expires: DurationLike | None = None
    ) -> None:
        if not isinstance(kind, type):
            raise ComputationError(f"Persistent takes the type of the state, got {kind!r}; write e.g. Persistent(int)")
        if default is not None and not callable(default):
            raise ComputationError(
                f"Persistent: default is a function that makes the first value of a key, got {default!r}; write e.g. "
                f"Persistent({kind.__name__}, lambda: {default!r})"
            )
        self.kind, self.default, self.expires = kind, default or kind, expires
        self._allowed = _WIDER.get(kind, (kind,))
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def spec(self) -> StateSpec:
        """Returns the state of a DoFn that it is."""
        return ValueState(self.name, expires=self.expires)

    @overload
    def __get__(self, computation: None, owner: type) -> Persistent[T]: ...
    @overload
    def __get__(self, computation: Computation, owner: type) -> T: ...
    def __get__(self, computation: Computation | None, owner: type) -> Persistent[T] | T:
        if computation is None:
            return self
        callback = computation._callback
        if callback.states is None:
            raise self._refusal(computation, "read")
        handle = callback.states[self.name]
        value = handle.read()
        if value is None:
            value = self._checked(computation, self.default())
            handle.write(value)
        if type(value) not in _FIXED and is_mutable(value):
            count = sys.getrefcount(value)
            callback.lent.setdefault(self.name, (value, count))
        return value  # type: ignore[no-any-return]

    def __set__(self, computation: Computation, value: T) -> None:
        states = computation._callback.states
        if states is None:
            raise self._refusal(computation, "change")
        if type(value) is not self.kind:
            self._checked(computation, value)
        states[self.name].write(value)

    def __delete__(self, computation: Computation) -> None:
        states = computation._callback.states
        if states is None:
            raise self._refusal(computation, "change")
        states[self.name].clear()

    def _checked(self, computation: Computation, value: Any) -> Any:
        if not isinstance(value, self._allowed):
            raise ComputationError(
                f"{type(computation).__name__}.{self.name} is declared as {self.kind.__name__}, got {value!r}; "
                f"declare it as Persistent({type(value).__name__}), or assign a {self.kind.__name__}"
            )
        return value

    def _refusal(self, computation: Computation, what: str) -> ComputationError:
        return ComputationError(
            f"{type(computation).__name__}.{self.name} is state of a key, which exists in process_record and "
            f"process_timer of that key only; {what} it there"
        )


_mutable: dict[type, bool] = {}


def is_mutable(value: object) -> bool:
    """Returns whether a value can be changed in place, as far as its type says: by what it is equal to and hashed by.

    >>> from datetime import date
    >>> [is_mutable(value) for value in (7, "a", (1, 2), date(2026, 1, 1), [7], {}, object())]
    [False, False, False, False, True, True, True]
    """
    kind = type(value)
    known = _mutable.get(kind)
    if known is None:
        known = _mutable[kind] = kind.__hash__ is None or kind.__hash__ is object.__hash__
    return known


def check_returned(computation: Computation, lent: Lent) -> None:
    """Checks that nothing refers to the state of a key any more after its callback, but for the state itself.

    Whoever did could change the state of one key in a callback of another, or outside of any, unseen.
    """
    if _retained(lent) is not None:
        gc.collect()  # a reference may be left in a cycle, as that of an exception to its frame
        if (name := _retained(lent)) is not None:
            raise ComputationError(
                f"{type(computation).__name__}.{name}: something still refers to the state of a key after its "
                "callback, so that a callback of another key could change it; produce or store a copy of it"
            )


def _retained(lent: Lent) -> str | None:
    """Returns the name of a state that has more references than when it was lent; None if there is none."""
    for name, (value, count) in lent.items():
        if sys.getrefcount(value) > count + 1:  # `lent` has one
            return name
    return None
