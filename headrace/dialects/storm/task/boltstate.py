"""The state of a bolt: its attributes. Finds out which have changed in a batch, and writes only those.

Every attribute counts, but for those that the class names in `transient`. Of a dict, single items are written. Items
whose values cannot change in place (numbers, text, tuples of such) have changed if they are other objects than before:
that takes some 50 ns an item, and nothing in `execute`. Other values are pickled and compared, those of a dict in
blocks of keys. Dicts come back with the same items, in any order.

An attribute that nothing has changed since `prepare` is not state: it is made by `prepare` again, as the code is then.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from hashlib import blake2b
from itertools import compress, islice
from operator import is_, is_not
from typing import Any, Final

from headrace.dialects.storm.api.components import Bolt
from headrace.dialects.storm.api.tuples import Tuple
from headrace.dialects.storm.task.attributeblocks import GONE, Attributes
from headrace.engine.columns.hashing import HASHES
from headrace.model.keys import encode_keys
from headrace.model.pickling import dumps

EXTRAS: Final = "\0task"
"""The name under which the extras of a task lie among attributes."""

_OURS: Final = ("_collected", "context")
_DICTS: Final = (dict, Counter, defaultdict)  # an OrderedDict has an order, which items do not tell
_FIXED: Final = frozenset(
    {int, float, complex, str, bytes, bool, type(None), Decimal, dt.datetime, dt.date, dt.timedelta, uuid.UUID, Tuple}
)
_PLAIN_KEYS: Final = frozenset({int, str, bytes})
_BUCKETS: Final = 1024
_MISSING: Final = object()


def is_fixed(value: Any) -> bool:
    """Whether a value cannot change in place.

    >>> is_fixed(1), is_fixed((1, "a")), is_fixed([1]), is_fixed((1, [2]))
    (True, True, False, False)
    """
    kind = type(value)
    return kind in _FIXED or (kind is tuple and all(map(is_fixed, value)))


class _Plain:
    """An attribute as it was: the object itself, or what its pickle looked like."""

    def __init__(self, name: str, value: Any) -> None:
        self._seen = value if is_fixed(value) else _digest(name, value)

    def changed(self, name: str, value: Any) -> bool:
        seen, self._seen = self._seen, value if is_fixed(value) else _digest(name, value)
        return not (seen is self._seen or (isinstance(seen, _Digest) and seen == self._seen))


class _Items:
    """A dict as it was: the values, and what the pickles of those that may change in place looked like, in buckets."""

    def __init__(self, name: str, value: dict[Any, Any]) -> None:
        self.kind = type(value)
        self._seen: dict[Any, Any] = {}
        self._buckets: dict[int, dict[Any, None]] = {}
        self._digests: dict[int, _Digest] = {}
        self.changes(name, value)

    def changes(self, name: str, value: dict[Any, Any]) -> tuple[dict[Any, Any], list[Any]]:
        """Items that are other than before, and keys that are no more."""
        seen, gone = self._seen, []
        if len(value) >= len(seen) and all(map(is_, value, seen)):  # keys as before, and then perhaps new ones
            changed = dict(compress(value.items(), map(is_not, value.values(), seen.values())))
            changed.update(islice(value.items(), len(seen), None))
            seen.update(changed)
        else:
            changed = {key: now for key, now in value.items() if seen.get(key, _MISSING) is not now}
            gone = [key for key in seen if key not in value]
            self._seen = dict(value)
        if self._buckets or not _FIXED.issuperset(map(type, changed.values())):
            self._note(changed, gone)
            changed |= self._changed_in_place(name, value)
        return changed, gone

    def keys(self) -> list[Any]:
        """The keys it had."""
        return list(self._seen)

    def _note(self, changed: dict[Any, Any], gone: list[Any]) -> None:
        for key in (*changed, *gone):
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


class Kept:
    """What is kept of a bolt's instance. `extras` are values that the task keeps beside it.

    >>> class Count(Bolt):
    ...     transient = ("connection",)
    >>> bolt = Count()
    >>> bolt.counts, bolt.connection = {}, open("/dev/null")
    >>> kept = Kept(bolt)
    >>> bolt.counts["a"] = 1
    >>> kept.touch()
    >>> blocks = kept.changes()
    >>> other = Count()
    >>> Kept(other).load(blocks)
    >>> other.counts
    {'a': 1}
    """

    def __init__(self, bolt: Bolt, extras: dict[str, Any] | None = None) -> None:
        self._bolt = bolt
        self.extras = dict(extras or {})
        self._left_out = frozenset((*_OURS, *bolt.transient))
        self._extras_seen: dict[str, Any] = {}
        self._stored: dict[str, None] = {}  # attributes that are written somewhere, or were
        self._see()

    def touch(self) -> None:
        """The instance is called: from now on it may have changed."""
        self._touched = True

    def changes(self) -> list[bytes]:
        """What has changed since `dump`, `changes` or `load` was called last."""
        state = Attributes()
        if self.extras != self._extras_seen:
            self._extras_seen = dict(self.extras)
            state.values[EXTRAS] = self._extras_seen
        if self._touched:
            now = dict(self._attributes())
            for name in [name for name in self._known if name not in now]:
                self._removed(name, state)
            for name, value in now.items():
                self._compare(name, value, state)
            self._touched = False
        return state.blocks()

    def dump(self) -> list[bytes]:
        """All there is."""
        self.changes()
        return self.part(0, HASHES)

    def part(self, low: int, high: int) -> list[bytes]:
        """What there is in a range of hashes. It does not count as written."""
        state = Attributes({EXTRAS: self.extras})
        now = dict(self._attributes())
        for name in self._stored:
            if name not in now:
                state.values[name] = GONE
            elif isinstance(self._known[name], _Items):
                state.dicts[name], state.items[name] = _emptied(now[name]), now[name]
            else:
                state.values[name] = now[name]
        return state.blocks(low, high)

    def load(self, blocks: Iterable[bytes]) -> None:
        """Takes over state from blocks, in order, on top of what there is."""
        state = Attributes.read(blocks)
        self.extras.update(state.values.pop(EXTRAS, {}))
        for name in state.names():
            value = state.applied(name, getattr(self._bolt, name, None))
            self._stored[name] = None
            if value is not GONE:
                setattr(self._bolt, name, value)
            elif hasattr(self._bolt, name):
                delattr(self._bolt, name)
        self._see()

    def _see(self) -> None:
        self._touched = False
        self._extras_seen = dict(self.extras)
        self._known: dict[str, _Plain | _Items] = {name: _seen(name, value) for name, value in self._attributes()}

    def _attributes(self) -> Iterator[tuple[str, Any]]:
        return ((name, value) for name, value in vars(self._bolt).items() if name not in self._left_out)

    def _compare(self, name: str, value: Any, state: Attributes) -> None:
        known = self._known.get(name)
        gone: list[Any] = []
        if isinstance(known, _Items) and type(value) is known.kind:
            changed, gone = known.changes(name, value)
            if not changed and not gone:
                return
            if name in self._stored and _are_keys(changed):
                state.items[name], state.gone[name] = changed, gone
                return
        elif isinstance(known, _Plain) and not _is_itemised(value):
            if known.changed(name, value):
                state.values[name] = value
                self._stored[name] = None
            return
        # New, of another kind, or not written so far: all of it.
        if known is not None:
            self._removed(name, state, gone)
        self._known[name] = known = _seen(name, value)
        self._stored[name] = None
        if isinstance(known, _Items):
            state.values.pop(name, None)
            state.dicts[name] = _emptied(value)
            state.items[name] = value
            state.gone[name] = [key for key in state.gone.get(name, ()) if key not in value]
        else:
            state.values[name] = value

    def _removed(self, name: str, state: Attributes, gone: Sequence[Any] = ()) -> None:
        known = self._known.pop(name)
        if name in self._stored:
            state.values[name] = GONE
            if isinstance(known, _Items):
                # Of a dict that has become one with keys that cannot be written, the others were.
                state.gone[name] = [key for key in (*known.keys(), *gone) if _are_keys({key: None})]


def _seen(name: str, value: Any) -> _Plain | _Items:
    return _Items(name, value) if _is_itemised(value) else _Plain(name, value)


def _is_itemised(value: Any) -> bool:
    return type(value) in _DICTS and _are_keys(value)


def _are_keys(items: dict[Any, Any]) -> bool:
    """Whether items can be told apart by bytes."""
    if _PLAIN_KEYS.issuperset(map(type, items)):
        return True
    try:
        encode_keys(list(items))
    except TypeError:
        return False
    return True


def _emptied(value: dict[Any, Any]) -> dict[Any, Any]:
    return defaultdict(value.default_factory) if isinstance(value, defaultdict) else type(value)()


class _Digest(bytes):
    """Of a pickle."""


def _digest(name: str, value: Any) -> _Digest:
    try:
        return _Digest(blake2b(dumps(value), digest_size=16).digest())
    except Exception as error:
        raise TypeError(
            f"the attribute {name!r} is part of a bolt's state and cannot be pickled: {error}; make it in prepare() "
            f"and name it in the class: transient = ({name!r},)"
        ) from error
