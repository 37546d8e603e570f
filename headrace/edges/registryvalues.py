"""Decodes records whose schemas are in a registry to columns; `registryencoder` encodes them.

A record is Confluent's wire format: a zero byte, the id of its schema in four bytes, for Protobuf the indexes of its
message in that schema, and the data. A record is decoded by the schema that it was written with.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal, Protocol

import pyarrow as pa

from headrace.edges.avrovalues import AvroValues, avro_key_schema, avro_schema
from headrace.edges.registryclient import RegisteredSchema, UnknownSchema, latest_schema, schema_by_id
from headrace.model.badrecords import MALFORMED, WRONG_TYPE
from headrace.model.errors import HeadraceError, PipelineError
from headrace.model.schemaregistry import Format, SchemaRegistry

HEADER: Final = struct.Struct(">bI")
"""A zero byte, and the id of a schema."""
_LONGEST: Final = 100  # characters of a value in a message

Part = Literal["value", "key"]
"""The parts of a record that have schemas."""
Flaw = tuple[str, str]
"""The reason why a record is bad, and a message."""


class SchemaValues(Protocol):
    """Decodes and encodes rows by one schema."""

    def names(self) -> list[str]: ...

    def column(self, name: str) -> pa.Field | None: ...

    def required(self) -> set[str]: ...

    def decode(self, data: bytes) -> dict[str, Any]: ...

    def encode(self, row: Mapping[str, Any]) -> bytes: ...


_Message = tuple[int, tuple[int, ...]]
"""The id of a schema, and the indexes of a message in it, which only Protobuf has."""
_Writer = tuple[SchemaValues | None, Flaw | None]
"""How records of a schema are decoded, or why they are bad."""


@lru_cache(200)
def values_of(
    schema: RegisteredSchema,
    indexes: tuple[int, ...] = (0,),
    reader: RegisteredSchema | None = None,
    element: str = "value",
) -> SchemaValues:
    """Returns how rows of a schema, or of one of its messages, are decoded and encoded.

    `element` is the name of the only column, if the schema is that of a single value.
    """
    if schema.format != "protobuf":
        return AvroValues(schema, reader, element)
    from headrace.edges.protobufvalues import ProtobufValues  # whose import takes long, and few need it

    return ProtobufValues(schema, indexes)


def new_schema(format: Format, topic: str, part: Part, columns: pa.Schema) -> str:
    """Returns the text of a schema for rows of these columns, or for keys of the only one.

    Raises TypeError at a column that cannot be its field.
    """
    if format == "avro":
        return avro_schema(topic, columns) if part == "value" else avro_key_schema(columns[0])
    from headrace.edges.protobufvalues import protobuf_schema

    return protobuf_schema(topic if part == "value" else f"{topic}_key", columns)


def message_indexes(data: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """Reads which message of its file a record is, and where its data begin: a count, and as many indexes.

    >>> message_indexes(bytes([0, 7]), 0), message_indexes(bytes([4, 2, 0, 7]), 0)
    (((0,), 1), ((1, 0), 3))
    """
    count, at = _varint(data, at)
    if count == 0:  # short for the first message
        return (0,), at
    if not 0 < count <= len(data) - at:
        raise ValueError(f"it names {count} indexes of a message")
    indexes = []
    for _ in range(count):
        index, at = _varint(data, at)
        indexes.append(index)
    return tuple(indexes), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Reads a number in Protobuf's zigzag encoding; returns where the next begins."""
    number = shift = 0
    while True:
        if at >= len(data) or shift > 28:
            raise ValueError("it does not say which message it is")
        octet = data[at]
        number |= (octet & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if octet < 0x80:
            return (number >> 1) ^ -(number & 1), at


def subject_of(topic: str, part: Part = "value") -> str:
    """Returns the subject under which the schemas of a topic's values or keys are, by Confluent's default rule."""
    return f"{topic}-{part}"


def latest_columns(
    who: str, registry: SchemaRegistry, subject: str, format: Format, element: str = "value"
) -> tuple[RegisteredSchema, pa.Schema]:
    """Returns the latest schema of a subject, and its columns; of a single value, `element` is its name.

    Refuses a subject that has no schema.
    """
    try:
        schema = latest_schema(who, registry, subject, format)
    except UnknownSchema:
        raise PipelineError(
            f"{who}: the schema registry at {registry} has no schema of {subject!r}; register one, or name the columns "
            "with schema="
        ) from None
    check_format(who, schema, format)
    try:
        values = values_of(schema, element=element)
        return schema, pa.schema([values.column(name) for name in values.names()])
    except HeadraceError:
        raise
    except Exception as error:  # also a schema that its own library refuses
        raise PipelineError(
            f"{who}: the latest schema of {subject!r} has no columns: {str(error)[:_LONGEST]}; name those that are "
            "wanted with schema="
        ) from None


def check_format(who: str, schema: RegisteredSchema, format: Format) -> None:
    """Refuses a schema of another format."""
    if schema.format != format:
        raise PipelineError(f"{who}: its schema {schema.id} is of the format {schema.format!r}, not {format!r}")


@dataclass(frozen=True)
class RegistryDecoder:
    """Decodes records to columns. Each is read by its own schema; a field that it does not have is null.

    With `reader`, whose columns these are, Avro's rules of resolution apply: such a field gets the reader's default.
    Protobuf has no such rules.
    """

    who: str
    registry: SchemaRegistry
    format: Format
    columns: pa.Schema
    reader: RegisteredSchema | None = None
    part: Part = "value"

    def decode(self, records: Sequence[bytes | None]) -> tuple[list[pa.Array], list[Flaw | None]]:
        """Returns the columns, and for each record what is wrong with it; the columns of such a record are null."""
        rows: list[dict[str, Any]] = []
        flaws: list[Flaw | None] = []
        writers: dict[_Message, _Writer] = {}
        for record in records:
            row, flaw = self._row(record, writers)
            rows.append(row)
            flaws.append(flaw)
        return [self._column(field, rows, flaws) for field in self.columns], flaws

    def _row(self, record: bytes | None, writers: dict[_Message, _Writer]) -> tuple[dict[str, Any], Flaw | None]:
        if record is None:
            return {}, None if self.part == "key" else (MALFORMED, "it has no value")
        if len(record) < HEADER.size or record[0] != 0:
            return {}, (MALFORMED, "it does not begin with the id of a schema: a zero byte, and four of the id")
        _, id = HEADER.unpack_from(record)
        indexes: tuple[int, ...] = ()
        begin = HEADER.size
        if self.format == "protobuf":
            try:
                indexes, begin = message_indexes(record, begin)
            except ValueError as error:
                return {}, _unfit(id, error)
        if (id, indexes) not in writers:
            writers[id, indexes] = self._writer(id, indexes)
        values, flaw = writers[id, indexes]
        if values is None:
            return {}, flaw
        try:
            return values.decode(record[begin:]), None
        except Exception as error:  # whatever a decoder does at bytes that it cannot read
            return {}, _unfit(id, error)

    @property
    def element(self) -> str:
        """The name of the only column of a schema of a single value."""
        return self.columns.names[0] if self.part == "key" else "value"

    @property
    def resolves(self) -> bool:
        """Whether a reader's schema decides what a row is."""
        return self.reader is not None and self.format == "avro"

    def _writer(self, id: int, indexes: tuple[int, ...]) -> _Writer:
        """Returns how records of a schema are decoded. One that is unknown may be known later, so it is asked again."""
        try:
            return _known_writer(self, id, indexes)
        except UnknownSchema:
            return None, (MALFORMED, f"the schema registry has no schema {id}")

    def _column(self, field: pa.Field, rows: list[dict[str, Any]], flaws: list[Flaw | None]) -> pa.Array:
        values = [row.get(field.name) for row in rows]
        try:
            return pa.array(values, field.type)
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            pass
        for number, value in enumerate(values):
            try:
                pa.array([value], field.type)
            except (pa.ArrowException, OverflowError, TypeError, ValueError):
                shown = repr(value)[:_LONGEST]
                flaws[number] = flaws[number] or (WRONG_TYPE, f"{field.name!r} is no {field.type}: {shown}")
                values[number] = None
        return pa.array(values, field.type)


def _unfit(id: int, error: Exception) -> Flaw:
    return MALFORMED, f"its schema {id} does not fit: {str(error) or type(error).__name__}"


@lru_cache(1000)
def _known_writer(decoder: RegistryDecoder, id: int, indexes: tuple[int, ...]) -> _Writer:
    """Returns how records of a schema are decoded, or why they are bad. Raises UnknownSchema if there is none."""
    schema = schema_by_id(decoder.who, decoder.registry, id, decoder.format)
    if schema.format != decoder.format:
        return None, (MALFORMED, f"its schema {id} is of the format {schema.format!r}, not {decoder.format!r}")
    try:
        values = values_of(schema, indexes, decoder.reader, decoder.element)
        for wanted in () if decoder.resolves else decoder.columns:
            written = values.column(wanted.name)
            if written is not None and not fits(written.type, wanted.type):
                message = f"{wanted.name!r} is {written.type} in its schema {id}, not {wanted.type}"
                return None, (WRONG_TYPE, message)
    except HeadraceError:
        raise
    except TypeError as error:
        return None, (WRONG_TYPE, f"in its schema {id}, {error}")
    except Exception as error:  # a schema that its own library refuses
        return None, (MALFORMED, f"its schema {id} cannot be read: {error}")
    return values, None


def fits(written: pa.DataType, wanted: pa.DataType) -> bool:
    """Tells whether values of one type can be of the other; whether each value fits is another question.

    >>> fits(pa.int32(), pa.int64()), fits(pa.int64(), pa.float64()), fits(pa.float64(), pa.int64())
    (True, True, False)
    """
    kinds = pa.types
    if written == wanted:
        return True
    if kinds.is_integer(written):
        return bool(kinds.is_integer(wanted) or kinds.is_floating(wanted) or kinds.is_decimal(wanted))
    if kinds.is_floating(written):
        return bool(kinds.is_floating(wanted) and written.bit_width <= wanted.bit_width)
    if kinds.is_timestamp(written) and kinds.is_timestamp(wanted):
        return (written.tz is None) == (wanted.tz is None)
    if _is_list(written) and _is_list(wanted):
        return fits(written.value_type, wanted.value_type)
    if kinds.is_map(written) and kinds.is_map(wanted):
        return fits(written.key_type, wanted.key_type) and fits(written.item_type, wanted.item_type)
    if kinds.is_struct(written) and kinds.is_struct(wanted):
        found = [(written.get_field_index(field.name), field) for field in wanted]
        return all(fits(written.field(index).type, field.type) for index, field in found if index >= 0)
    families = (kinds.is_decimal, _is_text, _is_bytes)
    return any(family(written) and family(wanted) for family in families)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))
