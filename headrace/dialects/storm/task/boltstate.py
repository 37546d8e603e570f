"""The state of a bolt: its attributes, except those that the class names in `transient`, and the extras of its task."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from headrace.dialects.storm.api.components import Bolt
from headrace.dialects.storm.api.tuples import Tuple
from headrace.engine.columns.hashing import HASHES
from headrace.engine.shard.attributeblocks import Attributes
from headrace.engine.shard.attributestate import AttributeState

EXTRAS: Final = "\0task"
"""The attribute under which the extras of a task are stored."""

_SET_BY_TASK: Final = ("_collector", "context")
_WHOSE: Final = (
    "a bolt's state",
    "make it in prepare() and name it in the class: transient = ({},)",
)


@dataclass
class TaskExtras:
    """State that a task stores beside the attributes of its bolt.

    - memory: what the groupings of its output remember, see `Router.memory`
    - ticked: the number of the last tick period; None before the first

    >>> TaskExtras.of({"ticked": 7}).record()
    {'memory': {}, 'ticked': 7}
    """

    memory: dict[str, list[int]] = field(default_factory=dict)
    ticked: int | None = None

    def record(self) -> dict[str, Any]:
        """Returns the extras as they are stored."""
        return {"memory": self.memory, "ticked": self.ticked}

    @staticmethod
    def of(stored: Mapping[str, Any]) -> TaskExtras:
        """Reads stored extras, of which any may be missing."""
        return TaskExtras(stored.get("memory", {}), stored.get("ticked"))


class BoltState:
    """The state of a bolt's instance, and the extras of its task.

    >>> class Count(Bolt):
    ...     transient = ("connection",)
    >>> bolt = Count()
    >>> bolt.counts, bolt.connection = {}, open("/dev/null")
    >>> state = BoltState(bolt)
    >>> bolt.counts["a"] = 1
    >>> state.touch()
    >>> blocks = state.changes()
    >>> other = Count()
    >>> BoltState(other).load(blocks)
    >>> other.counts
    {'a': 1}
    """

    def __init__(self, bolt: Bolt, extras: TaskExtras | None = None) -> None:
        self.extras = extras or TaskExtras()
        self._stored_extras = replace(self.extras)
        excluded = frozenset((*_SET_BY_TASK, *bolt.transient))
        self._attributes = AttributeState(bolt, excluded, frozenset([Tuple]), _WHOSE)

    def touch(self) -> None:
        """Notes that the instance is called: from now on it may have changed."""
        self._attributes.touch()

    def changes(self) -> list[bytes]:
        """Returns the changes since the last `dump`, `changes` or `load`, as blocks."""
        state = self._attributes.changed()
        if self.extras != self._stored_extras:
            self._stored_extras = replace(self.extras)
            state.values[EXTRAS] = self._stored_extras.record()
        return state.blocks()

    def dump(self) -> list[bytes]:
        """Returns all of the state, as blocks."""
        self.changes()
        return self.part(0, HASHES)

    def part(self, low: int, high: int) -> list[bytes]:
        """Returns the state in a range of hashes, as blocks. It does not count as written."""
        state = self._attributes.whole()
        state.values[EXTRAS] = self.extras.record()
        return state.blocks(low, high)

    def load(self, blocks: Iterable[bytes]) -> None:
        """Restores state from blocks, in order, on top of the present state."""
        state = Attributes.read(blocks)
        self.extras = TaskExtras.of(self.extras.record() | state.values.pop(EXTRAS, {}))
        self._attributes.apply(state)
        self._stored_extras = replace(self.extras)
