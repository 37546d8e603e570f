"""The state of a bolt: its attributes. Finds the ones that have changed in a batch, and writes only these.

Every attribute is state, except those that the class names in `transient`. A dict is written item by item. Items whose
values cannot change in place (numbers, text, tuples of such) have changed if they are other objects than before: this
takes some 50 ns an item, and nothing in `execute`. Other values are pickled and compared, those of a dict in blocks of
keys. A dict is restored with the same items, in any order.

An attribute that nothing has changed since `prepare` is not state: the present code of `prepare` makes it again.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from hashlib import blake2b
from itertools import compress, islice
from operator import is_, is_not
from typing import Any, Final

from headrace.dialects.storm.api.components import Bolt
from headrace.dialects.storm.api.tuples import Tuple
from headrace.dialects.storm.task.attributeblocks import REMOVED, Attributes
from headrace.engine.columns.hashing import HASHES
from headrace.model.keys import encode_keys
from headrace.model.pickling import dumps

EXTRAS: Final = "\0task"
"""The attribute under which the extras of a task are stored."""

_SET_BY_TASK: Final = ("_collector", "context")
_DICTS: Final = (dict, Counter, defaultdict)  # not OrderedDict: items do not store its order
_FIXED: Final = frozenset(
    {int, float, complex, str, bytes, bool, type(None), Decimal, dt.datetime, dt.date, dt.timedelta, uuid.UUID, Tuple}
)
_PLAIN_KEYS: Final = frozenset({int, str, bytes})
_BUCKETS: Final = 1024
_MISSING: Final = object()


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


def is_fixed(value: Any) -> bool:
    """Tells whether a value cannot change in place.

    >>> is_fixed(1), is_fixed((1, "a")), is_fixed([1]), is_fixed((1, [2]))
    (True, True, False, False)
    """
    kind = type(value)
    return kind in _FIXED or (kind is tuple and all(map(is_fixed, value)))


class _ValueSnapshot:
    """An attribute as it was: the object itself, or the digest of its pickle."""

    def __init__(self, name: str, value: Any) -> None:
        self._seen = value if is_fixed(value) else _digest(name, value)

    def update(self, name: str, value: Any) -> bool:
        """Takes a new snapshot; returns whether the value has changed."""
        seen, self._seen = self._seen, value if is_fixed(value) else _digest(name, value)
        return not (seen is self._seen or (isinstance(seen, _Digest) and seen == self._seen))


class _DictSnapshot:
    """A dict as it was: its values, and digests of the pickles of values that may change in place, in buckets."""

    def __init__(self, name: str, value: dict[Any, Any]) -> None:
        self.kind = type(value)
        self._seen: dict[Any, Any] = {}
        self._buckets: dict[int, dict[Any, None]] = {}
        self._digests: dict[int, _Digest] = {}
        self.update(name, value)

    def update(self, name: str, value: dict[Any, Any]) -> tuple[dict[Any, Any], list[Any]]:
        """Takes a new snapshot; returns the items that have changed, and the keys that were removed."""
        seen, removed = self._seen, []
        if len(value) >= len(seen) and all(map(is_, value, seen)):  # keys as before, and then perhaps new ones
            changed = dict(compress(value.items(), map(is_not, value.values(), seen.values())))
            changed.update(islice(value.items(), len(seen), None))
            seen.update(changed)
        else:
            changed = {key: now for key, now in value.items() if seen.get(key, _MISSING) is not now}
            removed = [key for key in seen if key not in value]
            self._seen = dict(value)
        if self._buckets or not _FIXED.issuperset(map(type, changed.values())):
            self._update_buckets(changed, removed)
            changed |= self._changed_in_place(name, value)
        return changed, removed

    def keys(self) -> list[Any]:
        """Returns the keys it had."""
        return list(self._seen)

    def _update_buckets(self, changed: dict[Any, Any], removed: list[Any]) -> None:
        for key in (*changed, *removed):
            bucket = hash(key) % _BUCKETS
            if key in changed and not is_fixed(changed[key]):
                self._buckets.setdefault(bucket, {})[key] = None
            elif bucket in self._buckets:
                self._buckets[bucket].pop(key, None)

    def _changed_in_place(self, name: str, value: dict[Any, Any]) -> dict[Any, Any]:
        changed: dict[Any, Any] = {}
        for bucket, keys in self._buckets.items():
            digest = _digest(name, [value[key] for key in keys])
            if digest != self._digests.get(bucket):
                self._digests[bucket] = digest
                changed.update({key: value[key] for key in keys})
        return changed


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
        self._bolt = bolt
        self.extras = extras or TaskExtras()
        self._stored_extras = replace(self.extras)
        self._excluded = frozenset((*_SET_BY_TASK, *bolt.transient))
        self._stored: dict[str, None] = {}  # attributes that were written at some time
        self._take_snapshots()

    def touch(self) -> None:
        """Notes that the instance is called: from now on it may have changed."""
        self._touched = True

    def changes(self) -> list[bytes]:
        """Returns the changes since the last `dump`, `changes` or `load`, as blocks."""
        state = Attributes()
        if self.extras != self._stored_extras:
            self._stored_extras = replace(self.extras)
            state.values[EXTRAS] = self._stored_extras.record()
        if self._touched:
            now = dict(self._attributes())
            for name in [name for name in self._snapshots if name not in now]:
                self._remove(name, state)
            for name, value in now.items():
                self._compare(name, value, state)
            self._touched = False
        return state.blocks()

    def dump(self) -> list[bytes]:
        """Returns all of the state, as blocks."""
        self.changes()
        return self.part(0, HASHES)

    def part(self, low: int, high: int) -> list[bytes]:
        """Returns the state in a range of hashes, as blocks. It does not count as written."""
        state = Attributes({EXTRAS: self.extras.record()})
        now = dict(self._attributes())
        for name in self._stored:
            if name not in now:
                state.values[name] = REMOVED
            elif isinstance(self._snapshots[name], _DictSnapshot):
                state.dicts[name], state.items[name] = _empty_like(now[name]), now[name]
            else:
                state.values[name] = now[name]
        return state.blocks(low, high)

    def load(self, blocks: Iterable[bytes]) -> None:
        """Restores state from blocks, in order, on top of the present state."""
        state = Attributes.read(blocks)
        self.extras = TaskExtras.of(self.extras.record() | state.values.pop(EXTRAS, {}))
        for name in state.names():
            value = state.applied(name, getattr(self._bolt, name, None))
            self._stored[name] = None
            if value is not REMOVED:
                setattr(self._bolt, name, value)
            elif hasattr(self._bolt, name):
                delattr(self._bolt, name)
        self._take_snapshots()

    def _take_snapshots(self) -> None:
        self._touched = False
        self._stored_extras = replace(self.extras)
        self._snapshots: dict[str, _ValueSnapshot | _DictSnapshot] = {
            name: _snapshot(name, value) for name, value in self._attributes()
        }

    def _attributes(self) -> Iterator[tuple[str, Any]]:
        return ((name, value) for name, value in vars(self._bolt).items() if name not in self._excluded)

    def _compare(self, name: str, value: Any, state: Attributes) -> None:
        snapshot = self._snapshots.get(name)
        removed: list[Any] = []
        if isinstance(snapshot, _DictSnapshot) and type(value) is snapshot.kind:
            changed, removed = snapshot.update(name, value)
            if not changed and not removed:
                return
            if name in self._stored and _are_keys(changed):
                state.items[name], state.removed[name] = changed, removed
                return
        elif isinstance(snapshot, _ValueSnapshot) and not _is_itemised(value):
            if snapshot.update(name, value):
                state.values[name] = value
                self._stored[name] = None
            return
        # New, of another kind, or not written so far: all of it.
        if snapshot is not None:
            self._remove(name, state, removed)
        self._snapshots[name] = snapshot = _snapshot(name, value)
        self._stored[name] = None
        if isinstance(snapshot, _DictSnapshot):
            state.values.pop(name, None)
            state.dicts[name] = _empty_like(value)
            state.items[name] = value
            state.removed[name] = [key for key in state.removed.get(name, ()) if key not in value]
        else:
            state.values[name] = value

    def _remove(self, name: str, state: Attributes, removed: Sequence[Any] = ()) -> None:
        snapshot = self._snapshots.pop(name)
        if name in self._stored:
            state.values[name] = REMOVED
            if isinstance(snapshot, _DictSnapshot):
                # A dict may have got keys that cannot be written; the others were written.
                state.removed[name] = [key for key in (*snapshot.keys(), *removed) if _are_keys({key: None})]


def _snapshot(name: str, value: Any) -> _ValueSnapshot | _DictSnapshot:
    return _DictSnapshot(name, value) if _is_itemised(value) else _ValueSnapshot(name, value)


def _is_itemised(value: Any) -> bool:
    return type(value) in _DICTS and _are_keys(value)


def _are_keys(items: dict[Any, Any]) -> bool:
    """Tells whether the keys of all items can be encoded."""
    if _PLAIN_KEYS.issuperset(map(type, items)):
        return True
    try:
        encode_keys(list(items))
    except TypeError:
        return False
    return True


def _empty_like(value: dict[Any, Any]) -> dict[Any, Any]:
    return defaultdict(value.default_factory) if isinstance(value, defaultdict) else type(value)()


class _Digest(bytes):
    """The digest of a pickle."""


def _digest(name: str, value: Any) -> _Digest:
    try:
        return _Digest(blake2b(dumps(value), digest_size=16).digest())
    except Exception as error:
        raise TypeError(
            f"the attribute {name!r} is part of a bolt's state and cannot be pickled: {error}; make it in prepare() "
            f"and name it in the class: transient = ({name!r},)"
        ) from error
