"""Converts elements to typed columns of tables, and maps their kinds to SQL types.

Arrow infers the kind of a value. A column takes values of its own kind, and of kinds that convert without loss. Others
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
"""The kind of a column's values; "null" if all of them are None."""


class ExactDecimal(TypeDecorator[Decimal]):
    """A decimal column in SQLite, which has no such type: exact text, equal for equal decimals."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        return None if value is None else format(value.normalize(), "f")


def element_columns(elements: Sequence[Any], parts: tuple[str, ...] | None) -> dict[str, list[Any]]:
    """Returns the columns of elements, by name; `parts` names the parts of plain tuples.

    >>> element_columns([{"a": 1}, {"b": 2}], None)
    {'a': [1, None], 'b': [None, 2]}
    >>> element_columns([("x", 1), ("y", 2)], ("word", "n"))
    {'word': ['x', 'y'], 'n': [1, 2]}
    """
    kinds = set(map(type, elements))
    names = getattr(next(iter(kinds)), "_fields", None) if len(kinds) == 1 and parts is None else None
    if parts is not None and kinds == {tuple} and set(map(len, elements)) == {len(parts)}:
        names = parts
    if names:  # all elements are tuples with these fields
        return {name: list(column) for name, column in zip(names, zip(*elements, strict=True), strict=True)}
    rows = [_named(element, parts) for element in elements]
    every = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in every}


def _named(element: Any, parts: tuple[str, ...] | None) -> Mapping[str, Any]:
    """Returns an element's values by the names of its columns."""
    named: Mapping[str, Any] | None = None
    if isinstance(element, Mapping):
        named = element
    elif isinstance(element, tuple) and (names := getattr(element, "_fields", None)):
        named = dict(zip(names, element, strict=True))
    elif dataclasses.is_dataclass(element) and not isinstance(element, type):
        named = {field.name: getattr(element, field.name) for field in dataclasses.fields(element)}
    if named is None and parts is None:
        raise DatabaseError(
            f"the element {_shortened(element)} has no names for its columns; write Rows, NamedTuples, dataclasses or "
            "dicts, or name them with columns=[...]"
        )
    if named is not None:
        if parts is not None:
            raise DatabaseError(
                f"columns={list(parts)} names the parts of plain tuples, but the element {_shortened(element)} has "
                "names of its own; leave columns out"
            )
        if wrong := [name for name in named if not isinstance(name, str)]:
            raise DatabaseError(f"the name of a column must be a str, got {wrong[0]!r} in {_shortened(element)}")
        return named
    assert parts is not None
    values = element if isinstance(element, tuple) else (element,)
    if len(values) != len(parts):
        raise DatabaseError(
            f"columns={list(parts)} names {len(parts)} parts, but {_shortened(element)} has {len(values)}"
        )
    return dict(zip(parts, values, strict=True))


def converted(name: str, values: Sequence[Any], kind: Kind | None = None) -> tuple[Kind, list[Any]]:
    """Converts the values of a column to a kind, by default to the kind that Arrow infers; equal values become equal.

    >>> converted("n", [1, None], "double")
    ('double', [1.0, None])
    >>> converted("n", [1, 2.5], "integer")
    Traceback (most recent call last):
        ...
    headrace.edges.databases.DatabaseError: the column 'n' holds integer, got the float 2.5
    """
    try:
        inferred = pa.array(values)
        inferred_kind = column_kind(name, inferred.type)
    except (TypeError, ValueError, OverflowError, pa.ArrowException):  # values of several kinds, or of an unknown one
        wanted = kind or column_kind(name, pa.array([value for value in values if value is not None][:1]).type)
        raise _mismatch(name, values, wanted) from None
    kind = kind or inferred_kind
    if inferred_kind not in (kind, "null") and (inferred_kind, kind) not in _WIDENS:
        raise _mismatch(name, values, kind)
    if kind == "timestamp":
        utc = pa.timestamp("us", tz="UTC")
        # Naive and aware times may be mixed; Arrow converts such a mixture only to a type that it is told.
        return kind, (pa.array(values, utc) if inferred_kind == kind else inferred.cast(utc)).to_pylist()
    if kind == "double":
        floats = inferred.cast(pa.float64()).to_pylist()
        return kind, [math.nan if value is not None and math.isnan(value) else value for value in floats]
    if (inferred_kind, kind) == ("integer", "decimal"):
        return kind, [None if value is None else Decimal(value) for value in inferred.to_pylist()]
    return kind, inferred.to_pylist()


def _mismatch(name: str, values: Sequence[Any], kind: Kind) -> DatabaseError:
    wrong = next((value for value in values if not _takes(kind, name, value)), values[0])
    return DatabaseError(f"the column {name!r} holds {kind}, got the {type(wrong).__name__} {_shortened(wrong)}")


def _takes(kind: Kind, name: str, value: Any) -> bool:
    try:
        inferred_kind = column_kind(name, pa.array([value]).type)
    except (TypeError, ValueError, OverflowError, DatabaseError, pa.ArrowException):
        return False
    return inferred_kind in (kind, "null") or (inferred_kind, kind) in _WIDENS


def column_kind(name: str, type: pa.DataType) -> Kind:
    """Returns the kind of a column with values of an Arrow type.

    >>> column_kind("n", pa.int32()), column_kind("t", pa.timestamp("ns"))
    ('integer', 'timestamp')
    """
    for kind, tests in _TESTS.items():
        if any(test(type) for test in tests):
            return kind
    raise DatabaseError(
        f"the column {name!r} would hold {type}, which no column of a table can hold; convert it to text (json.dumps, "
        "or to_json in Select), or to several columns"
    )


def sql_type(name: str, kind: Kind) -> TypeEngine[Any]:
    """Returns the type of a new column for values of a kind."""
    if kind == "null":
        raise DatabaseError(
            f"the type of the column {name!r} is unknown, since all its values are None; create the table first, or "
            "declare the type of the elements"
        )
    return _SQL_TYPES[kind]


def bound_type(name: str, kind: Kind, column: TypeEngine[Any], dialect: str) -> TypeEngine[Any]:
    """Returns the type by which values of a kind are bound to a column of a table. Refuses a column that takes none."""
    if kind == "null" or not isinstance(column, _KNOWN) or isinstance(column, sa.Enum):
        return column
    takers = _TAKERS[kind] + (_SQLITE_TAKERS.get(kind, ()) if dialect == "sqlite" else ())
    if not isinstance(column, takers):
        raise DatabaseError(
            f"the column {name!r} of the table is {column}, but elements have {kind}; convert the values, or alter the "
            "column"
        )
    return _SQL_TYPES[kind]


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 1]}…"


_LONGEST_TEXT: Final = 100  # characters of a value in a message
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
_SQL_TYPES: Final[dict[Kind, TypeEngine[Any]]] = {
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
# The types of existing columns that take values of a kind. What columns of other types take, the database decides.
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
_SQLITE_TAKERS: Final[dict[Kind, _Types]] = {  # SQLite has no types of its own for these kinds
    "boolean": (sa.Integer,),
    "decimal": (sa.String,),
    "timestamp": (sa.String,),
    "date": (sa.String,),
}
_KNOWN: Final[_Types] = (sa.Boolean, sa.Integer, *_NUMBERS, sa.String, sa.LargeBinary, sa.DateTime, sa.Date)
