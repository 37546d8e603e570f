"""Reads the state of a stream's tasks and the offsets of its sources from its checkpoint, while it does not run.

That is how a stream goes on with another number of tasks: the blocks are distributed anew, and a new checkpoint begins
with them (`Tasks(..., initial=...)`), with the sources at the same offsets.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import SparkSession

from headrace.engine.checkpoint.checkpoint import newest_manifest
from headrace.engine.shard.taskshard import task_blocks
from headrace.engine.spark.files import Folder
from headrace.engine.state.sourcepositions import topic_offsets
from headrace.engine.state.storedstate import StoredState, shards_in_cells


@dataclass(frozen=True)
class StreamPosition:
    """The position of a stream after its last micro-batch: blocks of tasks by label and number, offsets by label."""

    blocks: dict[str, list[list[bytes]]]
    offsets: dict[str, dict[int, int]]


def stream_position(spark: SparkSession, path: str) -> StreamPosition:
    """Reads the position of a checkpoint's stream, whose sources are all topics and whose groupings are all tasks."""
    folder = Folder(spark, path)
    state = StoredState(folder, newest_manifest(folder))
    cells = state.cells().sort("dest").toArrow().to_batches()
    shards = {dest: task_blocks(piece.blocks) for dest, piece in shards_in_cells(cells)}
    return StreamPosition(
        {label: [shards[dest] for dest in state.dests(label) if dest in shards] for label in state.manifest.groupings},
        topic_offsets(state),
    )
