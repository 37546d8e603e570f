"""Reads schemas in DDL text, such as "user string, tags array<string>", as far as checks without Spark need them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from headrace.model.errors import PipelineError
from headrace.model.knowncolumns import nearest_name

_TYPES: Final[dict[str, pa.DataType | None]] = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ltz": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    # Types with parts or parameters, which nothing is checked by.
    **dict.fromkeys(
        ("decimal", "dec", "numeric", "char", "character", "varchar", "array", "map", "struct", "interval", "void"),
    ),
    **dict.fromkeys(("time", "variant", "geometry", "geography")),
}
_COLUMN: Final = re.compile(r"\s*(?:`((?:[^`]|``)+)`\s*:?\s*|(\w+)(?:\s*:\s*|\s+))([A-Za-z_]+)")
_PART: Final = re.compile(r"`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|.", re.DOTALL)


def ddl_columns(text: str) -> dict[str, pa.DataType | None]:
    """Returns the columns of a schema with their types, None for types with parts.

    >>> ddl_columns("user string, `n.o` long, tags array<struct<a: int, b: int>>")
    {'user': DataType(string), 'n.o': DataType(int64), 'tags': None}
    >>> ddl_columns("customer_id itn")
    Traceback (most recent call last):
        ...
    headrace.model.errors.PipelineError: the column 'customer_id' has the type 'itn', which does not exist; did \
you mean 'int'?
    """
    columns = {}
    for column in _split(text):
        match = _COLUMN.match(column)
        if match is None:
            raise PipelineError(f"a column is a name and a type, such as 'user string', got {column.strip()!r}")
        name, kind = match[2] or match[1].replace("``", "`"), match[3].lower()
        if kind not in _TYPES:
            near = nearest_name(kind, _TYPES)
            hint = (
                "; there are string, bigint, double, timestamp and more"
                if near is None
                else f"; did you mean {near!r}?"
            )
            raise PipelineError(f"the column {name!r} has the type {match[3]!r}, which does not exist{hint}")
        columns[name] = _TYPES[kind]
    return columns


def _split(text: str) -> Iterator[str]:
    """Splits at commas that are neither quoted nor in brackets."""
    depth, column = 0, ""
    for match in _PART.finditer(text):
        part = match[0]
        depth += (part in "<(") - (part in ">)")
        if part == "," and depth == 0:
            yield column
            column = ""
        else:
            column += part
    yield column
