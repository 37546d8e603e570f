"""The state of one key, as the function of mapWithState sees it."""

from __future__ import annotations

from typing import Any


class State:
    """The state of one key, for the length of a call.

    >>> state = State()
    >>> state.exists(), state.getOption()
    (False, None)
    >>> state.update(3)
    >>> state.exists(), state.get()
    (True, 3)
    """

    __slots__ = ("_changed", "_exists", "_removed", "_timing_out", "_value")

    def __init__(self, exists: bool = False, value: Any = None, timing_out: bool = False) -> None:
        self._exists, self._value, self._timing_out = exists, value, timing_out
        self._changed = self._removed = False

    def exists(self) -> bool:
        """Returns whether the key has a state."""
        return self._exists

    def get(self) -> Any:
        """Returns the state. Refuses if there is none."""
        if not self._exists:
            raise LookupError("State.get: the key has no state; ask exists() first, or use getOption()")
        return self._value

    def getOption(self) -> Any:
        """Returns the state, or None if there is none."""
        return self._value if self._exists else None

    def update(self, newState: Any) -> None:
        """Sets the state. Changes of an object that get() returned count once it is set."""
        self._check("update")
        self._exists, self._value, self._changed = True, newState, True

    def remove(self) -> None:
        """Removes the state."""
        self._check("remove")
        self._exists, self._value, self._changed, self._removed = False, None, True, True

    def isTimingOut(self) -> bool:
        """Returns whether this is the last call for a key that was idle for too long; its state is then removed."""
        return self._timing_out

    def _check(self, verb: str) -> None:
        if self._timing_out:
            raise ValueError(f"State.{verb}: the state is timing out and will be removed; ask isTimingOut() first")
        if self._removed:
            raise ValueError(f"State.{verb}: the state was removed in this call; update it or remove it, not both")
