"""A shard's state as Arrow blocks: all of it, or what has changed since it was last written.

Blocks of one shard are read in the order in which they were written; of a window the last row counts. They are for the
engine's own checkpoints: cells may be pickles, so blocks from elsewhere must not be read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.model.times import Int64Array

ROWS, GONE, ORDINALS, CLOCKS, PERCENTILES = "rows", "gone", "ordinals", "clocks", "percentiles"
_KIND: Final = b"headrace.block"


def write_block(kind: str, columns: dict[str, pa.Array]) -> bytes:
    """Columns as one block.

    >>> read_blocks([write_block("gone", {"seq": pa.array([3])})])["gone"].column("seq").to_pylist()
    [3]
    """
    batch = pa.record_batch(columns)
    schema = batch.schema.with_metadata({_KIND: kind})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(batch.cast(schema))
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def read_blocks(blocks: Iterable[bytes]) -> dict[str, pa.Table]:
    """The rows of each kind of block, one block after the other."""
    tables: dict[str, list[pa.Table]] = {}
    for block in blocks:
        table = pa.ipc.open_stream(block).read_all()
        kind = (table.schema.metadata or {}).get(_KIND)
        if kind is None:
            raise ValueError(
                "not a block of shard state: it names no kind; load only blocks that dump() or changes() wrote"
            )
        tables.setdefault(kind.decode(), []).append(table)
    return {kind: pa.concat_tables(parts) for kind, parts in tables.items()}


def last_of_each(ids: Iterable[object]) -> Int64Array:
    """The position of the last row of each id, in order of position.

    >>> last_of_each([7, 8, 7]).tolist()
    [1, 2]
    """
    last = {one: position for position, one in enumerate(ids)}
    return np.array(sorted(last.values()), np.int64)
