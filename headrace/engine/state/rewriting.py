"""Writes the state of a savepoint anew, as another savepoint: a Spark job over all shards.

Each shard is read, and what it has is split among the shards that it goes to; these put their pieces together. The new
savepoint has no checkpoint of Spark's own but the positions of sources: its stream begins with the cells that are
written here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from headrace.engine.checkpoint.manifest import GroupingEntry, Manifest
from headrace.engine.checkpoint.savepoints import INITIAL, copy
from headrace.engine.checkpoint.streamnames import MANIFEST
from headrace.engine.shard.slots import SLOTS
from headrace.engine.shard.wire import pack, shard_dests, unpack
from headrace.engine.spark.files import Folder
from headrace.engine.state.layouts import layout_of
from headrace.engine.state.resharding import Resharding, ShardPiece
from headrace.engine.state.shardcounts import ShardCounts
from headrace.engine.state.sourcepositions import begin_sources, check_sources
from headrace.engine.state.statecells import whole_state
from headrace.engine.state.staterows import StateRow, StateRows
from headrace.engine.state.storedstate import CELLS, StoredState, shards_in_cells
from headrace.engine.worker.blame import blame
from headrace.engine.worker.bundles import BLOCK_SCHEMA
from headrace.model.errors import PipelineError

_PIECES: Final = pa.schema([("dest", pa.int64()), ("shard", pa.int64()), ("place", pa.int64()), ("piece", pa.binary())])
"""Pieces of shards on their way: to which shard, from which, and blocks in order."""
_TASKS: Final = 1024
"""The most tasks of a job."""


@dataclass(frozen=True)
class StateChange:
    """A change of a grouping's rows by a function, which returns a changed row, or None to drop it."""

    rows: StateRows
    function: Callable[[StateRow], StateRow | None]

    def apply(self, piece: ShardPiece) -> ShardPiece:
        """Returns the state of a shard with its rows changed; some may belong to other shards then."""
        with blame(self.rows.label):
            return self.rows.change(piece, self.function)


@dataclass(frozen=True)
class Move:
    """A move of the shards of one exchange: how they are split and merged, where they are before and after.

    `upstream`: the names of those whose watermarks they wait for afterwards.
    """

    resharding: Resharding
    before: tuple[int, ...]
    after: tuple[int, ...]
    upstream: tuple[str, ...]
    change: StateChange | None = None


@dataclass(frozen=True)
class ShardMoves:
    """The moves of all exchanges of a stream, by their numbers."""

    moves: Mapping[int, Move]
    counts: ShardCounts

    def split(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Splits the shards whose cells these are into pieces."""
        sources = {dest: (move, shard) for move in self.moves.values() for shard, dest in enumerate(move.before)}
        for dest, whole in shards_in_cells(batches):
            move, shard = sources[dest]
            changed = whole if move.change is None else move.change.apply(whole)
            for target, piece in move.resharding.split(shard, changed):
                yield from _packed(move.after[target], shard, piece)

    def merge(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Puts pieces together that are sorted by destination, shard and place; yields cells."""
        targets = {dest: move for move in self.moves.values() for dest in move.after}
        rows = (row for batch in batches for row in batch.to_pylist())
        for dest, of_dest in groupby(rows, itemgetter("dest")):
            pieces = [_unpacked(of_shard) for _, of_shard in groupby(of_dest, itemgetter("shard"))]
            move = targets[dest]
            merged = move.resharding.merge(pieces, self.counts, move.upstream)
            if move.change is not None:
                move.change.rows.check_once(merged)
            for kind, number, cell in whole_state(merged.header, merged.blocks):
                yield pa.RecordBatch.from_pylist(
                    [{"dest": dest, "kind": kind, "number": number, "cell": cell}], schema=CELLS
                )


def rescaled(manifest: Manifest, shards: int | None, partitions: int | None) -> Manifest:
    """Returns the manifest of a stream that goes on with other numbers of shards and partitions."""
    after = replace(
        manifest,
        shards=manifest.shards if shards is None else shards,
        partitions=manifest.partitions if partitions is None else partitions,
    )
    counts = ShardCounts(_shards(manifest), _shards(after))
    return replace(after, groupings={label: _renamed(entry, counts) for label, entry in after.groupings.items()})


def _shards(manifest: Manifest) -> dict[int, int]:
    return {entry.number: entry.shards or manifest.shards for entry in manifest.groupings.values()}


def check_counts(shards: int | None, partitions: int | None) -> None:
    """Refuses numbers of shards and partitions that no stream can have."""
    for name, number in (("shards", shards), ("partitions", partitions)):
        if number is not None and (not isinstance(number, int) or not 1 <= number <= SLOTS):
            raise PipelineError(f"{name} is a number from 1 to {SLOTS:,}, the number of slots of keys, got {number!r}")


def moves_of(state: StoredState, new: Manifest, changes: Mapping[str, StateChange] | None = None) -> ShardMoves:
    """Plans how the shards of a stream become those of a new manifest. Refuses what cannot be moved, by name."""
    was, moves = state.manifest, {}
    before, after = _shards(state.manifest), _shards(new)
    for label, entry in new.groupings.items():
        if label in was.groupings:
            number, change = entry.number, (changes or {}).get(label)
            by_slot = entry.shards is not None or (bool(was.slots) and change is None)  # keys may have changed
            layout = layout_of(label, was.groupings[label].identity)
            resharding = Resharding(layout, before[number], after[number], by_slot)
            dests = shard_dests(number, after[number], new.partitions)
            moves[number] = Move(resharding, state.dests(label), dests, tuple(entry.upstream), change)
    return ShardMoves(moves, ShardCounts(before, after))


def rewrite(
    state: StoredState,
    target: Folder,
    new: Manifest,
    changes: Mapping[str, StateChange] | None = None,
    inputs: Mapping[int, int] | None = None,
) -> Manifest:
    """Writes a savepoint with the state of another under a new manifest; returns the manifest that it has.

    `changes` are made to the state of groupings, by label. `inputs`: which of Spark's sources is which afterwards.
    """
    check_sources(state.manifest, new)
    plan = moves_of(state, new, changes)
    names = [name for name in state.folder.files() if not name.startswith(("spark/", f"{INITIAL}/", "headrace-"))]
    with copy(state.folder, target, names) as made:
        pieces = _job(state.cells(), plan.split, _PIECES, plan.moves.values(), "dest", "kind", "number")
        cells = _job(pieces, plan.merge, CELLS, plan.moves.values(), "dest", "shard", "place")
        cells.write.parquet(str(made.folder(INITIAL)))
        begin_sources(state, made, target, new.sources, inputs)
        begun = replace(new.forked(), forgotten=[], stamps_apart=False, slots=SLOTS)
        made.write(MANIFEST.format(0), begun.write())
    return begun


def _renamed(entry: GroupingEntry, counts: ShardCounts) -> GroupingEntry:
    """Returns a grouping with the names of its upstreams afterwards."""
    identity = entry.identity
    if isinstance(identity, dict) and "sides" in identity:
        sides = [side | {"upstream": counts.renamed(side["upstream"])} for side in identity["sides"]]
        identity = identity | {"sides": sides}
    return replace(entry, upstream=counts.renamed(entry.upstream), identity=identity)


def _job(
    rows: DataFrame,
    function: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: pa.Schema,
    moves: Iterable[Move],
    *order: str,
) -> DataFrame:
    """Runs a function over rows by destination, in order."""
    tasks = min(max(sum(max(len(move.before), len(move.after)) for move in moves), 1), _TASKS)
    by_dest = rows.repartition(tasks, order[0]).sortWithinPartitions(*order)
    return by_dest.mapInArrow(function, from_arrow_schema(schema))


def _packed(dest: int, shard: int, piece: ShardPiece) -> Iterator[pa.RecordBatch]:
    for place, block in enumerate(piece.blocks or [None]):
        blocks = pa.record_batch([pa.array([] if block is None else [block], pa.binary())], schema=BLOCK_SCHEMA)
        body = pack(piece.header if place == 0 else {}, blocks)
        yield pa.RecordBatch.from_pylist([{"dest": dest, "shard": shard, "place": place, "piece": body}], _PIECES)


def _unpacked(rows: Iterable[Mapping[str, Any]]) -> ShardPiece:
    header: dict[str, Any] = {}
    blocks: list[bytes] = []
    for row in rows:
        found, body = unpack(row["piece"])
        header = found or header
        blocks += body.column(0).to_pylist()
    return ShardPiece(header, blocks)
