"""Bundles with tags as what a step of a shard emits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa

from headrace.engine.worker.bundles import Bundle, from_block, to_block

_SCHEMA: Final = pa.schema([("tag", pa.string()), ("block", pa.binary())])


def pack_bundles(outputs: Iterable[tuple[str | None, Bundle]]) -> pa.RecordBatch:
    """Packs bundles with their tags.

    >>> packed = pack_bundles([("late", Bundle([1, 2])), (None, Bundle([3]))])
    >>> [(tag, bundle.elements) for tag, bundle in unpack_bundles(packed)]
    [('late', [1, 2]), (None, [3])]
    """
    packed = [(tag, to_block(bundle)) for tag, bundle in outputs]
    tags, blocks = [tag for tag, _ in packed], [block for _, block in packed]
    return pa.record_batch([pa.array(tags, pa.string()), pa.array(blocks, pa.binary())], schema=_SCHEMA)


def unpack_bundles(emitted: pa.RecordBatch) -> Iterator[tuple[str | None, Bundle]]:
    """Yields the bundles that were packed, with their tags."""
    for tag, block in zip(emitted.column("tag").to_pylist(), emitted.column("block").to_pylist(), strict=True):
        yield tag, from_block(block)
