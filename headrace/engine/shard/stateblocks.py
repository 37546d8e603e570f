"""The state of a shard as Arrow blocks: a snapshot of it, a part, or a delta.

Blocks of one shard are read in the order in which they were written; the last row of a window counts. They are for the
engine's own checkpoints: cells may be pickles, so blocks from elsewhere must not be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.engine.columns.arrowbytes import arrow_bytes
from headrace.engine.columns.hashing import Hashes
from headrace.model.times import Int64Array

_KIND: Final = b"headrace.block"
_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="lz4")  # columns of times and counts shrink to a tenth
_SIZE: Final = 8_000_000
"""About how many bytes a block has at most, before it is compressed."""


@dataclass(frozen=True)
class Removals:
    """Windows that were removed: their numbers, and the hashes by which an older copy of the state finds them."""

    seq: Int64Array = field(default_factory=lambda: np.zeros(0, np.int64))
    hashes: Hashes = field(default_factory=lambda: np.zeros(0, np.uint64))


@dataclass
class ShardState:
    """The state of a shard, as it is stored.

    - numbers: its clocks and counters, by name; percentiles: the clocks of fractions of the input
    - windows: columns of its windows, with a number `seq` that no two of them ever share
    - gone: windows that were removed; ordinals: how many elements each key has had, for CountWindows

    An empty table may have lost its columns.
    """

    numbers: dict[str, int]
    windows: pa.Table
    percentiles: dict[float, int] = field(default_factory=dict)
    gone: Removals = field(default_factory=Removals)
    ordinals: pa.Table = field(default_factory=lambda: pa.table({}))


def write_state(state: ShardState) -> list[bytes]:
    """Encodes a state as blocks, the same for the same state.

    >>> first = write_state(ShardState({"now": 1}, pa.table({"seq": [0, 1], "x": [5, 6]})))
    >>> gone = Removals(np.array([0]), np.array([77], np.uint64))
    >>> second = write_state(ShardState({"now": 2}, pa.table({"seq": [1], "x": [7]}), gone=gone))
    >>> read = read_state(first + second)
    >>> read.numbers, read.windows.to_pylist()
    ({'now': 2}, [{'seq': 1, 'x': 7}])
    """
    percentiles = sorted(state.percentiles.items())
    parts = {
        "numbers": pa.table({name: pa.array([number], pa.int64()) for name, number in state.numbers.items()}),
        "percentiles": pa.table({"q": [q for q, _ in percentiles], "time": [time for _, time in percentiles]}),
        "windows": state.windows,
        "gone": pa.table({"seq": state.gone.seq, "hash": state.gone.hashes}),
        "ordinals": state.ordinals,
    }
    return [block for kind, table in parts.items() for block in blocks_of(kind, table)]


def blocks_of(kind: str, table: pa.Table) -> list[bytes]:
    """Encodes a table of this kind as blocks; one without rows is none."""
    return [arrow_bytes(piece, {_KIND: kind}, _OPTIONS) for piece in _pieces(table)]


def tables_in(blocks: Iterable[bytes]) -> dict[str, list[pa.Table]]:
    """Decodes blocks to tables by kind, in the order in which they were written."""
    tables: dict[str, list[pa.Table]] = {}
    for block in blocks:
        table = pa.ipc.open_stream(block).read_all()
        kind = (table.schema.metadata or {}).get(_KIND)
        if kind is None:
            raise ValueError(
                "not a block of shard state: it names no kind; load only blocks that dump() or changes() wrote"
            )
        tables.setdefault(kind.decode(), []).append(table)
    return tables


def read_state(blocks: Iterable[bytes]) -> ShardState:
    """Decodes blocks, in the order in which they were written, to a state."""
    tables = {kind: pa.concat_tables(pieces) for kind, pieces in tables_in(blocks).items()}
    percentiles, windows, gone, ordinals = (
        tables.get(kind, pa.table({})) for kind in ("percentiles", "windows", "gone", "ordinals")
    )
    over = Removals(gone.column("seq").to_numpy(), gone.column("hash").to_numpy()) if gone.num_rows else Removals()
    if windows.num_rows:
        last = _last(windows.column("seq").to_numpy(), over.seq)
        windows = windows if len(last) == windows.num_rows else windows.take(pa.array(last))
    return ShardState(
        tables["numbers"].to_pylist()[-1],
        windows,
        {row["q"]: row["time"] for row in percentiles.to_pylist()},
        over,
        ordinals,
    )


def _last(seq: Int64Array, gone: Int64Array) -> Int64Array:
    """Returns the positions of each number's last row, in order, without numbers that are gone."""
    order = np.argsort(seq, kind="stable")
    last = np.append(seq[order[1:]] != seq[order[:-1]], True)
    positions = np.sort(order[last])
    return positions[~np.isin(seq[positions], gone)]


def one_array(rows: pa.Table, name: str) -> pa.Array:
    """Returns a column of a table as one array.

    >>> one_array(pa.concat_tables([pa.table({"x": [1]}), pa.table({"x": [2]})]), "x").to_pylist()
    [1, 2]
    """
    column = rows.column(name)
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _pieces(table: pa.Table) -> Iterator[pa.Table]:
    if table.num_rows:
        rows = max(_SIZE * table.num_rows // max(table.nbytes, 1), 1)
        yield from (table.slice(start, rows) for start in range(0, table.num_rows, rows))
