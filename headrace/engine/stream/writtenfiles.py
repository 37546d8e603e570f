"""Decides which sinks' files the programs of a stream write, instead of Spark, and gives those files their place.

The program that has the elements of a sink writes them as Parquet, in a directory for the run, and sends the driver the
names of files. Spark's tasks may fail, come twice, or outlive their batch; only files whose names have arrived are
output. The files are what Spark's own writer would have written: the same columns, types and notes.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from headrace.edges.outputs import WrittenFile, seal_local
from headrace.edges.parquetparts import is_writable
from headrace.engine.plan.line import Line, Outlet
from headrace.engine.shard.senders import ToSink
from headrace.engine.shard.wire import unpack
from headrace.engine.spark.files import Folder
from headrace.engine.worker.bundles import ToColumns
from headrace.engine.worker.hidden import TIME
from headrace.engine.worker.toparquet import ToParquet, parts_of
from headrace.model.pipeline import PTransform
from headrace.model.sinks import WriteParquet

_SETTINGS: Final = {
    "spark.sql.parquet.compression.codec": "snappy",
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
    "spark.sql.files.maxRecordsPerFile": "0",
}
"""Settings of Spark's that change what it writes, and the values with which it writes what a program writes."""

_TIMES: Final = "spark.sql.parquet.outputTimestampType"
_INT96: Final = {"INT96": True, "TIMESTAMP_MICROS": False}

_STAGING: Final = ".parts-"
"""How the names of directories begin in which workers write files."""


def written_by_workers(spark: SparkSession, line: Line, run: str) -> Line:
    """Returns the line with outputs that write files themselves, where these are Spark's."""
    outlets = [replace(outlet, output=_to_parquet(spark, outlet, run) or outlet.output) for outlet in line.outlets]
    outputs = [
        replace(each, batches=outlets[each.number].output) if isinstance(each, ToSink) else each
        for each in line.outputs
    ]
    return replace(line, outlets=outlets, outputs=outputs)


def _to_parquet(spark: SparkSession, outlet: Outlet, run: str) -> ToParquet | None:
    """Returns the output that writes a sink's files; None if Spark is to write them."""
    sink, columns = outlet.node.transform, outlet.output
    if not isinstance(columns, ToColumns) or not writes(spark, sink, columns.schema()):
        return None
    assert isinstance(sink, WriteParquet)
    folder = Folder(spark, sink.path).local
    assert folder is not None
    return output_of(columns, folder / f"{_STAGING}{run}", spark.version, int96=_INT96[str(spark.conf.get(_TIMES))])


def writes(spark: SparkSession, sink: PTransform, columns: pa.Schema) -> bool:
    """Returns whether programs write these columns to a sink.

    Programs write Parquet to local disks, in columns of plain types and lists of them.
    """
    if not isinstance(sink, WriteParquet) or Folder(spark, sink.path).local is None:
        return False
    times = spark.conf.get(_TIMES)
    if times not in _INT96 or any(spark.conf.get(name) != each for name, each in _SETTINGS.items()):
        return False
    fields = [field for field in columns if field.name != TIME]
    names, kinds = {field.name.casefold() for field in fields}, [field.type for field in fields]
    if not fields or len(names) < len(fields) or not all(map(is_writable, kinds)):
        return False
    return not (_INT96[times] and any(map(has_local_times, kinds)))


def has_local_times(kind: pa.DataType) -> bool:
    """Tells whether a type is of times without a zone, or lists of them: Spark never writes these with 96 bits."""
    return has_local_times(kind.value_type) if pa.types.is_list(kind) else kind == pa.timestamp("us")


def output_of(columns: ToColumns, staging: Path, version: str, *, int96: bool) -> ToParquet:
    """Makes the output that writes these columns to a directory, with the notes that Spark writes into its files."""
    schema = from_arrow_schema(columns.schema().remove(columns.schema().get_field_index(TIME)))
    notes = {"org.apache.spark.version": version, "org.apache.spark.sql.parquet.row.metadata": schema.json()}
    return ToParquet(columns, str(staging), notes, int96)


def remove_stale(output: ToParquet) -> None:
    """Removes what workers of an earlier run may have left in the directory of a sink."""
    for staging in Path(output.staging).parent.glob(f"{_STAGING}*"):
        shutil.rmtree(staging, ignore_errors=True)


def place(output: ToParquet, bodies: Sequence[bytes], stream: str | None, batch: int) -> None:
    """Makes the directory of a batch from the files that these rows in flight name; if it is there, removes the files.

    The directory is made under another name, and renamed when it is complete.
    """
    staging = Path(output.staging)
    folder = staging.parent / f"batch-{batch:06d}"
    if not folder.exists():
        new = folder.with_name(f".{folder.name}.new")
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir()
        files, rows = [], 0
        for number, (part, count) in enumerate(part for body in bodies for part in parts_of(unpack(body)[1])):
            named = WrittenFile(f"part-{number:05d}-{part.name}.snappy.parquet", part.bytes, part.crc32)
            (staging / part.name).rename(new / named.name)
            files.append(named)
            rows += count
        (new / "_SUCCESS").touch()
        seal_local(new, stream=stream, sink=output.columns.label, batch=batch, rows=rows, files=files)
        new.rename(folder)
    shutil.rmtree(staging, ignore_errors=True)
