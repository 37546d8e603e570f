"""Encodes elements as records of a topic: keys, timestamps, headers and values, divided by partition.

This happens in the workers, on columns wherever elements have them. The result is blocks, each an Arrow stream of a
few thousand records of one partition, which the driver only has to append (`topicwriter`) or to send (`kafkawriter`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.edges.jsoncolumns import json_arrays, json_objects, json_text, json_values
from headrace.edges.recordparts import Part, fields_of, key_bytes, mapping_of, parts_of
from headrace.edges.registryencoder import RegistryEncoder
from headrace.edges.topicranges import open_topic
from headrace.engine.columns.arrowbytes import arrow_bytes
from headrace.engine.worker.blame import blame
from headrace.engine.worker.bundles import BLOCK_SCHEMA, BufferedOutput, Bundle
from headrace.engine.worker.columnbundles import RETRACTION, ColumnBundle
from headrace.engine.worker.hidden import END, START, TIME
from headrace.log import LogError
from headrace.log.partitioning import partitions_of
from headrace.log.values import Values
from headrace.model.errors import PipelineError
from headrace.model.pipeline import Node, PCollection
from headrace.model.schema import Schema
from headrace.model.times import MAX_TIME, MIN_TIME, SECOND, Int64Array, instant
from headrace.model.topics import WriteTopic

RETRACTION_HEADER: Final = "retraction"
"""The name of the header of a record that takes an earlier one back."""
ANY: Final = -1
"""The partition of records without a key: all of a batch go to one partition, which the driver chooses."""
_PARTITION: Final = b"partition"


@dataclass
class ToRecords(BufferedOutput):
    """Encodes elements as blocks of records."""

    label: str
    values: Values
    partitions: int
    element_schema: Schema | None  # None if elements are Rows, or have no columns
    key: Part
    timestamp: Part
    encoder: RegistryEncoder | None = None  # of values that have a schema in a registry
    key_encoder: RegistryEncoder | None = None  # of keys that have one

    def schema(self) -> pa.Schema:
        return BLOCK_SCHEMA

    def add_columns(self, bundle: ColumnBundle) -> Iterator[pa.RecordBatch]:
        """Encodes columns, unless a function of the element needs objects."""
        if callable(self.key) or callable(self.timestamp):
            for part in bundle.parts():
                yield from self.add(part)
            return
        bundle = bundle.placed()
        rows, panes = bundle.rows, bundle.panes
        columns = {name: rows.column(name) for name in rows.schema.names if name not in (TIME, START, END)}
        retracted = np.zeros(bundle.size, np.bool_) if panes is None else np.asarray(panes.column(RETRACTION))
        with blame(self.label):
            yield self._blocks(self._from_columns(columns, bundle.size), bundle.all_times(), retracted)

    def batch(self, bundle: Bundle) -> pa.RecordBatch:
        retracted = np.full(bundle.size, bundle.retraction)
        with blame(self.label):
            return self._blocks(self._from_elements(bundle.elements), bundle.all_times(), retracted)

    def _from_columns(self, columns: Mapping[str, pa.Array], rows: int) -> tuple[pa.Array, pa.Array, pa.Array]:
        return (
            self._keys(_named(columns, self.key)) if isinstance(self.key, str) else pa.nulls(rows, pa.binary()),
            timestamps_of(_named(columns, self.timestamp))
            if isinstance(self.timestamp, str)
            else pa.nulls(rows, pa.int64()),
            self._values(columns, rows),
        )

    def _from_elements(self, elements: Sequence[Any]) -> tuple[pa.Array, pa.Array, pa.Array]:
        keys = self._element_keys(list(parts_of(elements, self.key)))
        times = [None if time is None else instant(time) for time in parts_of(elements, self.timestamp)]
        if self.element_schema is not None:
            columns = dict(zip(self.element_schema.names, self.element_schema.to_columns(list(elements)), strict=True))
            values = self._values(columns, len(elements))
        elif self.encoder is not None:
            values = self._values(self._registered_columns(elements), len(elements))
        elif self.values.kind == "json":
            values = pa.array([_json(element) for element in elements], pa.binary())
        elif self.values.kind == "bytes":
            values = self.values.encode(elements)
        else:
            values = self.values.encode([mapping_of(element) for element in elements])
        return keys, pa.array(times, pa.int64()), values

    def _keys(self, column: pa.Array) -> pa.BinaryArray:
        if self.key_encoder is None:
            return keys_of(column)
        assert isinstance(self.key, str)
        return self.key_encoder.encode_keys(self.key, column)

    def _element_keys(self, keys: list[Any]) -> pa.BinaryArray:
        if self.key_encoder is None:
            return pa.array([key_bytes(key) for key in keys], pa.binary())
        if self.element_schema is None:
            assert isinstance(self.key, str)
            return self._keys(pa.array(keys, self.key_encoder.types([self.key])[self.key]))
        return self._keys(pa.array(keys))

    def _registered_columns(self, elements: Sequence[Any]) -> dict[str, pa.Array]:
        """Returns the columns of elements whose types nobody declared: those of the schema that is registered."""
        assert self.encoder is not None
        rows = [mapping_of(element) for element in elements]
        names = dict.fromkeys(name for row in rows for name in row)
        types = self.encoder.types(list(names))
        return {name: pa.array([row.get(name) for row in rows], kind) for name, kind in types.items()}

    def _values(self, columns: Mapping[str, pa.Array], rows: int) -> pa.Array:
        if self.encoder is not None:
            return self.encoder.encode(columns, rows)
        kind = "named" if self.element_schema is None else self.element_schema.kind
        if self.values.kind == "json":
            if kind == "value":
                return json_values(next(iter(columns.values()))).cast(pa.binary())
            return json_arrays(list(columns.values()), rows) if kind == "tuple" else json_objects(columns, rows)
        if self.values.kind == "bytes":
            (column,) = columns.values()
            return column.cast(pa.binary())
        return _struct(columns, self.values.type(), rows)

    def _blocks(
        self, parts: tuple[pa.Array, pa.Array, pa.Array], event_times: Int64Array, retracted: npt.NDArray[np.bool_]
    ) -> pa.RecordBatch:
        keys, timestamps, values = parts
        # The ends of time are no timestamps; a record without one gets that of the batch, in the driver.
        known = pa.array(event_times, mask=(event_times <= MIN_TIME) | (event_times >= MAX_TIME - 1))
        records = pa.record_batch(
            [keys, pc.coalesce(timestamps, known), _headers(retracted), values], schema=self.values.schema()
        )
        where = partitions_of(keys.fill_null(b""), self.partitions)
        where[np.asarray(keys.is_null())] = ANY
        cells = [arrow_bytes(part, {_PARTITION: str(number)}) for number, part in by_partition(records, where)]
        return pa.record_batch([pa.array(cells, pa.binary())], schema=BLOCK_SCHEMA)


def by_partition(records: pa.RecordBatch, where: Int64Array) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yields the records of each partition, in order.

    >>> parts = by_partition(pa.record_batch({"x": [1, 2, 3]}), np.array([1, -1, 1]))
    >>> [(number, part.column("x").to_pylist()) for number, part in parts]
    [(-1, [2]), (1, [1, 3])]
    """
    counts = np.bincount(where - ANY)
    if np.count_nonzero(counts) > 1:
        narrow = where.astype(np.int16) if len(counts) < 2**15 else where  # which numpy sorts by radix
        records = records.take(pa.array(np.argsort(narrow, kind="stable")))
    begin = 0
    for number, count in enumerate(counts.tolist(), ANY):
        if count:
            yield number, records.slice(begin, count)
        begin += count


def read_blocks(blocks: Iterable[pa.Buffer]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yields the records of blocks, with the partition of each block."""
    for block in blocks:
        reader = pa.ipc.open_stream(block)
        yield int(reader.schema.metadata[_PARTITION]), reader.read_next_batch()


def keys_of(column: pa.Array) -> pa.BinaryArray:
    """Encodes keys: bytes as they are, text as UTF-8, other values as JSON.

    >>> keys_of(pa.array([7, None])).to_pylist()
    [b'7', None]
    """
    if pa.types.is_binary(column.type) or pa.types.is_string(column.type):
        return column.cast(pa.binary())
    return pc.if_else(column.is_valid(), json_values(column).cast(pa.binary()), pa.scalar(None, pa.binary()))


def timestamps_of(column: pa.Array) -> pa.Int64Array:
    """Converts times, dates, and whatever `instant` takes, to timestamps in microseconds.

    >>> timestamps_of(pa.array([2, None])).to_pylist(), timestamps_of(pa.array(["1970-01-01T00:01:00Z"])).to_pylist()
    ([2000000, None], [60000000])
    """
    if pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("s"))
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64())
    if pa.types.is_integer(column.type):
        return pc.multiply_checked(column.cast(pa.int64()), SECOND)
    return pa.array([None if value is None else instant(value) for value in column.to_pylist()], pa.int64())


def _struct(columns: Mapping[str, pa.Array], kind: pa.StructType, rows: int) -> pa.StructArray:
    """Returns columns as those of a topic, by name; missing ones are null."""
    if unknown := sorted(set(columns) - {field.name for field in kind}):
        raise LogError(f"the topic has no column {unknown[0]!r}; it has {', '.join(field.name for field in kind)}")
    arrays = []
    for field in kind:
        column = columns.get(field.name)
        try:
            arrays.append(pa.nulls(rows, field.type) if column is None else column.cast(field.type))
        except pa.ArrowInvalid as error:
            raise LogError(f"the column {field.name!r} of the topic is {field.type}: {error}") from None
    return pa.StructArray.from_arrays(arrays, fields=list(kind))


def _headers(retracted: npt.NDArray[np.bool_]) -> pa.MapArray:
    """Returns the headers of records: none, except for those that take an earlier one back."""
    offsets = np.concatenate([[0], np.cumsum(retracted)]).astype(np.int32)
    count = int(offsets[-1])
    names, marks = pa.array([RETRACTION_HEADER] * count, pa.string()), pa.array([b"true"] * count, pa.binary())
    return pa.MapArray.from_arrays(pa.array(offsets), names, marks)


def _named(columns: Mapping[str, pa.Array], name: str) -> pa.Array:
    if name not in columns:
        raise LogError(f"there is no column {name!r}; there are {', '.join(columns)}")
    return columns[name]


def _json(element: Any) -> bytes:
    fields = fields_of(element)
    return json_text(element if fields is None else fields).encode()


def to_records(node: Node, pc: PCollection) -> ToRecords:
    """Returns how a sink's elements are encoded. Refuses those that do not fit the topic's values."""
    sink, schema = node.transform, pc.schema
    assert isinstance(sink, WriteTopic)
    encoder, key_encoder = _encoder(node, schema), _key_encoder(node)
    if sink.address.brokers is not None:
        # The client divides records by partition.
        values, partitions = kafka_values(schema) if encoder is None else Values("bytes"), 1
    else:
        topic = open_topic(node, sink.address)
        values, partitions = topic.values, len(topic.partitions)
    if schema is not None:
        if encoder is None:
            _check(node, schema, values)
        for name in (sink.key, sink.timestamp):
            if isinstance(name, str) and name not in schema.names:
                raise PipelineError(f"{node}: there is no column {name!r}; there are {', '.join(schema.names)}")
    return ToRecords(node.label, values, partitions, schema, sink.key, sink.timestamp, encoder, key_encoder)


def _encoder(node: Node, schema: Schema | None) -> RegistryEncoder | None:
    """Returns how values are encoded by a schema of a registry, if the sink has one."""
    sink = node.transform
    assert isinstance(sink, WriteTopic)
    if sink.format is None or sink.registry is None:
        return None
    if schema is not None and schema.kind in ("value", "tuple"):
        raise PipelineError(
            f"{node}: format={sink.format!r} needs elements with named columns; write rows, NamedTuples or dataclasses"
        )
    return RegistryEncoder.latest(str(node), sink.registry, sink.format, sink.address.name)


def _key_encoder(node: Node) -> RegistryEncoder | None:
    """Returns how keys are encoded by a schema of a registry, if the sink's have one."""
    sink = node.transform
    assert isinstance(sink, WriteTopic)
    if sink.key_format is None or sink.registry is None:
        return None
    return RegistryEncoder.latest(str(node), sink.registry, sink.key_format, sink.address.name, "key")


def kafka_values(schema: Schema | None) -> Values:
    """Returns how elements are encoded in a topic of Kafka: bytes and text as they are, others as JSON.

    >>> from headrace.model.schema import schema_of
    >>> kafka_values(schema_of(str)).kind, kafka_values(schema_of(tuple[str, int])).kind
    ('bytes', 'json')
    """
    plain = schema is not None and schema.kind == "value" and schema.types[0] in (pa.binary(), pa.string())
    return Values("bytes" if plain else "json")


def _check(node: Node, schema: Schema, values: Values) -> None:
    shown = ", ".join(f"{name} {kind}" for name, kind in zip(schema.names, schema.types, strict=True))
    if values.kind == "bytes":
        kinds = schema.types[0] if schema.kind == "value" else None
        if kinds not in (pa.binary(), pa.string()):
            raise PipelineError(
                f"{node}: the topic's values are bytes, but elements are ({shown}); encode them with Map, or write to "
                "a topic of JSON or of columns"
            )
    elif values.kind != "json":
        names = [field.name for field in values.type()]
        if schema.kind in ("value", "tuple") or set(schema.names) - set(names):
            raise PipelineError(
                f"{node}: the topic's columns are {values.kind}, but elements are ({shown}); write rows with these"
            )
