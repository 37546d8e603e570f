"""The format of rows in flight between the operators of a stream: a destination and a body.

A destination is a shard of an exchange, a segment of columns, or a sink. A body is an Arrow stream whose schema carries
a header as JSON, which is one of the `reports`. What bodies hold is up to senders and receivers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from headrace.engine.columns.arrowbytes import arrow_bytes
from headrace.engine.columns.sparkhash import spark_hash

WIRE: Final = pa.schema([("dest", pa.int64()), ("body", pa.binary())])
"""The schema of rows in flight."""

HEARTBEAT: Final = "heartbeat"
"""The name of the source that only reports the time."""
FORGET: Final = "forget"
"""The name in place of a source's, in rows that name the shards whose state is to be removed."""

Station = tuple[int, int]
"""A place in a stream's line: so many levels of exchanges, and then so many hops through columns, after the sources."""

_HEADER: Final = b"headrace"
_SHARD_BITS: Final = 32
_SEGMENTS: Final = 1 << 30
_SPREAD: Final = 16  # rows on their way to a sink travel under so many keys

ROUNDS: Final = 1 << 20
"""The number, in place of a sink's, of what shards send to shards of the next micro-batch."""


def pack(header: dict[str, Any], batch: pa.RecordBatch | None = None) -> bytes:
    """Encodes a header and a batch as a body.

    >>> header, batch = unpack(pack({"now": 7}, pa.record_batch({"x": [1, 2]})))
    >>> header, batch.to_pydict(), unpack(pack({"now": 8}))[1].num_rows
    ({'now': 7}, {'x': [1, 2]}, 0)
    """
    batch = pa.record_batch([], schema=pa.schema([])) if batch is None else batch
    return arrow_bytes(batch, {_HEADER: json.dumps(header)})


def unpack(body: bytes) -> tuple[dict[str, Any], pa.RecordBatch]:
    """Decodes a body into its header and its batch."""
    reader = pa.ipc.open_stream(body)
    return json.loads(reader.schema.metadata[_HEADER]), reader.read_next_batch()


def wire(rows: Sequence[tuple[int, bytes]]) -> pa.RecordBatch:
    """Builds a batch of rows in flight from destinations and bodies."""
    dests, bodies = zip(*rows, strict=True) if rows else ((), ())
    return pa.record_batch([pa.array(dests, pa.int64()), pa.array(bodies, pa.binary())], schema=WIRE)


def shard_dests(exchange: int, shards: int, partitions: int) -> tuple[int, ...]:
    """Returns the destinations of an exchange's shards: numbers that Spark's hash spreads evenly over its partitions.

    >>> dests = shard_dests(3, 4, 2)
    >>> [exchange_of(dest) for dest in dests], [spark_hash(dest) % 2 for dest in dests]
    ([3, 3, 3, 3], [0, 1, 0, 1])
    """
    dests: list[int] = []
    candidate = exchange << _SHARD_BITS
    while len(dests) < shards:
        if spark_hash(candidate) % partitions == len(dests) % partitions:
            dests.append(candidate)
        candidate += 1
    return tuple(dests)


def exchange_of(dest: int) -> int | None:
    """Returns the exchange that a destination is a shard of; None for the destination of a sink."""
    return dest >> _SHARD_BITS if dest >= 0 else None


def segment_dest(segment: int) -> int:
    """Returns the destination of a segment of columns, which no exchange has: its number is too large for one.

    >>> segment_dest(2) > shard_dests(1_000_000, 1, 1)[0], exchange_of(segment_dest(0)) is None
    (True, False)
    """
    return (_SEGMENTS + segment) << _SHARD_BITS


def sink_dest(sink: int, sender: int) -> int:
    """Returns a destination of a sink, below zero; each sink has several, so that senders share the work.

    >>> sink_of(sink_dest(5, sender=18)), exchange_of(sink_dest(5, sender=18))
    (5, None)
    """
    return -1 - (sink * _SPREAD + sender % _SPREAD)


def sink_of(dest: int) -> int:
    """Returns the sink of a destination below zero."""
    return (-1 - dest) // _SPREAD


def sink_dests(sink: int) -> tuple[int, int]:
    """Returns the least and the greatest destination of a sink."""
    return sink_dest(sink, _SPREAD - 1), sink_dest(sink, 0)
