"""Opens the table of a data lake that a sink or a source names, whatever its format, and reads its rows as a frame."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from headrace.edges.lakes import LakeError, LakeFiles, LakeTable
from headrace.engine.catalyst import parsing
from headrace.engine.worker.blame import blame
from headrace.model.errors import PipelineError
from headrace.model.knowncolumns import no_column
from headrace.model.lakes import LakeSource, ReadDelta, ReadIceberg, WriteDelta, WriteIceberg, WriteLake
from headrace.model.pipeline import Node
from headrace.model.times import Int64Array

FILE: Final = "__file"
"""The number of a data file, in the order in which the table lists them."""
POSITION: Final = "__position"
"""The place of a row in its file."""
_DATA: Final = "__data"
_FILES: Final = pa.schema([(FILE, pa.int64()), (_DATA, pa.binary())])


def find_table(lake: WriteLake | LakeSource) -> LakeTable | None:
    """Opens the table; None if there is none."""
    if isinstance(lake, WriteDelta | ReadDelta):
        from headrace.edges.deltatables import DeltaLakeTable  # libraries that other sinks do not need

        return DeltaLakeTable.find(lake.path, lake.storage_options, getattr(lake, "version", None))
    assert isinstance(lake, WriteIceberg | ReadIceberg) and lake.table is not None
    from headrace.edges.icebergtables import IcebergLakeTable

    return IcebergLakeTable.find(lake.table, lake.catalog, getattr(lake, "snapshot", None))


def create_table(sink: WriteLake, columns: pa.Schema) -> LakeTable:
    """Creates the table of a sink."""
    if isinstance(sink, WriteDelta):
        from headrace.edges.deltatables import DeltaLakeTable

        return DeltaLakeTable.create(sink.path, sink.storage_options, columns)
    assert isinstance(sink, WriteIceberg)
    from headrace.edges.icebergtables import IcebergLakeTable

    return IcebergLakeTable.create(sink.table, sink.catalog, columns)


def lake_frame(spark: SparkSession, node: Node, source: LakeSource) -> DataFrame:
    """Returns the rows of a source's table, as of the version that it has now."""
    wanted = None if source.schema is None else parsing.struct_of(source.schema)
    try:
        table = find_table(source)
        if table is None:
            raise LakeError("there is no such table; check its name and where it is")
        columns = _selected(table.columns, wanted)
        files = table.data_files()
    except (LakeError, PipelineError) as error:
        raise PipelineError(f"{node}: {source}: {error}") from None
    data = rows_of(spark, node.label, table.files(), files, columns).drop(FILE, POSITION)
    if wanted is None:
        return data
    return data.select(*[F.col(parsing.quoted(field.name)).cast(field.dataType) for field in wanted])


def _selected(columns: pa.Schema, wanted: StructType | None) -> pa.Schema:
    """Returns the columns of a table that are wanted."""
    if wanted is None:
        return columns
    if missing := [name for name in wanted.names if name not in columns.names]:
        raise PipelineError(no_column(missing[0], columns.names))
    return pa.schema([columns.field(name) for name in wanted.names])


def rows_of(
    spark: SparkSession, label: str, access: LakeFiles, files: Sequence[bytes], columns: pa.Schema
) -> DataFrame:
    """Returns these columns of data files, with FILE and POSITION."""
    schema = pa.schema([*columns, (FILE, pa.int64()), (POSITION, pa.int64())])
    return file_frame(spark, files).mapInArrow(
        RowReader(label, access, tuple(columns.names)), from_arrow_schema(schema)
    )


def file_frame(spark: SparkSession, files: Sequence[bytes]) -> DataFrame:
    """Returns a frame of data files, of which each task gets a few."""
    table = pa.table([pa.array(range(len(files)), pa.int64()), pa.array(files, pa.binary())], schema=_FILES)
    return spark.createDataFrame(table).repartition(max(1, min(len(files), spark.sparkContext.defaultParallelism)))


@dataclass(frozen=True)
class RowReader:
    """Reads the rows of the data files it gets; callable by mapInArrow."""

    label: str
    files: LakeFiles
    columns: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                first = 0
                with blame(self.label):
                    for rows in self.files.read(row[_DATA], self.columns):
                        numbers = pa.repeat(pa.scalar(row[FILE], pa.int64()), rows.num_rows)
                        places = pa.array(range(first, first + rows.num_rows), pa.int64())
                        first += rows.num_rows
                        yield rows.append_column(FILE, numbers).append_column(POSITION, places)


@dataclass(frozen=True)
class RowWriter:
    """Writes the rows it gets to new data files, and gives these; callable by mapInArrow."""

    label: str
    files: LakeFiles

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with blame(self.label):
            for file in self.files.write(batches):
                yield pa.record_batch({_DATA: pa.array([file], pa.binary())})


def written(label: str, access: LakeFiles, rows: DataFrame) -> list[bytes]:
    """Writes rows to new data files, in workers, and returns these."""
    described = rows.mapInArrow(RowWriter(label, access), f"{_DATA} binary")
    return [bytes(row[0]) for row in described.collect()]


REWRITTEN: Final = pa.schema([(FILE, pa.int64()), ("deleted", pa.int64()), ("new", pa.binary())])


@dataclass(frozen=True)
class FileRewriter:
    """Writes data files anew, without the rows at POSITIONS; callable by mapInArrow.

    It gives a row for each file, with the number of rows that were left out, and one for each new file.
    """

    label: str
    files: LakeFiles
    columns: tuple[str, ...]
    positions: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                gone = np.sort(np.array(row[self.positions], np.int64))
                with blame(self.label):
                    new = list(self.files.write(self._remaining(row[_DATA], gone)))
                numbers = pa.array([row[FILE]] * (1 + len(new)), pa.int64())
                deleted = pa.array([len(gone)] + [0] * len(new), pa.int64())
                yield pa.record_batch([numbers, deleted, pa.array([None, *new], pa.binary())], schema=REWRITTEN)

    def _remaining(self, file: bytes, gone: Int64Array) -> Iterator[pa.RecordBatch]:
        """Yields the rows of a file but for those at these positions, which are in order."""
        first = 0
        for rows in self.files.read(file, self.columns):
            remaining = np.ones(rows.num_rows, np.bool_)
            low, high = np.searchsorted(gone, [first, first + rows.num_rows])
            remaining[gone[low:high] - first] = False
            first += rows.num_rows
            yield rows.filter(pa.array(remaining))
