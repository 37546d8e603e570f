"""Sinks of a stream: each micro-batch goes to every sink once, told apart by its id, even if it is run again.

Files: a batch is a directory `batch-000042` in the sink's, which appears whole or not at all; a batch without elements
has none. `ReadText("out/*")` and its like read them all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from headrace.engine import sinks
from headrace.engine.bundles import TIME, FromBlocks
from headrace.engine.failures import blame
from headrace.engine.files import Folder
from headrace.engine.levels import Line, Outlet
from headrace.engine.routing import STATUS, sink_dests, sink_of, unpack
from headrace.model.sinks import Collect, ForEachBatch, WindowedValue, WriteFiles


class Delivery:
    """Callable by foreachBatch. Keeps what shards told about themselves last, by shard."""

    def __init__(self, line: Line) -> None:
        self.shards: dict[str, dict[str, Any]] = {}
        self.batches = 0
        self._outlets = {outlet.number: outlet for outlet in line.outlets}
        self._files = [outlet for outlet in line.outlets if isinstance(outlet.node.transform, WriteFiles)]

    def begin(self, spark: SparkSession, stream: str, *, fresh: bool) -> None:
        """Before the first batch: the directories of a new stream must be new, too."""
        for outlet in self._outlets.values():
            sink = outlet.node.transform
            if isinstance(sink, Collect):
                sink.collected.begin(stream)
            elif isinstance(sink, WriteFiles) and fresh:
                sinks.check_target(spark, outlet.node)
                Folder(spark, sink.path).delete()  # which is there only if it may be replaced

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        if self._files:
            frame = frame.persist()
        try:
            self._deliver(frame, batch_id)
        finally:
            if self._files:
                frame.unpersist()
        self.batches += 1

    def _deliver(self, frame: DataFrame, batch_id: int) -> None:
        in_files = F.lit(False)
        for outlet in self._files:
            in_files = in_files | F.col("dest").between(*sink_dests(outlet.number))
        # What goes to files stays where it is; only that there is something comes here.
        rows = frame.select("dest", F.when(~in_files, F.col("body")).alias("body")).toArrow()
        by_sink: dict[int, list[bytes]] = {}
        for dest, body in zip(rows.column("dest").to_pylist(), rows.column("body").to_pylist(), strict=True):
            by_sink.setdefault(sink_of(dest), []).append(body)
        for body in by_sink.pop(STATUS, ()):
            self.shards |= unpack(body)[0]
        for number, outlet in self._outlets.items():
            if number in by_sink:
                self._to(outlet, frame, by_sink[number], batch_id)

    def _to(self, outlet: Outlet, frame: DataFrame, bodies: list[bytes], batch_id: int) -> None:
        sink = outlet.node.transform
        if isinstance(sink, WriteFiles):
            rows = frame.where(F.col("dest").between(*sink_dests(outlet.number)))
            schema = from_arrow_schema(outlet.output.schema())
            format = "text" if isinstance(outlet.output, sinks.ToText) else sink.format
            write_batch(sink.path, format, rows.mapInArrow(_batches, schema).drop(TIME), batch_id)
        elif isinstance(sink, Collect):
            sink.collected.take(batch_id, elements_of(bodies))
        elif isinstance(sink, ForEachBatch):
            with blame(outlet.node.label):
                sink.fn(elements_of(bodies), batch_id)


def elements_of(bodies: list[bytes]) -> list[WindowedValue]:
    """The elements of bodies that hold blocks."""
    batches = (unpack(body)[1] for body in bodies)
    return sinks.windowed_values(list(FromBlocks().bundles(batches)))


def write_batch(path: str, format: str, data: DataFrame, batch_id: int) -> None:
    """Writes a batch beside its place and renames it, unless it is there already."""
    folder = Folder(data.sparkSession, path)
    name = f"batch-{batch_id:06d}"
    if folder.exists(name):
        return
    new = folder.folder(f".{name}.new")
    new.delete()
    data.write.format(format).save(str(new))
    new.rename(folder.folder(name))


def _batches(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in rows:
        for body in batch.column("body").to_pylist():
            yield unpack(body)[1]
