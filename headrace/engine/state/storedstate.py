"""Reads the state of a stream from its checkpoint or savepoint, while no batch is running there.

The state of all shards is cells in a frame: those in Spark's state store after the last micro-batch or, before the
first, those that the checkpoint begins with.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from headrace.engine.checkpoint.checkpoint import checked, newest_manifest
from headrace.engine.checkpoint.manifest import GroupingEntry, Manifest
from headrace.engine.checkpoint.savepoints import INITIAL, has_begun
from headrace.engine.columns.sparkhash import spark_hash
from headrace.engine.shard.wire import shard_dests, unpack
from headrace.engine.spark.files import Folder
from headrace.engine.spark.offsetlog import OffsetLog
from headrace.engine.state.resharding import ShardPiece
from headrace.engine.state.statecells import STAMP_KIND, StateCells, stamp_cell
from headrace.model.errors import PipelineError

CELLS: Final = pa.schema([("dest", pa.int64()), ("kind", pa.int64()), ("number", pa.int64()), ("cell", pa.binary())])
"""The schema of cells: the shard that they are of, and what its map state has."""

BYTES_AT_ONCE: Final = {"spark.sql.execution.arrow.maxBytesPerBatch": str(64 << 20)}
"""Settings for jobs over cells, of which a Python worker must not get too many at once: each may have megabytes."""


@dataclass(frozen=True)
class StoredState:
    """The state in a checkpoint or savepoint: its directory, and its manifest."""

    folder: Folder
    manifest: Manifest

    @classmethod
    def at(cls, spark: SparkSession, path: str) -> StoredState:
        """Finds the state in a directory. Refuses one that others may write to, or that has none."""
        folder = checked(Folder(spark, path))
        return cls(folder, newest_manifest(folder))

    @property
    def batch(self) -> int | None:
        """The number of the last micro-batch; None if none is done."""
        commits = self.folder.folder("spark").folder("commits").names()
        return max((int(name) for name in commits if name.isdigit()), default=None)

    @property
    def time(self) -> int | None:
        """The time of the last micro-batch, in microseconds."""
        return None if self.batch is None else OffsetLog(self.folder.folder("spark")).time_of(self.batch)

    @cached_property
    def spark(self) -> SparkSession:
        """A session of its own: what is set there changes no stream."""
        session = self.folder.spark.newSession()
        for name, value in BYTES_AT_ONCE.items():
            session.conf.set(name, value)
        return session

    @cached_property
    def _store(self) -> str:
        """The path of Spark's own checkpoint, under another name where Spark would look for an escaped one."""
        folder = self.folder.folder("spark")
        if quote(str(folder), safe="/:@=+,") == str(folder):
            return str(folder)
        if folder.local is None or not (self.spark.sparkContext.master or "local").startswith("local"):
            raise PipelineError(
                f"Spark's reader of state finds no path with blanks or other characters that addresses escape, such as "
                f"{folder}; copy it to a directory with a plain name"
            )
        link = tempfile.mkdtemp(prefix="headrace-state-")
        atexit.register(shutil.rmtree, link, ignore_errors=True)
        os.symlink(folder.local, f"{link}/spark")
        return f"{link}/spark"

    def shards(self, label: str) -> int:
        """Returns how many shards a grouping has."""
        return self.grouping(label).shards or self.manifest.shards

    def grouping(self, label: str) -> GroupingEntry:
        """Returns what the manifest says of a grouping."""
        return self.manifest.groupings[label]

    def dests(self, label: str) -> tuple[int, ...]:
        """Returns the destinations of a grouping's shards."""
        return shard_dests(self.grouping(label).number, self.shards(label), self.manifest.partitions)

    def shard(self, label: str, number: int) -> ShardPiece | None:
        """Reads one shard of a grouping, from the one of Spark's partitions that it is in; None if it is empty."""
        dest = self.dests(label)[number]
        cells: dict[tuple[int, int], bytes] = {}
        for frame in self._frames():
            rows = frame.where(F.col("dest") == dest)
            if rows.rdd.getNumPartitions() == self.manifest.partitions:  # those of a state store
                found = self.spark.sparkContext.runJob(rows.rdd, list, [spark_hash(dest) % self.manifest.partitions])
            else:
                found = rows.collect()
            cells |= {(row["kind"], row["number"]): bytes(row["cell"]) for row in found}
        return _read(cells) if cells else None

    def cells(self) -> DataFrame:
        """Returns all cells of all groupings."""
        frames, numbers = list(self._frames()), list(self.manifest.numbers.values())
        if not frames:
            return self.spark.createDataFrame([], from_arrow_schema(CELLS))
        # A grouping that is forgotten may still have cells.
        return reduce(DataFrame.union, frames).where(F.shiftright("dest", 32).isin(numbers))

    def _frames(self) -> Iterator[DataFrame]:
        if self.batch is not None:
            for operator in range(self.manifest.depth):
                yield from self._of_operator(operator)
        elif self.folder.exists(INITIAL):
            yield self.spark.read.parquet(str(self.folder.folder(INITIAL)))

    def _of_operator(self, operator: int) -> Iterator[DataFrame]:
        entry = F.col("user_map_key")
        cells = self._variable(operator, "cells")
        yield cells.select(
            F.col("key")[cells.schema["key"].dataType[0].name].alias("dest"),  # type: ignore[index]
            entry["kind"].alias("kind"),
            entry["number"].alias("number"),
            F.col("user_map_value")["cell"].alias("cell"),
        )
        if self.manifest.stamps_apart:
            rows = [
                (row["key"][0], STAMP_KIND, 0, bytearray(stamp_cell(tuple(row["value"]))))
                for row in self._variable(operator, "stamp").collect()
            ]
            yield self.spark.createDataFrame(rows, from_arrow_schema(CELLS))

    def _variable(self, operator: int, name: str) -> DataFrame:
        reader = self.spark.read.format("statestore").option("path", self._store)
        return reader.option("operatorId", operator).option("stateVarName", name).load()


def initial_cells(folder: Folder) -> DataFrame | None:
    """Returns the cells with which the stream of a checkpoint begins; None if it has begun, or begins empty."""
    begins = folder.exists(INITIAL) and not has_begun(folder)
    return folder.spark.read.parquet(str(folder.folder(INITIAL))) if begins else None


def shards_in_cells(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, ShardPiece]]:
    """Yields the state of each shard, by its destination, from cells that are sorted by destination."""
    dest, cells = None, dict[tuple[int, int], bytes]()
    for batch in batches:
        for row in batch.to_pylist():
            if row["dest"] != dest and dest is not None:
                yield dest, _read(cells)
                cells = {}
            dest = row["dest"]
            cells[row["kind"], row["number"]] = row["cell"]
    if dest is not None:
        yield dest, _read(cells)


def _read(cells: dict[tuple[int, int], bytes]) -> ShardPiece:
    stored = StateCells(StoredMap(cells))
    stamp = stored.stamp()
    assert stamp is not None
    header: dict[str, Any] = {}
    blocks: list[bytes] = []
    for cell in stored.whole(stamp):
        header, rows = unpack(cell)
        blocks += rows.column(0).to_pylist()
    return ShardPiece(header, blocks)


class StoredMap:
    """A map state of a checkpoint, with the methods of Spark's; it is read-only."""

    def __init__(self, items: dict[tuple[int, int], bytes]) -> None:
        self._items = items

    def getValue(self, key: tuple[int, int]) -> tuple[bytes] | None:
        cell = self._items.get(key)
        return None if cell is None else (cell,)

    def updateValue(self, key: tuple[int, int], value: tuple[bytes]) -> None:
        raise TypeError("the state of a checkpoint is read, not written")

    def removeKey(self, key: tuple[int, int]) -> None:
        raise TypeError("the state of a checkpoint is read, not written")

    def clear(self) -> None:
        raise TypeError("the state of a checkpoint is read, not written")
