"""Reads Avro files as frames, and writes frames as Avro files.

Files are read by Spark, as bytes, so that it knows which of them a stream has read; workers decode them. Workers encode
files, too, and the driver writes them: so a task that Spark repeats writes nothing twice, on any file system.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from headrace.edges.avrofiles import HEADER_BYTES, AvroError, decode, encode, schema_of_file, schema_of_rows
from headrace.engine.spark.files import Folder
from headrace.engine.spark.persistence import computed
from headrace.model.errors import PipelineError
from headrace.model.pipeline import Node

FILE: Final = "__file"
"""The column of a decoded row's file."""
_ENCODED: Final = pa.schema([("content", pa.binary()), ("rows", pa.int64())])


def avro_columns(files: DataFrame) -> StructType:
    """Returns the columns of the files in a frame of binaryFile: those of one of them."""
    header = files.select("path", F.substring("content", 1, HEADER_BYTES).alias("header")).first()
    if header is None:
        raise AvroError("there is no file, so its columns are unknown; give a schema=...")
    try:
        return from_arrow_schema(schema_of_file(bytes(header.header)))
    except AvroError as error:
        raise AvroError(f"{header.path.removeprefix('file:')}: {error}") from None


def decoded(files: DataFrame, columns: StructType, carried: tuple[str, ...]) -> DataFrame:
    """Returns the rows of the files in a frame of binaryFile, with FILE and columns of the frame that are `carried`."""
    schema = to_arrow_schema(columns, timezone="UTC")
    repeated = files.select(F.col("path").alias(FILE), *carried)
    rows = StructType([*columns, *repeated.schema])
    return files.select("path", *carried, "content").mapInArrow(AvroDecoder(schema), rows)


def write_avro(node: Node, data: DataFrame, folder: Folder) -> None:
    """Writes the rows of a frame as files of a directory, beside those that are there."""
    schema = to_arrow_schema(data.schema, timezone="UTC")
    try:
        schema_of_rows(schema)
    except AvroError as error:
        raise PipelineError(f"{node}: {error}") from None
    folder.make()
    packed = data.mapInArrow(AvroEncoder(schema), from_arrow_schema(_ENCODED))
    local, number = folder.local, len(folder.names())
    with computed(packed):
        for content, rows in packed.toLocalIterator(prefetchPartitions=True):
            if rows or number == 0:  # the first tells the columns, even if there are no rows
                name = f"part-{number:05d}.avro"
                if local is None:
                    folder.write(name, bytes(content))
                else:
                    (local / name).write_bytes(content)
                number += 1


@dataclass(frozen=True)
class AvroDecoder:
    """Decodes files: their path, carried columns and content; callable by mapInArrow."""

    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            *of_file, contents = batch.columns
            for at, content in enumerate(contents):
                try:
                    for rows in decode(content.as_py(), self.schema):
                        repeated = [pa.repeat(column[at], rows.num_rows) for column in of_file]
                        names = [*self.schema.names, FILE, *batch.schema.names[1:-1]]
                        yield pa.record_batch([*rows.columns, *repeated], names=names)
                except AvroError as error:
                    raise AvroError(f"{batch.column(0)[at].as_py().removeprefix('file:')}: {error}") from None


@dataclass(frozen=True)
class AvroEncoder:
    """Encodes rows as files; callable by mapInArrow."""

    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for content, rows in encode(batches, self.schema):
            yield pa.record_batch([[content], [rows]], schema=_ENCODED)
