"""Summaries of checkpoints and savepoints: what they are, where their sources are, and how much state they have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from headrace.engine.checkpoint.manifest import Manifest
from headrace.engine.shard.identity import Identity
from headrace.engine.shard.wire import exchange_of
from headrace.engine.spark.filelogs import files_read
from headrace.engine.state.layouts import layout_of
from headrace.engine.state.sourcepositions import ends_by_input, topic_offsets
from headrace.engine.state.storedstate import StoredState, shards_in_cells

_SIZES: Final = pa.schema(
    [("dest", pa.int64()), ("bytes", pa.int64())]
    + [(name, pa.int64()) for name in ("rows", "keys", "watermark", "output")]
)


@dataclass(frozen=True)
class GroupingSummary:
    """A grouping: its description, level and shards, and how much it has: bytes, rows, keys; its watermarks."""

    label: str
    description: str
    level: int
    shards: int
    bytes: int = 0
    rows: int | None = None
    keys: int | None = None
    watermark: int | None = None
    output: int | None = None


@dataclass(frozen=True)
class SourceSummary:
    """A source: its kind and description, and where it is: offsets of a topic, or how many files were read."""

    label: str
    kind: str
    description: str
    offsets: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class StateSummary:
    """A checkpoint or savepoint: its manifest, its last micro-batch and the time of that, sources and groupings.

    `files`: how many files sources have read, scripts and tables in the checkpoint included.
    """

    path: str
    manifest: Manifest
    batch: int | None
    time: int | None
    files: int
    sources: list[SourceSummary]
    groupings: list[GroupingSummary]

    @property
    def bytes(self) -> int:
        """The size of all state."""
        return sum(grouping.bytes for grouping in self.groupings)


def summarize(spark: SparkSession, path: str) -> StateSummary:
    """Reads all of a checkpoint's or savepoint's state to say how much there is."""
    state = StoredState.at(spark, path)
    manifest = state.manifest
    offsets = topic_offsets(state)
    sources = [
        SourceSummary(label, entry.kind, entry.description, offsets.get(label, {}))
        for label, entry in manifest.sources.items()
    ]
    return StateSummary(
        str(state.folder), manifest, state.batch, state.time, _files(state), sources, list(_groupings(state))
    )


def _files(state: StoredState) -> int:
    logs, ends = state.folder.folder("spark").folder("sources"), ends_by_input(state)
    last = {str(number): end.get("logOffset", -1) for number, end in enumerate(ends) if isinstance(end, dict)}
    return sum(len(files_read(logs.folder(name), last.get(name, -1))) for name in logs.names())


def _groupings(state: StoredState) -> Iterator[GroupingSummary]:
    groupings = state.manifest.groupings
    sizes: dict[int, list[dict[str, Any]]] = {entry.number: [] for entry in groupings.values()}
    if groupings:
        cells = state.cells()
        tasks = max(sum(map(state.shards, groupings)), 1)
        by_dest = cells.repartition(min(tasks, 1024), "dest").sortWithinPartitions("dest", "kind", "number")
        measure = _Measured({entry.number: (label, entry.identity) for label, entry in groupings.items()})
        for row in by_dest.mapInArrow(measure, from_arrow_schema(_SIZES)).toArrow().to_pylist():
            sizes[exchange_of(row["dest"]) or 0].append(row)
    for label, entry in sorted(groupings.items(), key=lambda item: (item[1].level, item[1].number)):
        rows = sizes[entry.number]
        yield GroupingSummary(
            label,
            entry.description,
            entry.level,
            state.shards(label),
            sum(row["bytes"] for row in rows),
            *(_sum(row[name] for row in rows) for name in ("rows", "keys")),
            *(_least(row[name] for row in rows) for name in ("watermark", "output")),
        )


@dataclass(frozen=True)
class _Measured:
    """Measures shards, by the numbers of their groupings."""

    identities: dict[int, tuple[str, Identity]]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for dest, piece in shards_in_cells(batches):
            label, identity = self.identities[exchange_of(dest) or 0]
            size = {"dest": dest, "bytes": sum(map(len, piece.blocks))}
            if identity is not None:
                size |= vars(layout_of(label, identity).size(piece.blocks))
            yield pa.RecordBatch.from_pylist([size], schema=_SIZES)


def _sum(numbers: Iterable[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def _least(numbers: Iterable[int | None]) -> int | None:
    return min((number for number in numbers if number is not None), default=None)
