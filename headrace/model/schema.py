"""Schemas: convert elements to columns, and columns back to the Python objects that they were.

A schema is read from a type: a NamedTuple, a frozen or plain dataclass, tuple[str, int], or one plain type. Other types
(a list of mixed values, Any, a class) have no schema; their elements are pickled.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import types
import typing
from collections import namedtuple
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter, itemgetter
from typing import Any, ClassVar, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

ROWS: Final = "rows"
"""The element type of a collection whose columns only Spark knows; its elements are Rows."""

_PLAIN: dict[object, pa.DataType] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
    dt.datetime: pa.timestamp("us", tz="UTC"),
    dt.date: pa.date32(),
}

UTC_TIMES: Final = pa.timestamp("us", tz="UTC")
FIRST_MICRO, LAST_MICRO = (
    (instant - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)
    for instant in (dt.datetime.min, dt.datetime.max)
)


@dataclass(frozen=True)
class Schema:
    """The names and Arrow types of an element's columns, and how an element is made from them.

    >>> schema_of(tuple[str, int]).names
    ('_1', '_2')
    """

    names: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    kind: Literal["value", "tuple", "named", "dataclass"]
    cls: type | None = None

    def to_columns(self, elements: Sequence[Any]) -> list[pa.Array]:
        """Converts elements to columns: one Arrow array per column."""
        return [pa.array(values, kind) for values, kind in zip(self.parts(elements), self.types, strict=True)]

    def to_elements(self, columns: Sequence[pa.Array]) -> list[Any]:
        """Converts columns back to the elements that `to_columns` got."""
        return self.of_parts([column_values(column) for column in columns])

    def parts(self, elements: Sequence[Any]) -> list[Sequence[Any]]:
        """Takes elements apart: gives the objects of each column."""
        if self.kind == "value":
            return [elements]
        if self.kind == "dataclass":
            return [list(map(attrgetter(name), elements)) for name in self.names]
        if wrong := set(map(len, elements)) - {len(self.names)}:
            raise ValueError(f"an element has {wrong.pop()} parts, the declared type has {len(self.names)}")
        return [list(map(itemgetter(part), elements)) for part in range(len(self.names))]

    def of_parts(self, parts: Sequence[list[Any]]) -> list[Any]:
        """Makes elements of the objects of each column."""
        if self.kind == "value":
            return list(parts[0])
        if self.kind == "tuple":
            return list(zip(*parts, strict=True))
        assert self.cls is not None
        if self.kind == "dataclass":
            return list(map(self.cls, *parts))
        make: Any = self.cls if issubclass(self.cls, Row) else self.cls._make  # type: ignore[attr-defined]
        return list(map(make, zip(*parts, strict=True)))


def column_values(column: pa.Array) -> list[Any]:
    """Converts a column to what its `to_pylist` gives, timestamps of UTC thirty times as fast.

    >>> column_values(pa.array([0, None], pa.timestamp("us", tz="UTC")))
    [datetime.datetime(1970, 1, 1, 0, 0, tzinfo=zoneinfo.ZoneInfo(key='UTC')), None]
    """
    kind = column.type
    if kind == UTC_TIMES:
        return _utc_values(column)
    numbers = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    values: list[Any] = column.to_numpy().tolist() if numbers and not column.null_count else column.to_pylist()
    return values


def _utc_values(column: pa.TimestampArray) -> list[Any]:
    micros = column.view(pa.int64())
    bounds = pc.min_max(micros).as_py()
    if bounds["min"] is None or not FIRST_MICRO <= bounds["min"] <= bounds["max"] <= LAST_MICRO:
        return column.to_pylist()  # type: ignore[no-any-return]  # nulls only, or times that Python does not have
    values: list[Any] = list(map(_epoch().__add__, micros.fill_null(0).to_numpy().view("m8[us]").tolist()))
    if micros.null_count:
        for position in np.flatnonzero(micros.is_null().to_numpy(zero_copy_only=False)).tolist():
            values[position] = None
    return values


@lru_cache
def _epoch() -> dt.datetime:
    """Returns the epoch, in the time zone that pyarrow gives; for which pyarrow imports pandas."""
    epoch: dt.datetime = pa.scalar(0, UTC_TIMES).as_py()
    return epoch


def schema_of(element_type: object) -> Schema | None:
    """Returns the schema of elements of this type, or None if they have no columns.

    >>> schema_of(int).names, schema_of(list), schema_of(None)
    (('value',), None, None)
    """
    if isinstance(element_type, Schema):
        return element_type
    plain = arrow_type(element_type)
    if plain is not None:
        return Schema(("value",), (plain,), "value")
    if typing.get_origin(element_type) is tuple:
        parts = typing.get_args(element_type)
        if not parts or Ellipsis in parts:
            return None
        return _schema([f"_{i + 1}" for i in range(len(parts))], parts, "tuple", None)
    if isinstance(element_type, type) and issubclass(element_type, tuple) and hasattr(element_type, "_fields"):
        hints = _hints(element_type)
        return _schema(element_type._fields, [hints.get(name) for name in element_type._fields], "named", element_type)
    if isinstance(element_type, type) and dataclasses.is_dataclass(element_type):
        hints = _hints(element_type)
        names = [field.name for field in dataclasses.fields(element_type)]
        return _schema(names, [hints.get(name) for name in names], "dataclass", element_type)
    return None


def arrow_type(hint: object) -> pa.DataType | None:
    """Returns the Arrow type of a column with this type hint, or None if there is none.

    >>> arrow_type(list[int])
    ListType(list<item: int64>)
    """
    if isinstance(hint, pa.DataType):
        return hint
    try:
        if hint in _PLAIN:
            return _PLAIN[hint]
    except TypeError:
        return None
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is list and (inner := arrow_type(args[0])) is not None:
        return pa.list_(inner)
    if origin in (typing.Union, types.UnionType) and len(args) == 2 and type(None) in args:
        return arrow_type(args[0] if args[1] is type(None) else args[1])
    return None


def _schema(names: Sequence[str], hints: Sequence[object], kind: Any, cls: type | None) -> Schema | None:
    columns = [arrow_type(hint) for hint in hints]
    if not columns or any(column is None for column in columns):
        return None
    return Schema(tuple(names), tuple(columns), kind, cls)


def _hints(cls: object) -> dict[str, Any]:
    try:
        return typing.get_type_hints(cls)
    except Exception:  # a forward reference that cannot be resolved: no schema, not an error
        return {}


def rows_schema(arrow: pa.Schema) -> Schema:
    """Returns the schema of Rows with these columns.

    >>> rows_schema(pa.schema({"user": pa.string(), "n": pa.int64()})).to_elements([pa.array(["a"]), pa.array([1])])
    [Row(user='a', n=1)]
    """
    return Schema(tuple(arrow.names), tuple(arrow.types), "named", row_type(tuple(arrow.names)))


class Row(tuple[Any, ...]):
    """An element of a collection with columns: a tuple whose parts have the names of the columns.

    >>> import headrace as hr
    >>> with hr.Pipeline() as p:
    ...     rows = p | hr.Create([("ann", 3)]) | hr.Select(user="_1", score="_2") | hr.Collect()
    >>> (row,) = rows
    >>> row, row.user, row[1]
    (Row(user='ann', score=3), 'ann', 3)
    """

    __slots__ = ()
    _fields: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def _make(cls, values: Iterable[Any]) -> Row:
        return tuple.__new__(cls, values)

    def _asdict(self) -> dict[str, Any]:
        return dict(zip(self._fields, self, strict=True))

    def __repr__(self) -> str:
        return f"Row({', '.join(f'{name}={value!r}' for name, value in self._asdict().items())})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _row, (self._fields, tuple(self))


@lru_cache(maxsize=1024)
def row_type(names: tuple[str, ...]) -> type[Row]:
    """Returns the class of the Rows with these fields."""
    named: Any = namedtuple
    numbered = named("numbered", [f"part{position}" for position in range(len(names))])
    getters = [vars(numbered)[part] for part in numbered._fields]  # in C, and the quickest that Python has
    return type("Row", (Row,), {**dict(zip(names, getters, strict=True)), "_fields": names, "__slots__": ()})


def _row(names: tuple[str, ...], values: tuple[object, ...]) -> Row:
    return row_type(names)._make(values)


def return_type(fn: Callable[..., Any]) -> object:
    """Returns the declared return type of a function, or None; the return type of a class is the class itself."""
    if isinstance(fn, type):
        return fn if fn in _PLAIN or schema_of(fn) is not None else None
    return _none_if_any(_hints(fn).get("return"))


def item_type(hint: object) -> object:
    """Returns the type of the items of an iterable type, int for `Iterator[int]`; None if it is not declared.

    >>> item_type(list[str])
    <class 'str'>
    >>> item_type(list[str] | None)
    <class 'str'>
    """
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        members = [arg for arg in args if arg is not type(None)]
        return item_type(members[0]) if len(members) == 1 else None
    return _none_if_any(args[0]) if args and origin is not tuple else None


def _none_if_any(hint: object) -> object:
    """Returns the hint, or None for Any, which says as little as no hint."""
    return None if hint is Any else hint


def pair_types(element_type: object) -> tuple[object, object] | None:
    """Returns the types of key and value of pairs, or None if the type is not that of pairs.

    >>> pair_types(tuple[str, int])
    (<class 'str'>, <class 'int'>)
    """
    args = typing.get_args(element_type)
    if typing.get_origin(element_type) is tuple and len(args) == 2 and Ellipsis not in args:
        return args[0], args[1]
    return None


def common_type(elements: Sequence[Any]) -> object:
    """Returns the type that all elements have in common, if it has columns: a plain type, a tuple of them; else None.

    >>> common_type([("a", 1), ("b", 2)])
    tuple[str, int]
    """
    kinds = set(map(type, elements))
    if len(kinds) != 1:
        return None
    kind = kinds.pop()
    if kind is tuple:
        widths = {len(element) for element in elements}
        if len(widths) != 1 or widths == {0}:
            return None
        parts = [common_type(part) for part in zip(*elements, strict=True)]
        return None if None in parts else types.GenericAlias(tuple, tuple(parts))
    if kind is int:
        return int if all(-(2**63) <= element < 2**63 for element in elements) else None
    if kind is dt.datetime:
        return None  # a naive datetime and its zone would not survive a timestamp column
    return kind if kind in _PLAIN or schema_of(kind) is not None else None
