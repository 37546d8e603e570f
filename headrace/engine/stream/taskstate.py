"""Reads the state of a stream's tasks and the offsets of its sources from its checkpoint, while it does not run.

That is how a stream goes on with another number of tasks: the blocks are distributed anew, and a new checkpoint begins
with them (`Tasks(..., initial=...)`), with the sources at the same offsets.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from headrace.engine.checkpoint.checkpoint import newest_manifest
from headrace.engine.shard.taskshard import task_blocks
from headrace.engine.shard.wire import exchange_of, unpack
from headrace.engine.spark.files import Folder
from headrace.engine.spark.offsetlog import OffsetLog
from headrace.engine.stream.statecells import StateCells


@dataclass(frozen=True)
class StreamPosition:
    """The position of a stream after its last micro-batch: blocks of tasks by label and number, offsets by label."""

    blocks: dict[str, list[list[bytes]]]
    offsets: dict[str, dict[int, int]]


def stream_position(spark: SparkSession, path: str) -> StreamPosition:
    """Reads the position of a checkpoint's stream, whose sources are all topics and whose groupings are all tasks."""
    folder = Folder(spark, path)
    manifest, spark_folder = newest_manifest(folder), folder.folder("spark")
    labels = {grouping.number: label for label, grouping in manifest.groupings.items()}
    shards: dict[str, dict[int, list[bytes]]] = defaultdict(dict)
    for operator in range(manifest.depth):
        stamps = _stamps(spark, str(spark_folder), operator) if manifest.stamps_apart else {}
        for dest, cells in _cells(spark, str(spark_folder), operator).items():
            state = StateCells(_StoredMap(cells), stamps.get(dest))
            stamp = state.stamp()
            assert stamp is not None
            blocks = [block for cell in state.whole(stamp) for block in unpack(cell)[1].column(0).to_pylist()]
            shards[labels[exchange_of(dest) or 0]][dest] = task_blocks(blocks)
    batch = max(int(name) for name in spark_folder.folder("commits").names() if name.isdigit())
    ends = OffsetLog(spark_folder).ends_of(batch)
    return StreamPosition(
        {label: [by_dest[dest] for dest in sorted(by_dest)] for label, by_dest in shards.items()},
        {
            label: {int(partition): int(offset) for partition, offset in (end or {}).items()}
            for label, end in zip(manifest.sources, ends, strict=False)
        },
    )


def _cells(spark: SparkSession, path: str, operator: int) -> dict[int, dict[tuple[int, int], Any]]:
    cells: dict[int, dict[tuple[int, int], Any]] = defaultdict(dict)
    for row in _variable(spark, path, operator, "cells").collect():
        cells[row["key"][0]][tuple(row["user_map_key"])] = row["user_map_value"]
    return cells


def _stamps(spark: SparkSession, path: str, operator: int) -> dict[int, _StoredValue]:
    rows = _variable(spark, path, operator, "stamp").collect()
    return {row["key"][0]: _StoredValue(row["value"]) for row in rows}


def _variable(spark: SparkSession, path: str, operator: int, name: str) -> DataFrame:
    reader = spark.read.format("statestore").option("path", path).option("operatorId", operator)
    return reader.option("stateVarName", name).load()


class _StoredValue:
    """A value state of a checkpoint, with the methods of Spark's; it is read-only."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def get(self) -> Any:
        return self._value

    def update(self, newValue: tuple[bytes, int, int, str]) -> None:
        raise TypeError("the state of a checkpoint is read, not written")

    def clear(self) -> None:
        raise TypeError("the state of a checkpoint is read, not written")


class _StoredMap:
    """A map state of a checkpoint, with the methods of Spark's; it is read-only."""

    def __init__(self, items: dict[tuple[int, int], Any]) -> None:
        self._items = items

    def getValue(self, key: tuple[int, int]) -> Any:
        return self._items.get(key)

    def updateValue(self, key: tuple[int, int], value: tuple[bytes]) -> None:
        raise TypeError("the state of a checkpoint is read, not written")

    def removeKey(self, key: tuple[int, int]) -> None:
        raise TypeError("the state of a checkpoint is read, not written")

    def clear(self) -> None:
        raise TypeError("the state of a checkpoint is read, not written")
