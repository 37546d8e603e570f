"""From the records of a topic to elements, as columns: whose topic it is does not matter here.

A frame of records has the values' columns, or VALUE alone, and TIME, PART and OFFSET.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from headrace.engine.catalyst import parsing
from headrace.engine.catalyst.eventtime import event_time_of
from headrace.engine.connectors.fromrecords import OFFSET, columns_of, kind_of
from headrace.engine.worker.hidden import PART, TIME
from headrace.log.values import VALUE
from headrace.model.errors import PipelineError
from headrace.model.pipeline import Node
from headrace.model.topics import ReadTopic


def elements(node: Node, records: DataFrame) -> DataFrame:
    """The frame of a topic's elements: their columns, TIME and PART; and BAD, if records may be bad."""
    source, own = source_of(node), from_arrow_schema(columns(node))
    position = F.concat(F.lit(f"{source.address.name}/"), PART, F.lit("@"), OFFSET)
    if kind_of(values_of(source)) != "rows" and source.schema is not None:
        values = records.select(F.col(VALUE).cast("string").alias(parsing.TEXT), TIME, PART, OFFSET)
        read = parsing.json_records(values, own, position)
    else:
        casts = [F.col(parsing.quoted(field.name)).cast(field.dataType) for field in own]
        read = parsing.typed_records(records.select(*casts, TIME, PART, OFFSET), own, own.names, position)
    if not source.checks:
        return read.data.drop(OFFSET)
    time = F.col(TIME)
    if source.event_time is not None:
        time = event_time_of(node, read.data.select(*map(parsing.quoted, own.names)), source.event_time)
    return parsing.checked(read, source.event_time, time).drop(OFFSET)


def columns(node: Node) -> pa.Schema:
    """The columns of a topic's elements: those of `schema` or else of its values."""
    source = source_of(node)
    values = values_of(source)
    there = columns_of(values)
    if source.schema is None:
        return _with_time(node, there)
    asked = to_arrow_schema(_struct(node, source.schema), timezone="UTC")
    if kind_of(values) == "rows":
        for field in asked:
            _check_column(node, there, field)
    return _with_time(node, asked)


def source_of(node: Node) -> ReadTopic:
    """Returns the transform of a node that reads a topic."""
    assert isinstance(node.transform, ReadTopic)
    return node.transform


def values_of(source: ReadTopic) -> str:
    """What the values of a topic are, which a plan has looked up."""
    assert source.values is not None
    return source.values


def _with_time(node: Node, columns: pa.Schema) -> pa.Schema:
    """The columns, if the event time is one of them."""
    source = source_of(node)
    if source.event_time is None or (source.event_time in columns.names and columns.names != [VALUE]):
        return columns
    if columns.names == [VALUE]:
        raise PipelineError(
            f"{node}: event_time={source.event_time!r} is no column, since values have none; say schema="
        )
    raise PipelineError(f"{node}: event_time={source.event_time!r} is no column; there are {', '.join(columns.names)}")


def _check_column(node: Node, there: pa.Schema, asked: pa.Field) -> None:
    """Refuses a column that the topic does not have, or not of this type; whole and real numbers may be asked wider."""
    listed = ", ".join(f"{field.name} {field.type}" for field in there)
    index = there.get_field_index(asked.name)
    if index < 0:
        raise PipelineError(f"{node}: schema has the column {asked.name!r}, which the topic does not: {listed}")
    kind = there.field(index).type
    wider = (kind, asked.type) in ((pa.int32(), pa.int64()), (pa.float32(), pa.float64()))
    if kind != asked.type and not wider:
        raise PipelineError(
            f"{node}: schema says that {asked.name!r} is {asked.type}, but the topic's is {kind}; its columns are: "
            f"{listed}"
        )


def _struct(node: Node, schema: Any) -> StructType:
    try:
        return parsing.struct_of(schema)
    except AnalysisException as error:
        raise PipelineError(f"{node}: schema={schema!r} is no columns: {str(error).splitlines()[0]}") from None
    except TypeError as error:
        raise PipelineError(f"{node}: {error}") from None
