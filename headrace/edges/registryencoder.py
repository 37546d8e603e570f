"""Encodes rows as records whose schemas are in a registry, by the latest schema of a topic or a new one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headrace.edges.registryclient import RegisteredSchema, UnknownSchema, latest_schema, register
from headrace.edges.registryvalues import (
    HEADER,
    Part,
    SchemaValues,
    check_format,
    fits,
    new_schema,
    subject_of,
    values_of,
)
from headrace.model.errors import PipelineError
from headrace.model.schemaregistry import Format, SchemaRegistry


@dataclass(frozen=True)
class RegistryEncoder:
    """Encodes rows as records: by `schema`, the latest of the subject when the run began, or else by one of its own.

    A schema of its own is made of the columns, and registered before the first record is encoded.
    """

    who: str
    registry: SchemaRegistry
    format: Format
    topic: str
    part: Part = "value"
    schema: RegisteredSchema | None = None

    @classmethod
    def latest(
        cls, who: str, registry: SchemaRegistry, format: Format, topic: str, part: Part = "value"
    ) -> RegistryEncoder:
        """Returns the encoder for a topic, with the latest schema of its subject, if it has one."""
        try:
            schema = latest_schema(who, registry, subject_of(topic, part), format)
            check_format(who, schema, format)
        except UnknownSchema:
            schema = None
        return cls(who, registry, format, topic, part, schema)

    def encode(self, columns: Mapping[str, pa.Array], rows: int) -> pa.BinaryArray:
        """Encodes columns, row by row. Refuses columns that are not those of the schema."""
        schema = self.schema or self._own_schema(columns)
        values = self._values_of(schema, [*columns])
        table = {name: self._cast(values, schema, name, column) for name, column in columns.items()}
        if missing := sorted(values.required() - set(columns)):
            raise PipelineError(
                f"{self.who}: {self._place(schema)} has the field {missing[0]!r}, which has no default, but there "
                f"is no such column; there are {', '.join(columns)}"
            )
        # Of a Protobuf schema it is the first message, whose indexes are a zero byte.
        header = HEADER.pack(0, schema.id) + (b"\0" if self.format == "protobuf" else b"")
        lists = [column.to_pylist(maps_as_pydicts="strict") for column in table.values()]
        cells = zip(*lists, strict=True) if lists else [()] * rows
        try:
            return pa.array([header + values.encode(dict(zip(table, row, strict=True))) for row in cells], pa.binary())
        except (ValueError, TypeError, OverflowError) as error:
            raise PipelineError(f"{self.who}: a row is not of {self._place(schema)}: {error}") from None

    def encode_keys(self, name: str, column: pa.Array) -> pa.BinaryArray:
        """Encodes the column of keys; a record whose key is null has none."""
        there = column.is_valid()
        keys = column.drop_null()
        encoded = self.encode({name: keys}, len(keys)) if len(keys) else pa.array([], pa.binary())
        return pc.replace_with_mask(pa.nulls(len(column), pa.binary()), there, encoded)

    def types(self, names: list[str]) -> dict[str, pa.DataType]:
        """Returns the types of these columns in the schema. Refuses if there is no schema: nothing else says them."""
        if self.schema is None:
            raise PipelineError(
                f"{self.who}: {self._subject!r} has no schema at {self.registry}, and the types of the elements are "
                "not known; register a schema, or declare them with with_output_types, a NamedTuple or a dataclass"
            )
        values = self._values_of(self.schema, names)
        return {name: self._field(values, self.schema, name).type for name in names}

    def _values_of(self, schema: RegisteredSchema, names: list[str]) -> SchemaValues:
        return values_of(schema, element=names[0] if self.part == "key" and names else "value")

    @property
    def _subject(self) -> str:
        return subject_of(self.topic, self.part)

    def _own_schema(self, columns: Mapping[str, pa.Array]) -> RegisteredSchema:
        wanted = pa.schema([(name, column.type) for name, column in columns.items()])
        try:
            text = new_schema(self.format, self.topic, self.part, wanted)
        except TypeError as error:
            raise PipelineError(f"{self.who}: {error}") from None
        return RegisteredSchema(register(self.who, self.registry, self._subject, self.format, text), self.format, text)

    def _cast(self, values: SchemaValues, schema: RegisteredSchema, name: str, column: pa.Array) -> pa.Array:
        """Returns a column in the type of its field. Refuses one that has no field, or not of that type."""
        field, place = self._field(values, schema, name), self._place(schema)
        if not fits(column.type, field.type):
            raise PipelineError(f"{self.who}: {name!r} is {field.type} in {place}, but the column is {column.type}")
        if column.null_count and not field.nullable:
            raise PipelineError(f"{self.who}: {name!r} cannot be null in {place}, but a row has none")
        try:
            return column.cast(field.type)
        except pa.ArrowException as error:
            raise PipelineError(f"{self.who}: {name!r} is {field.type} in {place}: {error}") from None

    def _field(self, values: SchemaValues, schema: RegisteredSchema, name: str) -> pa.Field:
        try:
            field = values.column(name)
        except TypeError as error:
            raise PipelineError(f"{self.who}: in {self._place(schema)}, {error}") from None
        if field is None:
            raise PipelineError(
                f"{self.who}: {self._place(schema)} has no field {name!r}; it has {', '.join(values.names())}: leave "
                "the column out with Select, or register a schema that has it"
            )
        return field

    def _place(self, schema: RegisteredSchema) -> str:
        return f"schema {schema.id} of {self._subject!r}"
