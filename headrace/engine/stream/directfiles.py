"""Decides which files a stream's own program reads, instead of Spark, and deals them to tasks.

Spark lists the files and logs which of them a micro-batch has, as ever; so a stream may change from one way to the
other between two starts. A file that the program cannot be sure to read as Spark does ends the query, and the stream
goes on with Spark's reader, which may know better or say what is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from headrace.edges.parquetfiles import UnsureRead, is_plain
from headrace.engine.batch.sources import as_files
from headrace.engine.columns.expressions import UnsureColumns
from headrace.engine.connectors.directread import ColumnsRead, DirectRead, pruned
from headrace.engine.connectors.fileranges import as_ranges, local_files
from headrace.engine.connectors.fromfiles import FileRecords
from headrace.engine.connectors.fromlines import LineRecords
from headrace.engine.connectors.fromrecords import has_times
from headrace.engine.stream.sources import Sources, watermarks_of
from headrace.model.pipeline import Node
from headrace.model.sources import FileSource, ReadJson, ReadParquet, ReadRows

_SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.parquet.fieldId.read.enabled": "false",
    "spark.sql.parquet.int96TimestampConversion": "false",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
}
"""Settings of Spark's that change what it reads, and the values with which it reads what the program reads."""

_OTHER_COLUMNS: Final = "assertion failed: Invalid batch"
"""Spark's words for a file in a directory such as `day=3`, which is a column that other files have not."""


def direct_files(node: Node, sources: Sources, read: ColumnsRead) -> DirectRead | None:
    """Returns how a stream's program reads these columns of a source's files; None if Spark is to read them.

    The program reads files on local disks: Parquet, and JSON lines by the rule of `jsonframes`, in columns of plain
    types, with times that are times or whole seconds. To describe whole records that are bad it leaves to Spark.
    """
    source = node.transform
    if not isinstance(source, ReadRows) or source.handles_exceptions or watermarks_of(node) == "punctuated":
        return None
    if isinstance(source, ReadParquet):
        return _parquet(node, source, sources, read)
    return _lines(node, source, sources, read) if isinstance(source, ReadJson) else None


def _parquet(node: Node, source: ReadParquet, sources: Sources, read: ColumnsRead) -> DirectRead | None:
    spark = sources.spark
    if any(spark.conf.get(name) != value for name, value in _SETTINGS.items()):
        return None
    data = as_files(spark, node, source).data
    files = local_files(spark, source, data)
    if files is None:
        return None
    columns = to_arrow_schema(data.schema, timezone="UTC")
    time = None
    if source.event_time is not None:
        if source.event_time not in columns.names or not has_times(columns.field(source.event_time).type):
            return None
        time = columns.field(source.event_time)
    if (names := read(columns)) is None or not all(is_plain(field.type) for field in pruned(columns, names)):
        return None
    records = FileRecords(pruned(columns, names), time)
    return DirectRead(columns, partial(_ranges, node, source, sources, files), records, checks=time is not None)


def _lines(node: Node, source: ReadJson, sources: Sources, read: ColumnsRead) -> DirectRead | None:
    there = as_files(sources.spark, node, source)
    columns = to_arrow_schema(there.columns, timezone="UTC")
    if not there.by_program or source.event_time not in (None, *columns.names):
        return None
    if (names := read(columns)) is None:
        return None
    records = LineRecords(columns, tuple(pruned(columns, names).names), source.event_time)
    return DirectRead(columns, partial(_ranges, node, source, sources, there.by_program), records, checks=False)


def _ranges(node: Node, source: FileSource, sources: Sources, files: Sequence[str]) -> DataFrame:
    return as_ranges(sources.file_names(node, source), files)


def is_left_to_spark(error: BaseException) -> bool:
    """Tells whether a query failed because its program was not sure what Spark reads, or computes."""
    return any(each in str(error) for each in (UnsureRead.__name__, UnsureColumns.__name__, _OTHER_COLUMNS))
