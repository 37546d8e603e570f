"""Encodes Arrow batches as Avro files, and decodes files to Arrow batches, by fastavro."""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final

import fastavro
import pyarrow as pa
from fastavro import _read_py
from fastavro.write import Writer

from headrace.edges.avrovalues import AvroValues, avro_schema
from headrace.edges.registryclient import RegisteredSchema
from headrace.edges.schemaguards import contains_itself
from headrace.model.errors import HeadraceError

HEADER_BYTES: Final = 1 << 20
"""How much of a file is read for its schema at most."""
_ROWS: Final = 20_000  # rows of a batch
_FILE_BYTES: Final = 32 << 20  # how large, about, a file becomes


class AvroError(HeadraceError, RuntimeError):
    """Raised for a file that is not Avro, and for columns and values that have no type in the other format."""


def encode(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[tuple[bytes, int]]:
    """Encodes batches as whole files, each of some 32 MB and with the number of its rows; at least one file.

    >>> batch = pa.record_batch({"user": ["amy", None], "n": [1, 2]})
    >>> [(file, rows)] = encode(iter([batch]), batch.schema)
    >>> rows, [decoded.to_pylist() for decoded in decode(file, batch.schema)]
    (2, [[{'user': 'amy', 'n': 1}, {'user': None, 'n': 2}]])
    """
    avro, plain = fastavro.parse_schema(schema_of_rows(schema)), _plain(pa.struct(list(schema)))
    file, rows, files = io.BytesIO(), 0, 0
    writer = Writer(file, avro, codec="deflate")
    for batch in batches:
        for row in batch.to_pylist():
            writer.write(plain(row))
        rows += batch.num_rows
        if file.tell() > _FILE_BYTES:
            writer.flush()
            yield file.getvalue(), rows
            file, rows, files = io.BytesIO(), 0, files + 1
            writer = Writer(file, avro, codec="deflate")
    if rows or not files:
        writer.flush()
        yield file.getvalue(), rows


def decode(file: bytes, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Decodes the rows of a file to columns of a schema; a column that the file does not have is null."""
    try:
        rows = _reader(file)
        while part := list(islice(rows, _ROWS)):
            yield pa.record_batch([_array(field, part) for field in schema], schema=schema)
    except (ValueError, EOFError, IndexError, OverflowError, TypeError, RecursionError, pa.ArrowException) as error:
        raise AvroError(f"it cannot be read as Avro: {error}") from None


def _reader(file: bytes) -> Any:
    """Opens a file; one whose values may nest without end by the reader in Python, which limits their depth."""
    rows = fastavro.reader(io.BytesIO(file))
    names: dict[str, Any] = {}
    schema = fastavro.parse_schema(json.loads(rows.metadata["avro.schema"]), names)
    return _read_py.reader(io.BytesIO(file)) if contains_itself(schema, names) else rows


def schema_of_rows(columns: pa.Schema) -> dict[str, Any]:
    """Returns the Avro schema of rows with these columns; every field may be null."""
    try:
        schema: dict[str, Any] = json.loads(avro_schema("row", columns))
    except TypeError as error:
        raise AvroError(str(error)) from None
    return schema


def schema_of_file(header: bytes) -> pa.Schema:
    """Returns the columns of a file, of which the header is enough."""
    try:
        schema: Any = fastavro.reader(io.BytesIO(header)).writer_schema
    except (ValueError, EOFError, IndexError) as error:
        raise AvroError(f"it cannot be read as Avro: {error}") from None
    if not isinstance(schema, dict) or schema["type"] != "record":
        raise AvroError("it has no records, whose fields would be columns")
    values = AvroValues(RegisteredSchema(0, "avro", json.dumps(schema)))
    try:
        return pa.schema([values.column(name) for name in values.names()])
    except TypeError as error:
        raise AvroError(f"{error}; give a schema=... without it") from None


def _array(field: pa.Field, rows: list[Any]) -> pa.Array:
    values = [row.get(field.name) for row in rows]
    if pa.types.is_string(field.type):
        values = [str(value) if isinstance(value, uuid.UUID) else value for value in values]
    try:
        return pa.array(values, field.type)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise AvroError(f"the column {field.name!r} is not {field.type}: {error}") from None


def _plain(type: pa.DataType) -> Callable[[Any], Any]:
    """Returns the function that makes of a value of `to_pylist` what fastavro writes: maps are dicts there."""
    if pa.types.is_map(type):
        item = _plain(type.item_type)
        return lambda pairs: None if pairs is None else {key: item(value) for key, value in pairs}
    if pa.types.is_list(type):
        element = _plain(type.value_type)
        return lambda values: None if values is None else list(map(element, values))
    if pa.types.is_struct(type):
        fields = [(field.name, _plain(field.type)) for field in type]
        return lambda row: None if row is None else {name: plain(row[name]) for name, plain in fields}
    return lambda value: value
