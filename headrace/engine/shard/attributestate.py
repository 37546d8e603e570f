"""Attributes of an object as state: finds the ones that have changed since it was last written, and writes only these.

A dict is written item by item. Items whose values cannot change in place (numbers, text, tuples of such) have changed
if they are other objects than before: this takes some 50 ns an item, and nothing while the object is used. Other values
are pickled and compared, those of a dict in blocks of keys. A dict is restored with the same items, in any order.

An attribute that nothing has changed since the object was made is not state: the present code makes it again.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from decimal import Decimal
from hashlib import blake2b
from itertools import compress, islice
from operator import is_, is_not
from typing import Any, Final

from headrace.engine.shard.attributeblocks import REMOVED, Attributes
from headrace.model.keys import encode_keys
from headrace.model.pickling import dumps

_DICTS: Final = (dict, Counter, defaultdict)  # not OrderedDict: items do not store its order
_FIXED: Final = frozenset(
    {int, float, complex, str, bytes, bool, type(None), Decimal, dt.datetime, dt.date, dt.timedelta, uuid.UUID}
)
_PLAIN_KEYS: Final = frozenset({int, str, bytes})
_BUCKETS: Final = 1024
_MISSING: Final = object()


class _Rules:
    """Which values cannot change in place, and how others are compared."""

    def __init__(self, fixed: frozenset[type], whose: tuple[str, str]) -> None:
        self.fixed, self._whose = _FIXED | fixed, whose

    def is_fixed(self, value: Any) -> bool:
        """Tells whether a value cannot change in place."""
        kind = type(value)
        return kind in self.fixed or (kind is tuple and all(map(self.is_fixed, value)))

    def seen(self, name: str, value: Any) -> Any:
        """Returns what to compare a value with later: itself, or the digest of its pickle."""
        return value if self.is_fixed(value) else self.digest(name, value)

    def digest(self, name: str, value: Any) -> _Digest:
        try:
            return _Digest(blake2b(dumps(value), digest_size=16).digest())
        except Exception as error:
            whose, remedy = self._whose
            raise TypeError(
                f"the attribute {name!r} is part of {whose} and cannot be pickled: {error}; {remedy.format(repr(name))}"
            ) from error

    def snapshot(self, name: str, value: Any) -> _ValueSnapshot | _DictSnapshot:
        return _DictSnapshot(self, name, value) if _is_itemised(value) else _ValueSnapshot(self, name, value)


class _ValueSnapshot:
    """An attribute as it was: the object itself, or the digest of its pickle."""

    def __init__(self, rules: _Rules, name: str, value: Any) -> None:
        self._rules, self._seen = rules, rules.seen(name, value)

    def update(self, name: str, value: Any) -> bool:
        """Takes a new snapshot; returns whether the value has changed."""
        seen, self._seen = self._seen, self._rules.seen(name, value)
        return not (seen is self._seen or (isinstance(seen, _Digest) and seen == self._seen))


class _DictSnapshot:
    """A dict as it was: its values, and digests of the pickles of values that may change in place, in buckets."""

    def __init__(self, rules: _Rules, name: str, value: dict[Any, Any]) -> None:
        self._rules, self.kind = rules, type(value)
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
        if self._buckets or not self._rules.fixed.issuperset(map(type, changed.values())):
            self._update_buckets(changed, removed)
            changed |= self._changed_in_place(name, value)
        return changed, removed

    def keys(self) -> list[Any]:
        """Returns the keys it had."""
        return list(self._seen)

    def _update_buckets(self, changed: dict[Any, Any], removed: list[Any]) -> None:
        for key in (*changed, *removed):
            bucket = hash(key) % _BUCKETS
            if key in changed and not self._rules.is_fixed(changed[key]):
                self._buckets.setdefault(bucket, {})[key] = None
            elif bucket in self._buckets:
                self._buckets[bucket].pop(key, None)

    def _changed_in_place(self, name: str, value: dict[Any, Any]) -> dict[Any, Any]:
        changed: dict[Any, Any] = {}
        for bucket, keys in self._buckets.items():
            digest = self._rules.digest(name, [value[key] for key in keys])
            if digest != self._digests.get(bucket):
                self._digests[bucket] = digest
                changed.update({key: value[key] for key in keys})
        return changed


class AttributeState:
    """The attributes of an object, but for those that are `excluded`.

    - fixed: classes of values that cannot change in place, beside the usual ones
    - whose: whose state it is, and what to do with an attribute that cannot be pickled, for messages

    >>> class Count:
    ...     def __init__(self):
    ...         self.counts = {}
    >>> count = Count()
    >>> state = AttributeState(count)
    >>> count.counts["a"] = 1
    >>> state.touch()
    >>> blocks = state.changed().blocks()
    >>> other = Count()
    >>> AttributeState(other).apply(Attributes.read(blocks))
    >>> other.counts
    {'a': 1}
    """

    def __init__(
        self,
        owner: Any,
        excluded: frozenset[str] = frozenset(),
        fixed: frozenset[type] = frozenset(),
        whose: tuple[str, str] = ("an object's state", "make it otherwise"),
    ) -> None:
        self._owner, self._excluded, self._rules = owner, excluded, _Rules(fixed, whose)
        self._stored: dict[str, None] = {}  # attributes that were written at some time
        self._take_snapshots()

    def touch(self) -> None:
        """Notes that the object is used: from now on it may have changed."""
        self._touched = True

    def changed(self) -> Attributes:
        """Returns what has changed since `changed` or `apply` was last called."""
        state = Attributes()
        if self._touched:
            now = dict(self._attributes())
            for name in [name for name in self._snapshots if name not in now]:
                self._remove(name, state)
            for name, value in now.items():
                self._compare(name, value, state)
            self._touched = False
        return state

    def whole(self) -> Attributes:
        """Returns all of the state. It does not count as written."""
        state = Attributes()
        now = dict(self._attributes())
        for name in self._stored:
            if name not in now:
                state.values[name] = REMOVED
            elif isinstance(self._snapshots[name], _DictSnapshot):
                state.dicts[name], state.items[name] = _empty_like(now[name]), now[name]
            else:
                state.values[name] = now[name]
        return state

    def apply(self, state: Attributes) -> None:
        """Restores what was stored, on top of the present state."""
        for name in state.names():
            value = state.applied(name, getattr(self._owner, name, None))
            self._stored[name] = None
            if value is not REMOVED:
                setattr(self._owner, name, value)
            elif hasattr(self._owner, name):
                delattr(self._owner, name)
        self._take_snapshots()

    def _take_snapshots(self) -> None:
        self._touched = False
        self._snapshots: dict[str, _ValueSnapshot | _DictSnapshot] = {
            name: self._rules.snapshot(name, value) for name, value in self._attributes()
        }

    def _attributes(self) -> Iterator[tuple[str, Any]]:
        return ((name, value) for name, value in vars(self._owner).items() if name not in self._excluded)

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
        self._snapshots[name] = snapshot = self._rules.snapshot(name, value)
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
