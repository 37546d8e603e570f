"""The layout of a view's rows: the types of its keys and of its stored accumulators. Batch, speed and stores share it.

Rows of a store are (place, accumulators). A place is a tuple of text, bytes and integers, in the order in which stores
sort: the keys, a bitmap of the keys that are null, and the window's start and end. A null key is stored as the zero of
its type, with its bit set.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

from headrace.model.agg import Aggregation
from headrace.model.algebra import CombineFn, CountFn, SumFn
from headrace.model.safebytes import decode, encode
from headrace.model.times import SECOND, instant
from headrace.views.errors import ViewError

Place = tuple[Any, ...]
"""The primary key of a row: keys, bitmap of nulls, window start, window end."""
Stored = tuple[Any, ...]
"""The stored accumulators of a row: int, float (None for NaN) or bytes."""

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,47}")
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_INT64: Final = 2**63


class Partial(NamedTuple):
    """The partial aggregates of some events for one key and window: accumulators as `CombineFn.dump` returns them.

    >>> Partial(("foo.com",), 0, 3_600_000_000, (2,)).accumulators
    (2,)
    """

    key: tuple[Any, ...]
    start: int
    end: int
    accumulators: tuple[Any, ...]


class KeyType(NamedTuple):
    """A type of keys: the Python type of its values, the stored type, and the zero that stands for null."""

    name: str
    python: type
    stored: type
    zero: Any


_KEY_TYPES: Final = {
    each.name: each
    for each in (
        KeyType("string", str, str, ""),
        KeyType("bigint", int, int, 0),
        KeyType("boolean", bool, int, 0),
        KeyType("date", dt.date, int, 0),  # days since the epoch
        KeyType("timestamp", dt.datetime, int, 0),  # microseconds, as all times inside
        KeyType("binary", bytes, bytes, b""),
    )
}
_INTEGERS: Final = ("tinyint", "smallint", "int", "integer", "bigint", "long")
_FLOATING: Final = ("float", "real", "double")


@dataclass(frozen=True)
class Layout:
    """The columns of a view: keys with their types, and aggregations with the kind of column that stores each.

    >>> import headrace as hr
    >>> hits = Layout.of("hits", keys={"url": "string"}, aggregations={"n": hr.count(), "people":
    ...     hr.approx_distinct("user")})
    >>> hits.kinds
    ('bigint', 'bytes')
    >>> hits.place(("foo.com",), 0, 60), hits.place((None,), 0, 60)
    (('foo.com', 0, 0, 60), ('', 1, 0, 60))
    """

    name: str
    keys: tuple[str, ...]
    types: tuple[KeyType, ...]
    aggregations: tuple[str, ...]
    fns: tuple[CombineFn[Any, Any, Any], ...]
    kinds: tuple[str, ...]
    window: str

    @staticmethod
    def of(
        name: str,
        *,
        keys: Mapping[str, str],
        aggregations: Mapping[str, Aggregation],
        columns: Mapping[str, str] | None = None,
        window: object = "",
    ) -> Layout:
        """Makes a layout. `columns` has the types of the aggregated columns: a sum of integers is an integer."""
        for each in (name, *keys, *aggregations):
            check_name(each)
        if len({each.lower() for each in (*keys, *aggregations)}) < len(keys) + len(aggregations):
            raise ViewError(f"view {name!r}: columns must differ by more than case, got {[*keys, *aggregations]}")
        columns = columns or {}
        return Layout(
            name,
            tuple(keys),
            tuple(_key_type(name, key, declared) for key, declared in keys.items()),
            tuple(aggregations),
            tuple(each.fn for each in aggregations.values()),
            tuple(_kind(each, columns.get(each.column or "")) for each in aggregations.values()),
            str(window),
        )

    def fingerprint(self) -> str:
        """Returns a text that is equal for layouts whose rows may be merged."""
        fns = dict(zip(self.aggregations, map(repr, self.fns), strict=True))
        types = dict(zip(self.keys, (each.name for each in self.types), strict=True))
        return json.dumps({"keys": types, "aggregations": fns, "kinds": self.kinds, "window": self.window})

    def place(self, key: Sequence[Any], start: int, end: int) -> Place:
        """Returns the place of the row of a key and window."""
        if len(key) != len(self.keys):
            raise ViewError(f"view {self.name!r}: a key has {len(self.keys)} parts, {list(self.keys)}; got {key!r}")
        stored = [self.stored_key(position, value) for position, value in enumerate(key)]
        nulls = sum(1 << position for position, value in enumerate(key) if value is None)
        return (*stored, nulls, start, end)

    def stored_key(self, position: int, value: Any) -> Any:
        """Converts one part of a key to its stored form."""
        kind = self.types[position]
        if value is None:
            return kind.zero
        if kind.name == "timestamp" and not isinstance(value, bool):
            try:
                return instant(value)
            except (TypeError, ValueError):
                pass
        elif type(value) is kind.python and _is_storable(value):
            return _TO_STORED[kind.name](value)
        raise ViewError(f"view {self.name!r}: the key {self.keys[position]!r} is a {kind.name}, got {value!r}")

    def key(self, place: Place) -> tuple[Any, ...]:
        """Returns the key of a place, as users see it."""
        nulls = place[len(self.keys)]
        return tuple(
            None if nulls >> position & 1 else _FROM_STORED[kind.name](stored)
            for position, (kind, stored) in enumerate(zip(self.types, place, strict=False))
        )

    def is_place(self, value: object) -> bool:
        """Returns whether a value that came from outside is a place of this layout."""
        kinds = (*(each.stored for each in self.types), int, int, int)
        return isinstance(value, tuple) and tuple(map(type, value)) == kinds and all(map(_is_storable, value))

    def stored(self, accumulators: Sequence[Any]) -> Stored:
        """Converts dumped accumulators to their stored form."""
        return tuple(map(self._stored, self.kinds, self.aggregations, accumulators))

    def load(self, stored: Stored) -> list[Any]:
        """Loads the accumulators of a stored row."""
        return [
            fn.load(decode(value) if kind == "bytes" else math.nan if value is None else value)
            for fn, kind, value in zip(self.fns, self.kinds, stored, strict=True)
        ]

    def merge(self, a: list[Any], b: list[Any]) -> list[Any]:
        """Merges two rows of accumulators; may change the first."""
        return [fn.merge(left, right) for fn, left, right in zip(self.fns, a, b, strict=True)]

    def dump(self, accumulators: list[Any]) -> Stored:
        """Dumps accumulators to their stored form."""
        return self.stored([fn.dump(each) for fn, each in zip(self.fns, accumulators, strict=True)])

    def finish(self, accumulators: list[Any]) -> dict[str, Any]:
        """Finishes accumulators; returns the results by the names of the aggregations."""
        finished = (fn.finish(each) for fn, each in zip(self.fns, accumulators, strict=True))
        return dict(zip(self.aggregations, finished, strict=True))

    def approximate(self, accumulators: list[Any]) -> tuple[str, ...]:
        """Returns the names of the aggregations whose results are approximate."""
        return tuple(
            self.aggregations[position]
            for position in self._inexact
            if not self.fns[position].is_exact(accumulators[position])
        )

    @cached_property
    def _inexact(self) -> tuple[int, ...]:
        """The positions of the aggregations that may have approximate results."""
        return tuple(at for at, fn in enumerate(self.fns) if type(fn).is_exact is not CombineFn.is_exact)

    def position(self, key: str) -> int:
        """Returns the position of a key by its name."""
        if key not in self.keys:
            raise ViewError(f"view {self.name!r} has no key {key!r}; there are {', '.join(self.keys) or 'none'}")
        return self.keys.index(key)

    def aggregation(self, name: str) -> int:
        """Returns the position of an aggregation by its name."""
        if name not in self.aggregations:
            raise ViewError(f"view {self.name!r} has no aggregation {name!r}; there are {', '.join(self.aggregations)}")
        return self.aggregations.index(name)

    def _stored(self, kind: str, name: str, value: Any) -> Any:
        if kind == "bytes":
            return encode(value)
        if kind == "bigint":
            if type(value) is int and -_INT64 <= value < _INT64:
                return value
            raise ViewError(f"view {self.name!r}: {name!r} must be an integer of 64 bits, got {value!r}")
        return None if math.isnan(value) else float(value)  # SQLite stores no NaN


def check_name(name: object) -> None:
    """Refuses names that are not plain words, which stores, URLs and SQL all accept.

    >>> check_name("visits; drop table x")
    Traceback (most recent call last):
        ...
    headrace.views.errors.ViewError: names of topics, views and their columns are letters, digits and _, at most 48, \
and begin with a letter; got 'visits; drop table x'
    """
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise ViewError(
            "names of topics, views and their columns are letters, digits and _, at most 48, and begin with a letter; "
            f"got {name!r}"
        )


def _key_type(view: str, key: str, declared: str) -> KeyType:
    name = "bigint" if declared.lower() in _INTEGERS else declared.lower()
    if name not in _KEY_TYPES:
        raise ViewError(
            f"view {view!r}: the key {key!r} is a {declared}; keys are {', '.join(_KEY_TYPES)}: "
            "turn it into one of them with Select first"
        )
    return _KEY_TYPES[name]


def _kind(aggregation: Aggregation, column: str | None) -> str:
    if isinstance(aggregation.fn, CountFn):
        return "bigint"
    if isinstance(aggregation.fn, SumFn) and column is not None:
        return "bigint" if column.lower() in _INTEGERS else "double" if column.lower() in _FLOATING else "bytes"
    return "bytes"


def _is_storable(value: Any) -> bool:
    """Returns whether stores accept a value: integers have 64 bits, and text has no lone surrogates."""
    if type(value) is int:
        return -_INT64 <= value < _INT64
    if type(value) is str and not value.isascii():
        return not any("\ud800" <= letter <= "\udfff" for letter in value)
    return True


def _escape(text: str) -> str:
    """Escapes NUL, which PostgreSQL does not accept, such that the order of texts and their prefixes stay."""
    if "\0" not in text and "\1" not in text:
        return text
    return text.replace("\1", "\1\2").replace("\0", "\1\1")


def _unescape(text: str) -> str:
    return text.replace("\1\1", "\0").replace("\1\2", "\1") if "\1" in text else text


def _identity(value: Any) -> Any:
    return value


_TO_STORED: Final[dict[str, Callable[[Any], Any]]] = {
    "string": _escape,
    "bigint": _identity,
    "boolean": int,
    "date": lambda date: (date - _EPOCH.date()).days,
    "binary": _identity,
}
_FROM_STORED: Final[dict[str, Callable[[Any], Any]]] = {
    "string": _unescape,
    "bigint": _identity,
    "boolean": bool,
    "date": lambda days: _EPOCH.date() + dt.timedelta(days),
    "timestamp": lambda time: _EPOCH + dt.timedelta(seconds=time // SECOND, microseconds=time % SECOND),
    "binary": bytes,
}
