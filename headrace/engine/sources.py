"""Sources of a batch: Create's elements, and files of lines or rows with their event times."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import NumericType, StringType, TimestampNTZType, TimestampType

from headrace.engine.bundles import BLOCK_SCHEMA, TIME, Bundle, to_block
from headrace.engine.files import located
from headrace.model.errors import PipelineError
from headrace.model.pipeline import Node
from headrace.model.schema import schema_of
from headrace.model.sources import Create, ReadCsv, ReadFiles, ReadRows
from headrace.model.times import MIN_TIME
from headrace.model.topics import ReadTopic

_BLOCK_SIZE = 1000  # elements of Create in one block


def read(spark: SparkSession, node: Node) -> DataFrame:
    """The frame of a source: its columns or blocks, and the event time."""
    source = node.transform
    if isinstance(source, Create):
        return _create(spark, node, source)
    if isinstance(source, ReadFiles):
        return _read_files(spark, node, source)
    if isinstance(source, ReadTopic):
        from headrace.edges import kafkasource, topicstreams  # which read event times as files do

        if kafkasource.is_kafka(node):
            return kafkasource.batch_frame(spark, node)
        return topicstreams.batch_frame(spark, node)
    raise NotImplementedError(f"no batch form for {source!r}")


def _create(spark: SparkSession, node: Node, source: Create) -> DataFrame:
    (pc,) = node.outputs
    timed = any(time is not None for time in source.times)
    if pc.schema is not None:
        columns = pc.schema.to_columns(source.elements)
        table = pa.table([*columns, pa.array(source.times, pa.int64())], names=[*pc.schema.names, TIME])
        return spark.createDataFrame(table)
    blocks = []
    for at in range(0, len(source.elements), _BLOCK_SIZE):
        times = [MIN_TIME if time is None else time for time in source.times[at : at + _BLOCK_SIZE]]
        blocks.append(
            to_block(Bundle(source.elements[at : at + _BLOCK_SIZE], np.array(times, np.int64) if timed else None))
        )
    return spark.createDataFrame(pa.table([pa.array(blocks, pa.binary())], schema=BLOCK_SCHEMA))


def _read_files(spark: SparkSession, node: Node, source: ReadFiles) -> DataFrame:
    reader = spark.read
    if isinstance(source, ReadRows) and source.schema is not None:
        own = schema_of(source.schema) if isinstance(source.schema, type) else None
        reader = reader.schema(source.schema if own is None else _spark_schema(own))
    if isinstance(source, ReadCsv):
        reader = reader.option("header", source.header).option("inferSchema", source.schema is None)
    try:
        data = reader.format(source.format).load([located(spark, path) for path in source.paths])
    except AnalysisException as error:
        if "PATH_NOT_FOUND" in (error.getCondition() or ""):
            raise PipelineError(
                f"{node}: there is no file at {_missing(source, error)}; check the path (globs such as data/*.txt work)"
            ) from None
        raise PipelineError(f"{node}: {_first_line(error)}") from None
    return data.withColumn(TIME, event_time_of(node, data, getattr(source, "event_time", None)))


def _spark_schema(own: Any) -> Any:
    return from_arrow_schema(pa.schema(list(zip(own.names, own.types, strict=True))))


def _missing(source: ReadFiles, error: AnalysisException) -> str:
    path = (error.getMessageParameters() or {}).get("path")
    return repr(path.removeprefix("file:")) if path else " or ".join(map(repr, source.paths))


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]


def event_time_of(node: Node, data: DataFrame, column: str | None) -> Column:
    """Microseconds since the epoch from a column of timestamps, ISO 8601 text or seconds."""
    if column is None:
        return F.lit(None).cast("long")
    if column not in data.columns:
        raise PipelineError(f"{node}: event_time={column!r} is no column; there are {', '.join(data.columns)}")
    kind = data.schema[column].dataType
    if isinstance(kind, TimestampType | TimestampNTZType):
        return F.unix_micros(F.col(column).cast("timestamp"))
    if isinstance(kind, StringType):
        return F.unix_micros(F.to_timestamp(column))
    if isinstance(kind, NumericType):
        return F.round(F.col(column).cast("decimal(38,6)") * 1_000_000).cast("long")
    raise PipelineError(
        f"{node}: event_time={column!r} is a {kind.simpleString()}; it must be a timestamp, text or seconds"
    )
