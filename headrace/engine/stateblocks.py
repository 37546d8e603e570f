"""A shard's state as Arrow blocks: all of it, or what has changed since it was last written.

Blocks of one shard are read in the order in which they were written; of a window the last row counts. They are for the
engine's own checkpoints: cells may be pickles, so blocks from elsewhere must not be read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

_KIND: Final = b"headrace.block"


@dataclass
class State:
    """What there is to store of a shard.

    - numbers: its clocks and counters, by name; percentiles: the clocks of fractions of the input
    - windows: columns of the windows it holds, with a number `seq` that no two of them ever share
    - gone: numbers of windows it holds no more; ordinals: how many elements each key has had, where that matters
    """

    numbers: dict[str, int]
    windows: dict[str, pa.Array] | pa.Table
    percentiles: dict[float, int] = field(default_factory=dict)
    gone: list[int] = field(default_factory=list)
    ordinals: dict[bytes, int] = field(default_factory=dict)


def write_state(state: State) -> list[bytes]:
    """The state as blocks, the same for the same state.

    >>> first = write_state(State({"now": 1}, {"seq": pa.array([0, 1]), "x": pa.array([5, 6])}))
    >>> second = write_state(State({"now": 2}, {"seq": pa.array([1]), "x": pa.array([7])}, gone=[0]))
    >>> read = read_state(first + second)
    >>> read.numbers, read.windows.to_pylist()
    ({'now': 2}, [{'seq': 1, 'x': 7}])
    """
    return [
        _block("numbers", {name: pa.array([number], pa.int64()) for name, number in state.numbers.items()}),
        _block("percentiles", _pairs(state.percentiles, pa.float64())),
        _block("windows", state.windows),
        _block("gone", {"seq": pa.array(sorted(state.gone), pa.int64())}),
        _block("ordinals", _pairs(state.ordinals, pa.binary())),
    ]


def read_state(blocks: Iterable[bytes]) -> State:
    """The state that blocks amount to."""
    parts: dict[str, list[pa.Table]] = {}
    for block in blocks:
        table = pa.ipc.open_stream(block).read_all()
        kind = (table.schema.metadata or {}).get(_KIND)
        if kind is None:
            raise ValueError(
                "not a block of shard state: it names no kind; load only blocks that dump() or changes() wrote"
            )
        parts.setdefault(kind.decode(), []).append(table)
    tables = {kind: pa.concat_tables(each) for kind, each in parts.items()}
    windows, gone = tables["windows"], tables["gone"].column("seq").to_pylist()
    last = {seq: position for position, seq in enumerate(windows.column("seq").to_pylist())}
    for seq in gone:
        last.pop(seq, None)
    positions = np.array(sorted(last.values()), np.int64)
    return State(
        tables["numbers"].to_pylist()[-1],
        windows.take(pa.array(positions)),
        _mapping(tables["percentiles"]),
        gone,
        _mapping(tables["ordinals"]),
    )


def _block(kind: str, columns: dict[str, pa.Array] | pa.Table) -> bytes:
    batch = pa.record_batch(columns)
    schema = batch.schema.with_metadata({_KIND: kind})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(batch.cast(schema))
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _pairs(mapping: dict[Any, int], key: pa.DataType) -> dict[str, pa.Array]:
    pairs = sorted(mapping.items())
    return {"key": pa.array([k for k, _ in pairs], key), "number": pa.array([n for _, n in pairs], pa.int64())}


def _mapping(pairs: pa.Table) -> dict[Any, int]:
    return dict(zip(pairs.column("key").to_pylist(), pairs.column("number").to_pylist(), strict=True))
