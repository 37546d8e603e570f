"""Decodes and encodes rows in Protobuf, and converts between its descriptors and Arrow's schemas.

A field without presence is never null: what was not written has the default of its type, and lists and maps are empty.
A time of google.protobuf.Timestamp loses what is finer than a microsecond, which no column can have.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)

from headrace.edges.registryclient import RegisteredSchema
from headrace.edges.schemaguards import FieldCount

_KNOWN_FILES: Final = [
    module.DESCRIPTOR
    for module in (any_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)
]
_TIMESTAMP: Final = "google.protobuf.Timestamp"
_WRAPPER: Final = re.compile(r"google\.protobuf\.(Double|Float|Int64|UInt64|Int32|UInt32|Bool|String|Bytes)Value")
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_NAME: Final = re.compile("[A-Za-z_][A-Za-z0-9_]*")

_Kind = descriptor_pb2.FieldDescriptorProto
_SCALARS: Final = {
    _Kind.TYPE_BOOL: pa.bool_(),
    _Kind.TYPE_INT32: pa.int32(),
    _Kind.TYPE_SINT32: pa.int32(),
    _Kind.TYPE_SFIXED32: pa.int32(),
    _Kind.TYPE_UINT32: pa.int64(),
    _Kind.TYPE_FIXED32: pa.int64(),
    _Kind.TYPE_INT64: pa.int64(),
    _Kind.TYPE_SINT64: pa.int64(),
    _Kind.TYPE_SFIXED64: pa.int64(),
    _Kind.TYPE_UINT64: pa.decimal128(20),
    _Kind.TYPE_FIXED64: pa.decimal128(20),
    _Kind.TYPE_FLOAT: pa.float32(),
    _Kind.TYPE_DOUBLE: pa.float64(),
    _Kind.TYPE_STRING: pa.string(),
    _Kind.TYPE_BYTES: pa.binary(),
    _Kind.TYPE_ENUM: pa.string(),
}
_WRITTEN: Final = {
    pa.bool_(): _Kind.TYPE_BOOL,
    pa.int8(): _Kind.TYPE_INT32,
    pa.int16(): _Kind.TYPE_INT32,
    pa.int32(): _Kind.TYPE_INT32,
    pa.int64(): _Kind.TYPE_INT64,
    pa.float32(): _Kind.TYPE_FLOAT,
    pa.float64(): _Kind.TYPE_DOUBLE,
    pa.string(): _Kind.TYPE_STRING,
    pa.large_string(): _Kind.TYPE_STRING,
    pa.binary(): _Kind.TYPE_BYTES,
    pa.large_binary(): _Kind.TYPE_BYTES,
}
_KEYS: Final = (pa.string(), pa.bool_(), pa.int32(), pa.int64())


class ProtobufValues:
    """Decodes and encodes rows by a message of a Protobuf schema, which `indexes` point out in its file.

    >>> text = protobuf_schema("hits", pa.schema([("url", pa.string()), ("n", pa.int64())]))
    >>> values = ProtobufValues(RegisteredSchema(1, "protobuf", text))
    >>> values.names(), values.decode(values.encode({"url": "foo.com", "n": None}))
    (['url', 'n'], {'url': 'foo.com', 'n': None})
    """

    def __init__(self, schema: RegisteredSchema, indexes: Sequence[int] = (0,)) -> None:
        self._descriptor = _message(_file(schema), indexes)
        self._count, self._columns = FieldCount(), dict[str, pa.Field]()
        self._class = message_factory.GetMessageClass(self._descriptor)

    def names(self) -> list[str]:
        """Returns the names of the fields."""
        return [field.name for field in self._descriptor.fields]

    def column(self, name: str) -> pa.Field | None:
        """Returns the column of a field, or None if there is no such field. Raises TypeError if no column can be it."""
        field = self._descriptor.fields_by_name.get(name)
        if field is not None and name not in self._columns:
            self._columns[name] = _column(field, (), self._count)
        return self._columns.get(name)

    def required(self) -> set[str]:
        """Returns nothing: every field has a default."""
        return set()

    def decode(self, data: bytes) -> dict[str, Any]:
        """Decodes a row. Raises an exception if the bytes are not of the message."""
        return _row(self._class.FromString(data))

    def encode(self, row: Mapping[str, Any]) -> bytes:
        """Encodes a row."""
        message = self._class()
        _fill(message, row)
        data: bytes = message.SerializeToString()
        return data


def protobuf_schema(name: str, columns: pa.Schema) -> str:
    """Returns the schema for rows of these columns: a message, as a descriptor in base64. Scalars have presence."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{name}.proto", syntax="proto3")
    if any(_has_times(column.type) for column in columns):
        file.dependency.append(timestamp_pb2.DESCRIPTOR.name)
    message = file.message_type.add(name=re.sub("[^A-Za-z0-9_]", "_", re.sub("^(?=[0-9])", "_", name)))
    _add_fields(message, list(columns), f".{message.name}")
    return base64.b64encode(file.SerializeToString(deterministic=True)).decode()


def _file(schema: RegisteredSchema) -> Any:
    pool = descriptor_pool.DescriptorPool()
    known = {file.name: file for file in _KNOWN_FILES}
    added: set[str] = set()

    def add(name: str, serialized: bytes) -> None:
        file = descriptor_pb2.FileDescriptorProto.FromString(serialized)
        file.name = name
        for needed in file.dependency:
            if needed not in added:
                if needed not in known:
                    raise ValueError(f"it imports {needed!r}, to which it has no reference")
                add(needed, known[needed].serialized_pb)
        pool.AddSerializedFile(file.SerializeToString())
        added.add(name)

    name = f"schema-{schema.id}.proto"
    for each, text in (*schema.references, (name, schema.text)):
        if each not in added:
            add(each, _descriptor_bytes(text))
    return pool.FindFileByName(name)


def _descriptor_bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError("the registry does not give it as a descriptor (format=serialized)") from None


def _message(file: Any, indexes: Sequence[int]) -> Any:
    nested = list(file.message_types_by_name.values())
    for depth, index in enumerate(indexes):
        if not 0 <= index < len(nested):
            raise ValueError(f"it has no message {list(indexes)}")
        message = nested[index]
        nested = list(message.nested_types) if depth + 1 < len(indexes) else nested
    return message


def _is_map(field: Any) -> bool:
    return bool(field.message_type is not None and field.message_type.GetOptions().map_entry)


def _column(field: Any, path: tuple[str, ...], count: FieldCount) -> pa.Field:
    """Returns the column of a field; `path` has the names of the messages that it is in."""
    if _is_map(field):
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        return pa.field(field.name, pa.map_(_type(key, path, count), _type(value, path, count)), nullable=False)
    if field.is_repeated:
        return pa.field(field.name, pa.list_(_type(field, path, count)), nullable=False)
    return pa.field(field.name, _type(field, path, count), nullable=field.has_presence)


def _type(field: Any, path: tuple[str, ...], count: FieldCount) -> pa.DataType:
    message = field.message_type
    if message is None:
        return _SCALARS[field.type]
    if message.full_name == _TIMESTAMP:
        return pa.timestamp("us", tz="UTC")
    if _WRAPPER.fullmatch(message.full_name):
        return _SCALARS[message.fields_by_name["value"].type]
    if message.full_name in path:
        raise TypeError(f"{field.name!r} is a message that contains itself, which is no column")
    count.add(field.name, len(message.fields))
    return pa.struct([_column(each, (*path, message.full_name), count) for each in message.fields])


def _row(message: Any) -> dict[str, Any]:
    return {field.name: _value(message, field) for field in message.DESCRIPTOR.fields}


def _value(message: Any, field: Any) -> Any:
    if field.has_presence and not message.HasField(field.name):
        return None
    value = getattr(message, field.name)
    if _is_map(field):
        kind = field.message_type.fields_by_name["value"]
        return {key: _plain(value[key], kind) for key in value}
    return [_plain(each, field) for each in value] if field.is_repeated else _plain(value, field)


def _plain(value: Any, field: Any) -> Any:
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name  # a number that only a newer schema has a name for
    if field.message_type is None:
        return value
    if field.message_type.full_name == _TIMESTAMP:
        return value.seconds * 1_000_000 + value.nanos // 1000
    return value.value if _WRAPPER.fullmatch(field.message_type.full_name) else _row(value)


def _fill(message: Any, row: Mapping[str, Any]) -> None:
    """Sets the fields of a message from a row."""
    fields = message.DESCRIPTOR.fields_by_name
    for name, value in row.items():
        if name not in fields:
            raise ValueError(f"there is no field {name!r}")
        field = fields[name]
        if value is None:
            if not field.has_presence:
                raise ValueError(f"{name!r} cannot be null")
        elif _is_map(field):
            _fill_map(getattr(message, name), field.message_type.fields_by_name["value"], value)
        elif field.is_repeated:
            _fill_list(getattr(message, name), field, value)
        elif field.message_type is not None:
            _fill_message(getattr(message, name), value)
        else:
            setattr(message, name, _scalar(field, value))


def _fill_map(entries: Any, field: Any, values: Mapping[Any, Any]) -> None:
    for key, value in values.items():
        if value is None:
            raise ValueError("a value of a map cannot be null")
        if field.message_type is not None:
            _fill_message(entries[key], value)
        else:
            entries[key] = _scalar(field, value)


def _fill_list(items: Any, field: Any, values: Sequence[Any]) -> None:
    for value in values:
        if value is None:
            raise ValueError(f"an item of {field.name!r} cannot be null")
        if field.message_type is not None:
            _fill_message(items.add(), value)
        else:
            items.append(_scalar(field, value))


def _fill_message(message: Any, value: Any) -> None:
    name = message.DESCRIPTOR.full_name
    message.SetInParent()
    if name == _TIMESTAMP:
        micros = (value - _EPOCH) // dt.timedelta(microseconds=1)
        message.seconds, message.nanos = micros // 1_000_000, micros % 1_000_000 * 1000
    elif _WRAPPER.fullmatch(name):
        message.value = _scalar(message.DESCRIPTOR.fields_by_name["value"], value)
    else:
        _fill(message, value)


def _scalar(field: Any, value: Any) -> Any:
    if field.enum_type is not None:
        known = field.enum_type.values_by_name.get(value)
        if known is None:
            raise ValueError(
                f"{field.name!r} cannot be {value!r}; there are {', '.join(field.enum_type.values_by_name)}"
            )
        return known.number
    return int(value) if pa.types.is_decimal(_SCALARS[field.type]) else value


def _has_times(kind: pa.DataType) -> bool:
    if pa.types.is_timestamp(kind):
        return True
    return any(_has_times(kind.field(number).type) for number in range(kind.num_fields))


def _add_fields(message: Any, columns: Sequence[pa.Field], place: str) -> None:
    """Adds a field for each column to a message, whose full name is `place`."""
    optional = []
    for number, column in enumerate(columns, 1):
        if not _NAME.fullmatch(column.name):
            raise TypeError(
                f"the column {column.name!r} has no name that Protobuf allows: letters, digits and _; rename it with "
                "Select"
            )
        field = message.field.add(name=column.name, number=number, label=_Kind.LABEL_OPTIONAL)
        if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
            field.label = _Kind.LABEL_REPEATED
            _set_type(message, field, column.type.value_type, place)
        elif pa.types.is_map(column.type) and column.type.key_type in _KEYS:
            field.label = _Kind.LABEL_REPEATED
            _set_map(message, field, column.type, place)
        else:
            _set_type(message, field, column.type, place)
            if not field.type_name:
                optional.append(field)
    for index, field in enumerate(optional):  # what `optional` means in proto3
        field.proto3_optional, field.oneof_index = True, index
        message.oneof_decl.add(name=f"_{field.name}")


def _set_type(message: Any, field: Any, kind: pa.DataType, place: str, suffix: str = "") -> None:
    """Sets the type of a field; that of a struct is a message in `message`, whose full name is `place`."""
    if kind in _WRITTEN:
        field.type = _WRITTEN[kind]
    elif pa.types.is_timestamp(kind) and kind.tz is not None:
        field.type, field.type_name = _Kind.TYPE_MESSAGE, f".{_TIMESTAMP}"
    elif pa.types.is_struct(kind):
        nested = message.nested_type.add(name=_type_name(f"{field.name}{suffix}"))
        field.type, field.type_name = _Kind.TYPE_MESSAGE, f"{place}.{nested.name}"
        _add_fields(nested, list(kind), field.type_name)
    else:
        raise TypeError(f"the column {field.name!r} is {kind}, which Protobuf has no type for; cast it with Select")


def _set_map(message: Any, field: Any, kind: pa.MapType, place: str) -> None:
    entry = message.nested_type.add(name=f"{_type_name(field.name)}Entry")
    entry.options.map_entry = True
    field.type, field.type_name = _Kind.TYPE_MESSAGE, f"{place}.{entry.name}"
    for number, (name, part) in enumerate((("key", kind.key_type), ("value", kind.item_type)), 1):
        member = entry.field.add(name=name, number=number, label=_Kind.LABEL_OPTIONAL)
        _set_type(message, member, part, place, f"_of_{field.name}")


def _type_name(field: str) -> str:
    """Returns the name that protoc gives to the entries of a map: CamelCase.

    >>> _type_name("last_seen")
    'LastSeen'
    """
    return "".join(part[:1].upper() + part[1:] for part in field.split("_"))
