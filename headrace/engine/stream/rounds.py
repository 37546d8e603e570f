"""Rows that shards send to shards of the next micro-batch: a file in the checkpoint, which that micro-batch reads.

The file of a micro-batch is written while it is delivered, under its number, so the micro-batch that follows finds it,
and one that is run again replaces its own. The micro-batch before the last is committed, so what it read is removed.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from headrace.engine.shard.wire import WIRE, unpack
from headrace.engine.spark.files import Folder


class Rounds:
    """The rows in flight from one micro-batch to the next, in a directory of the checkpoint's."""

    def __init__(self, spark: SparkSession, control: Folder) -> None:
        self._spark, self._folder = spark, control.folder("rounds")

    def frame(self) -> DataFrame:
        """Makes the frame of what the micro-batch before sent."""
        self._folder.make()
        return self._spark.readStream.schema(from_arrow_schema(WIRE)).parquet(str(self._folder))

    def write(self, bodies: Sequence[bytes], batch_id: int) -> None:
        """Writes what a micro-batch sends to the next one."""
        self._remove(batch_id)  # that of an attempt that failed
        if bodies:
            rows = pa.Table.from_batches([unpack(body)[1] for body in bodies])
            sink = pa.BufferOutputStream()
            pyarrow.parquet.write_table(rows, sink, compression="none")
            self._folder.write(_name(batch_id), sink.getvalue().to_pybytes())
        self._remove(batch_id - 2)

    def _remove(self, batch_id: int) -> None:
        self._folder.folder(_name(batch_id)).delete()


def _name(batch_id: int) -> str:
    return f"batch-{batch_id:06d}.parquet"
