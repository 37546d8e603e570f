"""Columns of tables: elements become typed columns, which a table has, or is made with.

What a value is, Arrow says; a column takes values of its own kind, and of kinds that lose nothing on the way. Others
are refused, with the column and the value.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, Literal

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator, TypeEngine

from headrace.edges.databases import DatabaseError

Kind = Literal["null", "boolean", "integer", "double", "decimal", "text", "binary", "timestamp", "date"]
"""What a column holds; "null" where all values are None."""


class ExactDecimal(TypeDecorator[Decimal]):
    """A decimal in SQLite, which has none: text, exact, and the same for equal ones."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        return None if value is None else format(value.normalize(), "f")


def columns_of(elements: Sequence[Any], parts: tuple[str, ...] | None) -> dict[str, list[Any]]:
    """The columns of elements; `parts` are the names of those of a plain tuple.

    >>> columns_of([{"a": 1}, {"b": 2}], None)
    {'a': [1, None], 'b': [None, 2]}
    >>> columns_of([("x", 1), ("y", 2)], ("word", "n"))
    {'word': ['x', 'y'], 'n': [1, 2]}
    """
    kinds = set(map(type, elements))
    names = getattr(kinds.pop(), "_fields", None) if len(kinds) == 1 and parts is None else None
    if names:  # all are tuples of these columns
        return {name: list(column) for name, column in zip(names, zip(*elements, strict=True), strict=True)}
    rows = [_named(element, parts) for element in elements]
    every = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in every}


def _named(element: Any, parts: tuple[str, ...] | None) -> Mapping[str, Any]:
    """An element's values by the names of its columns."""
    named: Mapping[str, Any] | None = None
    if isinstance(element, Mapping):
        named = element
    elif isinstance(element, tuple) and (names := getattr(element, "_fields", None)):
        named = dict(zip(names, element, strict=True))
    elif dataclasses.is_dataclass(element) and not isinstance(element, type):
        named = {field.name: getattr(element, field.name) for field in dataclasses.fields(element)}
    if named is None and parts is None:
        raise DatabaseError(
            f"the element {_shown(element)} has no names for its columns; give Rows, NamedTuples, dataclasses or dicts "
            "with columns, or say columns=[...]"
        )
    if named is not None:
        if parts is not None:
            raise DatabaseError(
                f"columns={list(parts)} names the parts of plain tuples, but the element {_shown(element)} has names "
                "of its own; leave it out"
            )
        if wrong := [name for name in named if not isinstance(name, str)]:
            raise DatabaseError(f"the name of a column is a text, got {wrong[0]!r} in {_shown(element)}")
        return named
    assert parts is not None
    values = element if isinstance(element, tuple) else (element,)
    if len(values) != len(parts):
        raise DatabaseError(f"columns={list(parts)} names {len(parts)} parts; {_shown(element)} has {len(values)}")
    return dict(zip(parts, values, strict=True))


def typed(name: str, values: Sequence[Any], kind: Kind | None = None) -> tuple[Kind, list[Any]]:
    """The values of a column as those of a kind; without one, of the kind they tell. Equal values are equal objects.

    >>> typed("n", [1, None], "double")
    ('double', [1.0, None])
    >>> typed("n", [1, 2.5], "integer")
    Traceback (most recent call last):
        ...
    headrace.edges.databases.DatabaseError: the column 'n' holds integer, got the float 2.5
    """
    try:
        natural = pa.array(values)
        found = kind_of(name, natural.type)
    except (TypeError, ValueError, OverflowError, pa.ArrowException):  # of several kinds, or of none
        wanted = kind or kind_of(name, pa.array([value for value in values if value is not None][:1]).type)
        raise _misfit(name, values, wanted) from None
    kind = kind or found
    if found != kind and found != "null" and (found, kind) not in _WIDENS:
        raise _misfit(name, values, kind)
    if kind == "timestamp":
        utc = pa.timestamp("us", tz="UTC")
        # Naive and aware ones may be mixed, which Arrow tells apart only if it knows what is wanted.
        return kind, (pa.array(values, utc) if found == kind else natural.cast(utc)).to_pylist()
    if kind == "double":
        floats = natural.cast(pa.float64()).to_pylist()
        return kind, [math.nan if value is not None and math.isnan(value) else value for value in floats]
    if (found, kind) == ("integer", "decimal"):
        return kind, [None if value is None else Decimal(value) for value in natural.to_pylist()]
    return kind, natural.to_pylist()


def _misfit(name: str, values: Sequence[Any], kind: Kind) -> DatabaseError:
    wrong = next((value for value in values if not _takes(kind, name, value)), values[0])
    return DatabaseError(f"the column {name!r} holds {kind}, got the {type(wrong).__name__} {_shown(wrong)}")


def _takes(kind: Kind, name: str, value: Any) -> bool:
    try:
        found = kind_of(name, pa.array([value]).type)
    except (TypeError, ValueError, OverflowError, DatabaseError, pa.ArrowException):
        return False
    return found in (kind, "null") or (found, kind) in _WIDENS


def kind_of(name: str, type: pa.DataType) -> Kind:
    """The kind of a column that holds values of an Arrow type.

    >>> kind_of("n", pa.int32()), kind_of("t", pa.timestamp("ns"))
    ('integer', 'timestamp')
    """
    for kind, tests in _TESTS.items():
        if any(test(type) for test in tests):
            return kind
    raise DatabaseError(
        f"the column {name!r} would hold {type}, for which there is no column; make it text (json.dumps, or to_json in "
        "Select), or columns of its own"
    )


def sql_type(name: str, kind: Kind) -> TypeEngine[Any]:
    """The type of a column that is made for values of a kind."""
    if kind == "null":
        raise DatabaseError(
            f"nobody knows the type of the column {name!r}: all its values are None; make the table before, or declare "
            "the elements' type"
        )
    return _MADE[kind]


def bound_type(name: str, kind: Kind, held: TypeEngine[Any], dialect: str) -> TypeEngine[Any]:
    """The type by which values of a kind go into a column of the type `held`; refused if it does not take them."""
    if kind == "null" or not isinstance(held, _KNOWN) or isinstance(held, sa.Enum):
        return held
    takers = _TAKERS[kind] + (_SQLITE_TAKERS.get(kind, ()) if dialect == "sqlite" else ())
    if not isinstance(held, takers):
        raise DatabaseError(
            f"the column {name!r} of the table is {held}, but elements have {kind}; convert them, or it"
        )
    return _MADE[kind]


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


_SHOWN: Final = 100  # characters of a value in a message
_WIDENS: Final = {("integer", "double"), ("integer", "decimal"), ("date", "timestamp")}
_TESTS: Final[dict[Kind, tuple[Callable[[pa.DataType], bool], ...]]] = {
    "null": (pa.types.is_null,),
    "boolean": (pa.types.is_boolean,),
    "integer": (pa.types.is_integer,),
    "double": (pa.types.is_floating,),
    "decimal": (pa.types.is_decimal,),
    "text": (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    "binary": (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view),
    "timestamp": (pa.types.is_timestamp,),
    "date": (pa.types.is_date,),
}
_MADE: Final[dict[Kind, TypeEngine[Any]]] = {
    "boolean": sa.Boolean(),
    "integer": sa.BigInteger(),
    "double": sa.Double(),
    "decimal": sa.Numeric().with_variant(ExactDecimal(), "sqlite"),
    "text": sa.Text(),
    "binary": sa.LargeBinary(),
    "timestamp": sa.DateTime(timezone=True),
    "date": sa.Date(),
}
_Types = tuple[type[TypeEngine[Any]], ...]
_NUMBERS: Final[_Types] = (sa.Numeric, sa.Float)
# Columns of tables that were there take these kinds. Of a type that is none of these, the database says what it takes.
_TAKERS: Final[dict[Kind, _Types]] = {
    "boolean": (sa.Boolean,),
    "integer": (sa.Integer, *_NUMBERS),
    "double": _NUMBERS,
    "decimal": _NUMBERS,
    "text": (sa.String,),
    "binary": (sa.LargeBinary,),
    "timestamp": (sa.DateTime,),
    "date": (sa.Date, sa.DateTime),
}
_SQLITE_TAKERS: Final[dict[Kind, _Types]] = {  # which has no types of its own for them
    "boolean": (sa.Integer,),
    "decimal": (sa.String,),
    "timestamp": (sa.String,),
    "date": (sa.String,),
}
_KNOWN: Final[_Types] = (sa.Boolean, sa.Integer, *_NUMBERS, sa.String, sa.LargeBinary, sa.DateTime, sa.Date)
