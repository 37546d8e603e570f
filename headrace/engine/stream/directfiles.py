"""Decides which files a stream's own program reads, instead of Spark, and deals them to tasks.

Spark lists the files and logs which of them a micro-batch has, as ever; so a stream may change from one way to the
other between two starts. A file that the program cannot be sure to read as Spark does ends the query, and the stream
goes on with Spark's reader, which may know better or say what is wrong.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from os.path import getsize
from pathlib import PurePath
from typing import Final
from urllib.parse import unquote

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from headrace.edges.parquetfiles import UnsureRead, is_plain
from headrace.engine.batch.sources import as_files
from headrace.engine.connectors.directread import DirectRead, pruned
from headrace.engine.connectors.fromfiles import PATH, SHARE, SHARES, FileRecords
from headrace.engine.connectors.fromrecords import has_times
from headrace.engine.spark.files import Folder
from headrace.engine.stream.sources import Sources, watermarks_of
from headrace.engine.worker.hidden import PART
from headrace.model.pipeline import Node
from headrace.model.sources import ReadParquet

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

_SHARE: Final = 32 << 20
"""Bytes of a file that one task is to read, if there are files that are larger."""

_OTHER_COLUMNS: Final = "assertion failed: Invalid batch"
"""Spark's words for a file in a directory such as `day=3`, which is a column that other files have not."""


def direct_files(node: Node, sources: Sources, read: list[set[str] | None]) -> DirectRead | None:
    """Returns how a stream's program reads these columns of a source's files; None if Spark is to read them.

    The program reads Parquet on local disks, in columns of plain types, with times that are times or whole seconds. To
    describe whole records that are bad it leaves to Spark.
    """
    source, spark = node.transform, sources.spark
    if not isinstance(source, ReadParquet) or source.handles_exceptions or watermarks_of(node) == "punctuated":
        return None
    if any(spark.conf.get(name) != value for name, value in _SETTINGS.items()):
        return None
    if any(Folder(spark, path).local is None for path in source.paths):
        return None
    data = as_files(spark, node, source).data
    files = [unquote(name).removeprefix("file://") for name in data.inputFiles()]
    if any("=" in str(PurePath(name).parent) for name in files):  # which may be a column
        return None
    columns = to_arrow_schema(data.schema, timezone="UTC")
    wanted, time = pruned(columns, read), None
    if source.event_time is not None:
        if source.event_time not in columns.names or not has_times(columns.field(source.event_time).type):
            return None
        time = columns.field(source.event_time)
    if not all(is_plain(field.type) for field in wanted):
        return None
    ranges = partial(_ranges, node, source, sources, spread=any(map(_is_large, files)))
    return DirectRead(columns, ranges, FileRecords(wanted, time), checks=time is not None)


def _ranges(node: Node, source: ReadParquet, sources: Sources, *, spread: bool) -> DataFrame:
    """Returns the frame of files, or of their shares, dealt to all tasks, where files are known to be large."""
    names = sources.file_names(node, source)
    of_several = [name for name in (PART,) if name in names.columns]
    if not spread:
        return names.select(PATH, F.lit(0).alias(SHARE), F.lit(1).alias(SHARES), *of_several)
    shares = F.ceil(F.col("length") / _SHARE).cast("int")
    dealt = names.select(
        PATH, F.explode(F.sequence(F.lit(0), shares - 1)).alias(SHARE), shares.alias(SHARES), *of_several
    )
    return dealt.repartition(sources.spark.sparkContext.defaultParallelism)


def _is_large(name: str) -> bool:
    with suppress(OSError):  # it may be gone
        return getsize(name) > _SHARE
    return False


def is_left_to_spark(error: BaseException) -> bool:
    """Tells whether a query failed because its program was not sure how Spark reads a file."""
    return UnsureRead.__name__ in str(error) or _OTHER_COLUMNS in str(error)
