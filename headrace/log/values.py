"""The kinds of values of a topic: bytes, JSON, or rows of a schema. Converts records to columns and back."""

from __future__ import annotations

import datetime as dt
import json
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from headrace.log.errors import LogError
from headrace.log.partitions import TIMESTAMP
from headrace.model.times import instant

KEY, HEADERS, VALUE = "key", "headers", "value"

WATERMARK_KEY: Final = b"\0headrace-watermark\0"
"""What the keys of watermark records begin with, which have no value (see `watermarkrecords`)."""

_TYPES: Final[dict[str, pa.DataType]] = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}

_WRONG: Final = (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError, OverflowError)
"""What is raised for values that are not of a type."""

_LONGEST: Final = 60  # characters of a value in a message

# json.dumps would make an encoder for every value, and json.loads guess the encoding of its bytes.
_json: Final = json.JSONEncoder(allow_nan=False).encode
parse_json: Final[Callable[[str], Any]] = json.JSONDecoder().decode
"""Parses a text of JSON."""


@dataclass(frozen=True)
class Record:
    """A record as it is read: its place, its timestamp in microseconds, and its content."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: Any
    headers: Mapping[str, bytes]


@dataclass(frozen=True)
class Values:
    """The kind of a topic's values: "bytes", "json", or a schema such as "user string, url string, ts timestamp".

    >>> Values("user string, age int").schema().field("value").type
    StructType(struct<user: string, age: int32>)
    >>> Values("xml")
    Traceback (most recent call last):
        ...
    headrace.log.errors.LogError: values are "bytes", "json", or columns such as "user string, ts timestamp"; got 'xml'
    """

    kind: str = "json"

    def __post_init__(self) -> None:
        self.type()

    def type(self) -> pa.DataType:
        """Returns the Arrow type of the value column."""
        if self.kind in ("bytes", "json"):
            return pa.binary()
        columns = [column.split() for column in self.kind.split(",")]
        if any(len(column) != 2 for column in columns):
            raise LogError(
                f'values are "bytes", "json", or columns such as "user string, ts timestamp"; got {self.kind!r}'
            )
        if unknown := sorted({type.lower() for _, type in columns} - set(_TYPES)):
            raise LogError(f"a topic's columns cannot be {unknown[0]!r}; there are {', '.join(_TYPES)}")
        return pa.struct([(name, _TYPES[type.lower()]) for name, type in columns])

    def schema(self) -> pa.Schema:
        """Returns the Arrow schema of a segment."""
        headers = pa.map_(pa.string(), pa.binary())
        return pa.schema([(KEY, pa.binary()), (TIMESTAMP, pa.int64()), (HEADERS, headers), (VALUE, self.type())])

    def encode(self, values: Sequence[Any]) -> pa.Array:
        """Encodes values as a column; refuses values of another kind."""
        try:
            if self.kind == "json":
                return pa.array([_json(value).encode() for value in values], pa.binary())
            return pa.array(values, pa.binary()) if self.kind == "bytes" else self._rows(values)
        except _WRONG as error:
            raise LogError(f"a value is not {self.kind}: {error}") from None

    def _rows(self, values: Sequence[Mapping[str, Any]]) -> pa.StructArray:
        """Encodes rows as a column of structs; times may be text or seconds, as JSON has them."""
        fields = list(self.type())
        names = {field.name for field in fields}
        if unknown := {name for value in values for name in value} - names:
            raise ValueError(
                f"there is no column {_shown(min(unknown))}; there are {', '.join(field.name for field in fields)}"
            )
        columns = []
        for field in fields:
            column = [value.get(field.name) for value in values]
            try:
                columns.append(_column(column, field.type))
            except _WRONG:
                wrong = _first_wrong(column, field.type)
                raise ValueError(f"column {field.name!r} is {self._kind(field.name)}, got {_shown(wrong)}") from None
        return pa.StructArray.from_arrays(columns, fields=fields)

    def _kind(self, name: str) -> str:
        """Returns the declared type of a column, with its article."""
        kind = next(kind.lower() for each, kind in (column.split() for column in self.kind.split(",")) if each == name)
        return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"

    def decode(self, column: pa.Array) -> list[Any]:
        """Decodes the values of a column."""
        values: list[Any] = column.to_pylist()
        if self.kind != "json":
            return values
        return [None if value is None else parse_json(value.decode()) for value in values]

    def records(self, partition: int, offset: int, batch: pa.RecordBatch) -> list[Record]:
        """Decodes a record batch as records; watermark records are none."""
        columns = (
            batch.column(TIMESTAMP).to_pylist(),
            batch.column(KEY).to_pylist(),
            self.decode(batch.column(VALUE)),
            batch.column(HEADERS).to_pylist(),
        )
        return [
            Record(partition, offset + at, timestamp, key, value, dict(headers or ()))
            for at, (timestamp, key, value, headers) in enumerate(zip(*columns, strict=True))
            if value is not None or key is None or not key.startswith(WATERMARK_KEY)
        ]


def _column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Makes a column of values as JSON has them."""
    if pa.types.is_timestamp(kind):
        values = [None if value is None else instant(value) for value in values]
    elif pa.types.is_date(kind):
        values = [dt.date.fromisoformat(value) if isinstance(value, str) else value for value in values]
    if pa.types.is_integer(kind) or pa.types.is_date(kind):
        _refuse_fractions(values)
    return pa.array(values, kind)


def _first_wrong(values: Sequence[Any], kind: pa.DataType) -> Any:
    """Returns the first of values that cannot be in a column of this type, though one or more cannot: by bisection.

    >>> _first_wrong([1, 2, "x", 4, "y"], pa.int64())
    'x'
    """
    low, high = 0, len(values)
    while high - low > 1:
        middle = (low + high) // 2
        if _fit(values[low:middle], kind):
            low = middle
        else:
            high = middle
    return values[low]


def _fit(values: Sequence[Any], kind: pa.DataType) -> bool:
    """Returns whether values can be in a column of this type."""
    try:
        _column(values, kind)
    except _WRONG:
        return False
    return True


def _refuse_fractions(values: Sequence[Any]) -> None:
    """Refuses numbers that are not whole: Arrow would cut their fractions off without a word."""
    for value in values:
        if type(value) is float and not value.is_integer():
            raise ValueError(f"{value!r} is not whole")


def _shown(value: Any) -> str:
    """Shows a value, not all of a long or a deep one."""
    text = _brief.repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


_brief: Final = reprlib.Repr()
_brief.maxstring = _brief.maxlong = _brief.maxother = 4 * _LONGEST
