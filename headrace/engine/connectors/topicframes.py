"""Converts the records of a topic, embedded or Kafka's, to elements in columns.

A frame of records has the values' columns, or VALUE alone, and TIME, PART and OFFSET; of Kafka's also KEY. If writers'
watermarks are read, it has LOW, too, and rows in which only PART and LOW say something.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from headrace.engine.catalyst import parsing
from headrace.engine.catalyst.analysis import analysis_message, quiet_analysis
from headrace.engine.catalyst.eventtime import event_time_of
from headrace.engine.connectors.decodedrecords import RAW_KEY, DecodedRecords
from headrace.engine.connectors.fromrecords import OFFSET, value_columns, value_kind
from headrace.engine.worker.hidden import BAD, LOW, PART, TIME
from headrace.log.values import VALUE
from headrace.model.errors import PipelineError
from headrace.model.pipeline import Node
from headrace.model.topics import ReadTopic
from headrace.model.watermarks import WrittenWatermark

KEY: Final = "__key"
"""The column of the keys of Kafka's records."""


def elements(node: Node, records: DataFrame) -> DataFrame:
    """Returns the frame of a topic's elements: their columns, TIME and PART; and BAD, if records may be bad."""
    source, struct = source_of(node), from_arrow_schema(columns(node))
    position = F.concat(F.lit(f"{source.address.name}/"), PART, F.lit("@"), OFFSET)
    others = [name for name in (TIME, PART, OFFSET, LOW) if name in records.columns]
    keys = [] if source.key is None or source.key_format is not None else [_key_text(struct[source.key])]
    if source.format is not None:
        raw = [F.col(VALUE).alias(parsing.RAW), *([F.col(KEY).alias(RAW_KEY)] if source.key_format else [])]
        data = records.select(*raw, *keys, *others)
        decoded = DecodedRecords.of(node, columns(node)).frame(data)
        own = [F.col(parsing.quoted(name)) for name in struct.names]
        rows = decoded.select(*own, parsing.RAW, parsing.FLAW, *others)
        parsed = parsing.decoded_records(rows, struct, position)
    elif value_kind(values_of(source)) != "rows" and source.schema is not None:
        values = records.select(F.col(VALUE).cast("string").alias(parsing.TEXT), *keys, *others)
        parsed = parsing.json_records(values, struct, position)
    else:
        casts = [F.col(parsing.quoted(field.name)).cast(field.dataType) for field in struct]
        parsed = parsing.typed_records(records.select(*casts, *others), struct, struct.names, position)
    if not source.checks:
        return parsed.data.drop(OFFSET)
    time = F.col(TIME)
    if source.event_time is not None:
        time = event_time_of(node, parsed.data.select(*map(parsing.quoted, struct.names)), source.event_time)
    data = parsing.checked(parsed, source.event_time, time).drop(OFFSET)
    return data.withColumn(BAD, F.when(F.col(LOW).isNull(), F.col(BAD))) if LOW in others else data


def reads_watermarks(source: ReadTopic) -> bool:
    """Returns whether the watermark of a topic is what its writers say."""
    return isinstance(source.watermark, WrittenWatermark)


def columns(node: Node) -> pa.Schema:
    """Returns the columns of a topic's elements: those of `schema`, if it is given, or of its values."""
    source = source_of(node)
    values = values_of(source)
    available = value_columns(values)
    if source.schema is None:
        return _with_time(node, available)
    wanted = to_arrow_schema(_struct(node, source.schema), timezone="UTC")
    if source.key is not None:
        _check_key(node, source, wanted)
    if value_kind(values) == "rows":
        for field in wanted:
            _check_column(node, available, field)
    return _with_time(node, wanted)


def source_of(node: Node) -> ReadTopic:
    """Returns the transform of a node that reads a topic."""
    assert isinstance(node.transform, ReadTopic)
    return node.transform


def values_of(source: ReadTopic) -> str:
    """Returns what the values of a topic are: "json", "bytes", or columns as DDL text. The plan has looked it up."""
    assert source.values is not None
    return source.values


def _with_time(node: Node, columns: pa.Schema) -> pa.Schema:
    """Returns the columns. Refuses them if the event time is none of them."""
    source = source_of(node)
    if source.event_time is None or (source.event_time in columns.names and columns.names != [VALUE]):
        return columns
    if columns.names == [VALUE]:
        raise PipelineError(
            f"{node}: event_time={source.event_time!r} is no column, since values have none; name them with schema="
        )
    raise PipelineError(f"{node}: event_time={source.event_time!r} is no column; there are {', '.join(columns.names)}")


def _check_key(node: Node, source: ReadTopic, columns: pa.Schema) -> None:
    """Refuses a column of keys that is none, or not of a type that keys have."""
    if source.key not in columns.names:
        raise PipelineError(f"{node}: key={source.key!r} is no column; there are {', '.join(columns.names)}")
    kind = columns.field(source.key).type
    if source.key_format is None and kind not in (pa.string(), pa.binary()):
        raise PipelineError(
            f"{node}: key={source.key!r} is {kind} in schema=, but keys are text: declare a string, or binary, or "
            "give key_format="
        )


def _key_text(field: StructField) -> Column:
    """Returns the keys as text, in which bytes that are not UTF-8 are replaced, or as bytes."""
    text = F.make_valid_utf8(F.col(KEY).cast("string"))
    return (text if isinstance(field.dataType, StringType) else F.col(KEY)).alias(field.name)


def _check_column(node: Node, available: pa.Schema, wanted: pa.Field) -> None:
    """Refuses a column that the topic does not have, or not of this type; a number may be read as a wider type."""
    listed = ", ".join(f"{field.name} {field.type}" for field in available)
    index = available.get_field_index(wanted.name)
    if index < 0:
        raise PipelineError(
            f"{node}: schema has the column {wanted.name!r}, which the topic does not have; its columns are: {listed}"
        )
    kind = available.field(index).type
    wider = (kind, wanted.type) in ((pa.int32(), pa.int64()), (pa.float32(), pa.float64()))
    if kind != wanted.type and not wider:
        raise PipelineError(
            f"{node}: schema says that {wanted.name!r} is {wanted.type}, but the topic's is {kind}; its columns are: "
            f"{listed}"
        )


def _struct(node: Node, schema: Any) -> StructType:
    try:
        with quiet_analysis():
            return parsing.struct_of(schema)
    except AnalysisException as error:
        raise PipelineError(f"{node}: schema={schema!r} cannot be read as columns: {analysis_message(error)}") from None
    except TypeError as error:
        raise PipelineError(f"{node}: {error}") from None
