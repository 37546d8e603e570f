"""Reads the sources of a batch: elements of Create, files with their event times, topics."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import (
    StringType,
    StructField,
    StructType,
)

from headrace.edges.avrofiles import AvroError
from headrace.engine.catalyst import badrecords, csvfiles, parsing, relational
from headrace.engine.catalyst.analysis import analysis_message, quiet_analysis
from headrace.engine.catalyst.eventtime import event_time_of
from headrace.engine.connectors import jsonframes
from headrace.engine.connectors.avroframes import FILE, avro_columns, decoded
from headrace.engine.connectors.fileranges import FILES, as_ranges, local_files
from headrace.engine.connectors.tableframes import table_frame
from headrace.engine.connectors.topicreaders import reader_of
from headrace.engine.spark.files import located
from headrace.engine.worker.bundles import BLOCK_SCHEMA, Bundle, to_block
from headrace.engine.worker.hidden import BAD, BAD_TYPE, PART, TIME
from headrace.model.arrowtables import rows_table
from headrace.model.errors import PipelineError
from headrace.model.pipeline import Node
from headrace.model.sources import (
    Create,
    FileSource,
    ReadAvro,
    ReadCsv,
    ReadFiles,
    ReadJson,
    ReadParquet,
    ReadRows,
    ReadText,
)
from headrace.model.tablesources import TableSource
from headrace.model.times import MIN_TIME

_BLOCK_SIZE = 1000  # elements of Create in one block


def read(spark: SparkSession, node: Node, resources: ExitStack, conditions: Sequence[Node] = ()) -> DataFrame:
    """Returns the frame of a source: columns or blocks, and the event time; of Parquet, rows that meet `conditions`.

    What must stay open while the frame is read is closed with the `resources`.
    """
    source = node.transform
    if isinstance(source, Create):
        return _create(spark, node, source)
    if isinstance(source, FileSource):
        files = as_files(spark, node, source)
        if files.by_program:
            names = spark.read.format("binaryFile").schema(FILES).load([located(spark, path) for path in source.paths])
            files = files.read_by_program(names)
        data = reduce(lambda data, condition: relational.apply(condition, data), conditions, files.data)
        return elements(node, replace(files, data=data))
    if isinstance(source, TableSource):
        data = table_frame(spark, node, source, resources)
        return elements(node, Files(data, data.schema))
    if (reader := reader_of(node)) is not None:
        return reader.batch_frame(spark)
    raise NotImplementedError(f"no batch form for {source!r}")


def _create(spark: SparkSession, node: Node, source: Create) -> DataFrame:
    (pc, *_) = node.outputs
    if pc.has_columns:
        return _created_columns(spark, node, source)
    timed = any(time is not None for time in source.times)
    blocks = []
    for at in range(0, len(source.elements), _BLOCK_SIZE):
        times = [MIN_TIME if time is None else time for time in source.times[at : at + _BLOCK_SIZE]]
        blocks.append(
            to_block(Bundle(source.elements[at : at + _BLOCK_SIZE], np.array(times, np.int64) if timed else None))
        )
    return spark.createDataFrame(pa.table([pa.array(blocks, pa.binary())], schema=BLOCK_SCHEMA))


def _created_columns(spark: SparkSession, node: Node, source: Create) -> DataFrame:
    """Returns the frame of created elements that have columns."""
    data: DataFrame | None = source.frame
    if data is None:
        table = _columns_and_times(node, source)
        try:
            data = spark.createDataFrame(table)
        except PySparkException as error:
            raise PipelineError(f"{node}: a column has a type that Spark has not: {analysis_message(error)}") from None
    else:
        _check_names(node, data.columns)
        data = data.withColumn(TIME, F.lit(None).cast("long"))
    if not source.checks:
        return data
    own = data.drop(TIME)
    records = parsing.typed_records(own, own.schema, own.columns, F.lit("Create"))
    return parsing.checked(records, source.event_time, event_time_of(node, own, source.event_time))


def created_table(spark: SparkSession, node: Node, source: Create) -> pa.Table:
    """Returns created elements that have columns as a table, with TIME and, if they may be bad, BAD."""
    if source.frame is None and not source.checks:
        return _columns_and_times(node, source)
    data = badrecords.fail_on_bad(node, _created_columns(spark, node, source))
    if BAD in data.columns:  # Arrow refuses fields that are never null in a struct that is
        data = data.withColumn(BAD, F.col(BAD).cast(from_arrow_type(BAD_TYPE)))
    return data.toArrow()


def _columns_and_times(node: Node, source: Create) -> pa.Table:
    """Returns the columns of a table, of rows with a schema, or of elements of a plain type, and their times."""
    table, schema = source.table, node.outputs[0].schema
    if table is None and schema is not None:
        table = pa.table(schema.to_columns(source.elements), names=list(schema.names))
    elif table is None:
        table = rows_table(source.elements, _arrow_columns(node, source.schema))
    _check_names(node, table.column_names)
    times = source.times or [None] * table.num_rows
    return table.append_column(TIME, pa.array(times, pa.int64()))


def _arrow_columns(node: Node, schema: Any) -> pa.Schema:
    try:
        return to_arrow_schema(parsing.struct_of(schema), timezone="UTC")
    except AnalysisException as error:
        raise PipelineError(f"{node}: schema={schema!r} cannot be read as columns: {analysis_message(error)}") from None
    except TypeError as error:
        raise PipelineError(f"{node}: {error}") from None


def _check_names(node: Node, names: Sequence[str]) -> None:
    if own := [name for name in names if name in relational.HIDDEN]:
        raise PipelineError(f"{node}: the engine has a column {own[0]!r} of its own; rename yours")


@dataclass(frozen=True)
class Files:
    """Files as Spark reads them (JSON and most CSV as lines of text), and the columns that elements will have."""

    data: DataFrame
    columns: StructType
    named: tuple[str, ...] = ()  # columns that files have; others are in the names of directories
    by_program: tuple[str, ...] = ()  # files whose lines a program is to read; others may follow
    event_time: str | None = None

    def read_by_program(self, names: DataFrame) -> Files:
        """Returns the files as they are read by a program; `names` is the frame of what Spark lists."""
        ranges = as_ranges(names, self.by_program)
        return replace(self, data=jsonframes.lines_frame(ranges, self.columns, self.event_time))


def as_files(spark: SparkSession, node: Node, source: FileSource) -> Files:
    """Opens the files of a source."""
    paths = [located(spark, path) for path in source.paths]
    try:
        with quiet_analysis():
            return _files(spark, node, source, paths)
    except AvroError as error:
        raise PipelineError(f"{node}: {error}") from None
    except AnalysisException as error:
        if "PATH_NOT_FOUND" in (error.getCondition() or ""):
            raise PipelineError(
                f"{node}: there is no file at {_missing(source, error)}; check the path (globs such as data/*.txt work)"
            ) from None
        raise PipelineError(f"{node}: {analysis_message(error)}") from None


def _files(spark: SparkSession, node: Node, source: FileSource, paths: list[str]) -> Files:
    reader = spark.read.options(**options_of(source))
    if not isinstance(source, ReadRows):
        data = reader.format(source.format).load(paths)
        return Files(data, data.schema)
    columns = None if source.schema is None else parsing.struct_of(source.schema)
    if isinstance(source, ReadAvro):
        data = reader.format(format_of(source)).load(paths)
        return Files(data, avro_columns(data) if columns is None else columns)
    if isinstance(source, ReadParquet):
        data = (reader if columns is None else reader.schema(columns)).parquet(*paths)
        return Files(data, data.schema)
    lines = spark.read.text(paths)
    if isinstance(source, ReadCsv):
        return _csv_files(spark, node, source, paths, columns, lines.columns[1:])
    if columns is None:
        columns = reader.option("inferSchema", True).format(source.format).load(paths).schema
        columns = StructType([field for field in columns if field.name != parsing.CORRUPT])
    others = [field for field in lines.schema.fields[1:] if field.name not in columns.names]
    files = [] if others else local_files(spark, source, lines) or []
    if not isinstance(source, ReadJson) or not jsonframes.is_read_by_program(spark, source, files, columns):
        files = []
    return Files(lines, StructType([*columns, *others]), by_program=tuple(files), event_time=source.event_time)


def _csv_files(
    spark: SparkSession,
    node: Node,
    source: ReadCsv,
    paths: list[str],
    columns: StructType | None,
    in_paths: Sequence[str],
) -> Files:
    """Opens CSV files; the columns `in_paths` are in the names of directories."""
    header = _header(spark, source, paths, in_paths)
    if columns is None:
        columns = spark.read.options(**csvfiles.infer_options(source.csv)).csv(paths).schema
    else:
        _check_order(node, [name for name in columns.names if name not in in_paths], source.csv.names(header))
    csvfiles.check_columns(node, columns)
    named = [field for field in columns if field.name not in in_paths]
    # The column of lines has the header as its name: of each file whose header is another name, Spark warns.
    texts = [*(field.name for field in named), parsing.CORRUPT] if source.csv.multi_line else header or [parsing.TEXT]
    read = [*(StructField(name, StringType()) for name in texts), *(each for each in columns if each not in named)]
    data = spark.read.options(**options_of(source)).schema(StructType(read)).csv(paths)
    others = [field for field in data.schema if field.name in in_paths]
    return Files(data, StructType([*named, *others]), tuple(field.name for field in named))


def _header(spark: SparkSession, source: ReadCsv, paths: list[str], in_paths: Sequence[str]) -> list[str]:
    """Returns the header of the first file, as columns of Spark's: names or a whole line; nothing if there is none."""
    if not source.csv.header:
        return []
    try:
        columns = spark.read.options(**options_of(source)).csv(paths).columns
    except AnalysisException:  # there is no file yet
        return []
    others = {name.casefold() for name in in_paths}
    return [name for name in columns if name.casefold() not in others]


def _check_order(node: Node, names: list[str], header: list[str]) -> None:
    """Refuses a schema that has a name of the header in another place than the header."""
    places = {name.casefold(): place for place, name in reversed([*enumerate(header, 1)])}
    for place, name in enumerate(names, 1):
        if places.get(name.casefold(), place) != place:
            raise PipelineError(
                f"{node}: the column {name!r} is number {place} in the schema and number {places[name.casefold()]} in "
                f"the header ({', '.join(header)}); a schema has the columns in the order of the file"
            )


def options_of(source: FileSource) -> dict[str, Any]:
    """Returns Spark's options for the files of a source."""
    if isinstance(source, ReadCsv):
        return csvfiles.read_options(source.csv)
    return {"columnNameOfCorruptRecord": parsing.CORRUPT}


def format_of(source: FileSource) -> str:
    """Returns the format in which Spark reads the files of a source."""
    return {"json": "text", "avro": "binaryFile"}.get(source.format, source.format)


def elements(node: Node, files: Files) -> DataFrame:
    """Returns the frame of a file source: its columns, the event time and, if records may be bad, BAD."""
    source, data = node.transform, files.data
    if isinstance(source, ReadText) and source.with_filename:
        data = data.select(parsing.file_name().alias("filename"), F.col("value").alias("line"))
    if isinstance(source, ReadFiles):
        data = data.select(parsing.local_path(F.col("path")).alias("filename"), "content")
        if source.text:
            return parsing.checked(parsing.whole_texts(data), None, F.lit(None).cast("long"))
    if isinstance(source, ReadAvro):
        data = decoded(data, files.columns, tuple(name for name in (PART,) if name in data.columns))
    if not isinstance(source, ReadRows | TableSource) or not source.checks:
        return data.drop(FILE).withColumn(TIME, F.lit(None).cast("long"))
    position = F.lit(source.what) if isinstance(source, TableSource) else parsing.file_position()
    if isinstance(source, ReadJson) and FILE in data.columns:
        own, name = data.select(*map(parsing.quoted, files.columns.names)), source.event_time
        return parsing.partly_read(
            data, files.columns, F.col(FILE), name, lambda value: event_time_of(node, own, name, value=value)
        ).drop(FILE)
    if isinstance(source, ReadJson):
        lines = data.withColumnRenamed("value", parsing.TEXT).where(F.col(parsing.TEXT).rlike(r"\S"))
        records = parsing.json_records(lines, files.columns, position)
    elif isinstance(source, ReadCsv):
        records = csvfiles.csv_records(data, files.columns, files.named, source.csv, position)
    else:
        shown = files.columns.names if source.handles_exceptions else [str(source.event_time)]
        if isinstance(source, ReadAvro):
            position = parsing.local_path(F.col(FILE))
        records = parsing.typed_records(data, files.columns, shown, position)
    time = event_time_of(node, records.data.select(*map(parsing.quoted, files.columns.names)), source.event_time)
    return parsing.checked(records, source.event_time, time).drop(FILE)


def timed_rows(node: Node, files: Files) -> DataFrame:
    """Returns rows that have types, with the event time; a row that is bad has none, and nothing says why."""
    assert isinstance(node.transform, ReadRows)
    own = files.data.select(*map(parsing.quoted, files.columns.names))
    return files.data.withColumn(TIME, event_time_of(node, own, node.transform.event_time))


def _missing(source: FileSource, error: AnalysisException) -> str:
    path = (error.getMessageParameters() or {}).get("path")
    return repr(path.removeprefix("file:")) if path else " or ".join(map(repr, source.paths))
