"""Decodes and encodes rows in Avro, by fastavro, and converts between Avro's schemas and Arrow's.

Of unions, only those of null and one other type are columns.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import pyarrow as pa

from headrace.edges.registryclient import RegisteredSchema
from headrace.edges.schemaguards import FieldCount, contains_itself
from headrace.model.errors import PipelineError

_PRIMITIVES: Final = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
_LOGICAL: Final = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("ms", tz="UTC"),
    "timestamp-micros": pa.timestamp("us", tz="UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
}
_NAME: Final = re.compile("[A-Za-z_][A-Za-z0-9_]*")


class AvroValues:
    """Decodes and encodes rows by an Avro schema. With `reader`, decoded rows are resolved to that schema.

    `element` is the name of the only column of a schema that is no record, as those of keys often are.

    >>> text = '{"type": "record", "name": "Visit", "fields": [{"name": "user", "type": "string"}]}'
    >>> values = AvroValues(RegisteredSchema(1, "avro", text))
    >>> values.column("user")
    pyarrow.Field<user: string not null>
    >>> values.decode(values.encode({"user": "ann"}))
    {'user': 'ann'}
    """

    def __init__(
        self, schema: RegisteredSchema, reader: RegisteredSchema | None = None, element: str = "value"
    ) -> None:
        self._avro, self._element = _package(), element
        self._parsed, self._named = _parse(schema)
        self._reader = None if reader is None or reader == schema else _parse(reader)[0]
        self._is_record = isinstance(self._parsed, dict) and self._parsed["type"] == "record"
        self._read = _deep_reader() if contains_itself(self._parsed, self._named) else self._avro.schemaless_reader
        self._count, self._columns = FieldCount(), dict[str, pa.Field]()
        self._fields = self._parsed["fields"] if self._is_record else [{"name": element, "type": self._parsed}]

    def names(self) -> list[str]:
        """Returns the names of the fields."""
        return [each["name"] for each in self._fields]

    def column(self, name: str) -> pa.Field | None:
        """Returns the column of a field, or None if there is no such field. Raises TypeError if no column can be it."""
        for each in self._fields if name not in self._columns else ():
            if each["name"] == name:
                self._columns[name] = _field(name, each["type"], self._named, (), self._count)
        return self._columns.get(name)

    def required(self) -> set[str]:
        """Returns the names of fields that have no default."""
        return {each["name"] for each in self._fields if "default" not in each}

    def decode(self, data: bytes) -> dict[str, Any]:
        """Decodes a row. Raises an exception if the bytes are not of the schema, or are more than that."""
        stream = io.BytesIO(data)
        value: Any = self._read(stream, self._parsed, self._reader)
        if left := len(data) - stream.tell():
            raise ValueError(f"it has {left} bytes after its end")
        return value if self._is_record else {self._element: value}

    def encode(self, row: Mapping[str, Any]) -> bytes:
        """Encodes a row; fields that are missing get their defaults."""
        stream = io.BytesIO()
        self._avro.schemaless_writer(stream, self._parsed, row if self._is_record else row[self._element])
        return stream.getvalue()


def avro_schema(name: str, columns: pa.Schema) -> str:
    """Returns the schema for rows of these columns: a record of this name, whose fields may all be null.

    >>> avro_schema("hits", pa.schema([("url", pa.string())]))
    '{"type": "record", "name": "hits", "fields": [{"name": "url", "type": ["null", "string"], "default": null}]}'
    """
    return json.dumps(_record(re.sub("[^A-Za-z0-9_]", "_", re.sub("^(?=[0-9])", "_", name)), columns))


def avro_key_schema(column: pa.Field) -> str:
    """Returns the schema for keys of this column, which are never null.

    >>> avro_key_schema(pa.field("n", pa.int64()))
    '"long"'
    """
    if pa.types.is_nested(column.type):
        raise TypeError(f"the key {column.name!r} is {column.type}, but a key is text or a number; choose another")
    return json.dumps(_avro_type(column.name, column.name, column.type))


def _package() -> Any:
    """Imports fastavro. Refuses if it is not installed."""
    try:
        import fastavro
    except ImportError:
        raise PipelineError("format='avro' needs fastavro; install it with pip install 'headrace[registry]'") from None
    return fastavro


def _deep_reader() -> Any:
    """Returns fastavro's reader in Python. It is slow, but Python limits how deeply the values of a record nest."""
    from fastavro import _read_py

    return _read_py.schemaless_reader


def _parse(schema: RegisteredSchema) -> tuple[Any, dict[str, Any]]:
    """Returns a parsed schema, and the types that have names."""
    fastavro = _package()
    names: dict[str, Any] = {}
    for _, text in schema.references:
        fastavro.parse_schema(_plain(json.loads(text)), names)
    return fastavro.parse_schema(_plain(json.loads(schema.text)), names), names


def _plain(schema: Any) -> Any:
    """Returns a schema without the logical types that no column has, such as UUIDs, which stay text."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    known = schema.get("logicalType") in (*_LOGICAL, "decimal")
    return {
        name: _plain(part) if name in ("type", "items", "values") else _plain_fields(part) if name == "fields" else part
        for name, part in schema.items()
        if known or name != "logicalType"
    }


def _plain_fields(fields: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**field, "type": _plain(field["type"])} for field in fields]


def _field(name: str, schema: Any, names: Mapping[str, Any], path: tuple[str, ...], count: FieldCount) -> pa.Field:
    """Returns the column of a field; `path` has the names of the records that it is in."""
    if isinstance(schema, list):
        others = [each for each in schema if each != "null"]
        if len(others) != 1:
            raise TypeError(f"{name!r} is a union of {len(others)} types, which is no column")
        return _field(name, others[0], names, path, count).with_nullable(True)
    return pa.field(name, _type(name, schema, names, path, count), nullable=schema == "null")


def _type(name: str, schema: Any, names: Mapping[str, Any], path: tuple[str, ...], count: FieldCount) -> pa.DataType:
    if isinstance(schema, str) and schema in names:
        schema = names[schema]
    if isinstance(schema, str):
        schema = {"type": schema}
    kind, logical = schema["type"], schema.get("logicalType")
    if logical == "decimal":
        return pa.decimal128(schema["precision"], schema.get("scale", 0))
    if logical is not None:
        return _LOGICAL[logical]
    if kind == "array":
        return pa.list_(_field("element", schema["items"], names, path, count))
    if kind == "map":
        return pa.map_(pa.string(), _field("value", schema["values"], names, path, count))
    if kind == "record":
        if schema["name"] in path:
            raise TypeError(f"{name!r} is a record that contains itself, which is no column")
        count.add(name, len(schema["fields"]))
        inner = (*path, schema["name"])
        return pa.struct([_field(each["name"], each["type"], names, inner, count) for each in schema["fields"]])
    if kind in _PRIMITIVES:
        return _PRIMITIVES[kind]
    raise TypeError(f"{name!r} is {kind}, which is no column")


def _record(name: str, columns: Sequence[pa.Field]) -> dict[str, Any]:
    fields = []
    for column in columns:
        if not _NAME.fullmatch(column.name):
            raise TypeError(
                f"the column {column.name!r} has no name that Avro allows: letters, digits and _; rename it with Select"
            )
        kind = _avro_type(f"{name}_{column.name}", column.name, column.type)
        fields.append({"name": column.name, "type": ["null", kind], "default": None})
    return {"type": "record", "name": name, "fields": fields}


def _avro_type(name: str, column: str, kind: pa.DataType) -> Any:
    """Returns Avro's type for a column's; `name` is for a record or a fixed type."""
    nested = partial(_avro_type, name, column)
    if pa.types.is_decimal(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if pa.types.is_date(kind):
        return {"type": "int", "logicalType": "date"}
    if pa.types.is_timestamp(kind):
        return {"type": "long", "logicalType": "timestamp-micros" if kind.tz else "local-timestamp-micros"}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return {"type": "array", "items": ["null", nested(kind.value_type)]}
    if pa.types.is_map(kind) and pa.types.is_string(kind.key_type):
        return {"type": "map", "values": ["null", nested(kind.item_type)]}
    if pa.types.is_struct(kind):
        return _record(name, list(kind))
    tests: list[tuple[Callable[[pa.DataType], bool], str]] = [
        (pa.types.is_boolean, "boolean"),
        (lambda each: each in (pa.int8(), pa.int16(), pa.int32()), "int"),
        (pa.types.is_int64, "long"),
        (pa.types.is_float32, "float"),
        (pa.types.is_float64, "double"),
        (lambda each: pa.types.is_string(each) or pa.types.is_large_string(each), "string"),
        (lambda each: pa.types.is_binary(each) or pa.types.is_large_binary(each), "bytes"),
    ]
    for test, avro in tests:
        if test(kind):
            return avro
    raise TypeError(f"the column {column!r} is {kind}, which Avro has no type for; cast it with Select")
