"""Writes the sinks of a batch: directories that appear whole or not at all, and elements collected in the driver."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from headrace.edges.outputs import MANIFEST, seal
from headrace.engine.catalyst import csvfiles
from headrace.engine.columns.arrowbytes import arrow_bytes
from headrace.engine.connectors.avroframes import write_avro
from headrace.engine.plan.stages import Columns, Form, Text
from headrace.engine.spark import files
from headrace.engine.spark.persistence import computed
from headrace.engine.worker.bundles import Bundle, FromBlocks, FromColumns
from headrace.engine.worker.hidden import END, START, TIME
from headrace.model.errors import PipelineError
from headrace.model.panes import PaneInfo
from headrace.model.pipeline import Node
from headrace.model.sinks import ForEachArrow, WindowedValue, WriteAvro, WriteCsv, WriteFiles
from headrace.model.windows import Window


def check_target(spark: SparkSession, node: Node, *, clears: bool = False) -> None:
    """Refuses a directory that exists or cannot be made, before anything runs.

    `clears`: one that may be replaced is cleared before anything is written.
    """
    sink = node.transform
    if not isinstance(sink, WriteFiles):
        return
    file_system, target = files.file_system(spark, sink.path)
    folder = files.Folder(spark, sink.path)
    if sink.existing == "refuse" and folder.exists():
        unfinished = "" if folder.renames or folder.exists(MANIFEST) else " (without a manifest: no run completed it)"
        raise PipelineError(
            f"{node}: {sink.path!r} exists already{unfinished}; write elsewhere, or say existing='replace'"
        )
    if not (folder.renames or clears) and folder.exists():
        raise PipelineError(
            f"{node}: existing='replace' puts a directory in the place of another by a rename, which is not one step "
            f"at {sink.path!r}; write to a new directory, or delete this one first"
        )
    attempt = files.path_of(spark, f"{target.getParent()}/.{target.getName()}.new-{uuid.uuid4().hex[:12]}")
    try:
        made = file_system.mkdirs(attempt)
    except Py4JJavaError as error:
        reason: str | None = error.java_exception.getMessage()
        raise PipelineError(f"{_not_writable(node, sink)}: {reason}") from None
    if not made:
        raise PipelineError(_not_writable(node, sink))
    file_system.delete(attempt, True)


def _not_writable(node: Node, sink: WriteFiles) -> str:
    return f"{node}: {sink.path!r} cannot be written to: this user may not make it, or its parent is no directory"


def write_files(
    spark: SparkSession, node: Node, data: DataFrame, form: Form, check: Callable[[], None] = lambda: None
) -> None:
    """Writes a directory and its manifest under another name, and renames it once it is complete and checked.

    In an object store, files are written where they are to be, and the manifest comes last.
    """
    sink, counted = node.transform, Observation()
    assert isinstance(sink, WriteFiles)
    written = data.drop(TIME, START, END).observe(counted, F.count(F.lit(1)).alias("rows"))
    if not (place := files.Folder(spark, sink.path)).renames:
        try:
            save_files(node, written, place, text=isinstance(form, Text))
            check()
        except BaseException:
            place.delete()
            raise
        seal(place, stream=None, sink=node.label, batch=0, rows=counted.get["rows"])
        return
    file_system, target = files.file_system(spark, sink.path)
    unique = uuid.uuid4().hex[:12]
    parent, name = target.getParent(), target.getName()
    new, old = (files.path_of(spark, f"{parent}/.{name}.{role}-{unique}") for role in ("new", "old"))
    try:
        folder = files.Folder(spark, str(new))
        save_files(node, written, folder, text=isinstance(form, Text))
        seal(folder, stream=None, sink=node.label, batch=0, rows=counted.get["rows"])
        check()
        if sink.existing == "replace" and file_system.exists(target):
            file_system.rename(target, old)
        if file_system.exists(target) or not file_system.rename(new, target):
            raise PipelineError(f"{sink}: {sink.path!r} appeared while the pipeline ran; nothing was written")
        file_system.delete(old, True)
    finally:
        file_system.delete(new, True)


def save_files(node: Node, data: DataFrame, folder: files.Folder, *, text: bool, append: bool = False) -> None:
    """Writes the files of a sink to a new directory, or beside others. `text`: the frame has lines of text already."""
    sink, mode = node.transform, "append" if append else "error"
    assert isinstance(sink, WriteFiles)
    if isinstance(sink, WriteAvro):
        write_avro(node, data, folder)
    elif isinstance(sink, WriteCsv):
        writer = csvfiles.written(node, data).write.format(sink.format).mode(mode)
        writer.options(**csvfiles.write_options(sink.csv)).save(str(folder))
    else:
        data.write.format("text" if text else sink.format).mode(mode).save(str(folder))


def call_for_each_batch(node: Node, data: DataFrame) -> None:
    """Calls the sink's function in the driver with each Arrow batch of a frame, once all are computed."""
    sink = node.transform
    assert isinstance(sink, ForEachArrow)
    ordered = data.repartitionByRange(sink.parts, *sink.order).sortWithinPartitions(*sink.order)
    packed = ordered.mapInArrow(_pack, "batch binary")
    with computed(packed):
        for row in packed.toLocalIterator(prefetchPartitions=True):
            with pa.ipc.open_stream(row[0]) as batches:
                for batch in batches:
                    sink.fn(batch)


def _pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Makes one binary value of each batch."""
    for batch in batches:
        if batch.num_rows:
            yield pa.record_batch({"batch": pa.array([arrow_bytes(batch)], pa.binary())})


def collect(data: DataFrame, form: Form, pane: PaneInfo) -> list[Bundle]:
    """Collects the elements of a frame in the driver."""
    table = data.toArrow()
    head = FromColumns(form.schema, pane) if isinstance(form, Columns) else FromBlocks()
    return list(head.bundles(iter(table.to_batches())))


def windowed_values(bundles: list[Bundle]) -> list[WindowedValue]:
    """Returns elements with their time, window and pane."""
    return [
        WindowedValue(element, time, Window(*window), bundle.pane, bundle.retraction)
        for bundle in bundles
        for element, time, window in zip(bundle.elements, bundle.all_times().tolist(), bundle.windows(), strict=True)
    ]
