"""Moves the state of a stream's shards to another number of shards, slot by slot.

Between two micro-batches, all shards of an exchange have the same clocks, since every task reports to all of them. What
else they have goes with the keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from headrace.engine.shard.slots import shards_in, shards_of
from headrace.engine.state.layouts import Layout
from headrace.engine.state.shardcounts import ShardCounts


@dataclass(frozen=True)
class ShardPiece:
    """A piece of a shard's state: what is stored beside the processor's, and blocks."""

    header: dict[str, Any]
    blocks: list[bytes] = field(repr=False)


@dataclass(frozen=True)
class Resharding:
    """Moves the shards of one exchange: its layout, how many it has before and after, and how keys were placed."""

    layout: Layout
    before: int
    after: int
    by_slot: bool = True

    def targets(self, shard: int) -> range:
        """Returns the shards that get something of a shard."""
        if self.before == self.after and self.by_slot:
            return range(shard, shard + 1)
        return shards_in(shard, self.before, self.after) if self.by_slot else range(self.after)

    def split(self, shard: int, piece: ShardPiece) -> Iterator[tuple[int, ShardPiece]]:
        """Yields what each target gets of a shard; the first gets the counts."""
        targets = self.targets(shard)
        pieces = self.layout.split(piece.blocks, partial(shards_of, shards=self.after), targets)
        none = {"late": 0, "refused": 0, "copies": dict.fromkeys(piece.header["copies"], 0)}
        for target, blocks in pieces.items():
            yield target, ShardPiece(piece.header if target == targets.start else piece.header | none, blocks)

    def merge(self, pieces: Sequence[ShardPiece], counts: ShardCounts, upstream: Sequence[str]) -> ShardPiece:
        """Puts the pieces of a shard together, in the order of the shards that they come from.

        `upstream` are the names of those that it waits for from now on.
        """
        headers = [piece.header for piece in pieces]
        copies = {name: sum(header["copies"][name] for header in headers) for name in headers[0]["copies"]}
        header = {
            "upstream": counts.upstream(headers[0]["upstream"], upstream),
            "delays": headers[0]["delays"],
            "late": sum(header["late"] for header in headers),
            "refused": sum(header["refused"] for header in headers),
            "copies": copies,
        }
        return ShardPiece(header, self.layout.merge([piece.blocks for piece in pieces], counts))
