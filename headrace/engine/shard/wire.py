"""Rows in flight between the operators of a stream: a destination and a body.

A destination is a shard of an exchange or a sink; a body is an Arrow stream whose schema carries a header as JSON: who
sent it and how far its clocks are. What bodies hold, and what becomes of it, is not said here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.engine.columns.arrowbytes import arrow_bytes
from headrace.engine.columns.hashing import hash_bytes
from headrace.engine.columns.sparkhash import spark_hash
from headrace.engine.shard.clocks import WHOLE
from headrace.engine.shard.delays import Delays, Sketch
from headrace.engine.shard.sourceprogress import Progress
from headrace.engine.worker.bundles import BATCH_SIZE, Bundle
from headrace.engine.worker.columnbundles import Columnar, ColumnBundle
from headrace.engine.worker.program import Output
from headrace.engine.worker.shuffle import KEY
from headrace.model.times import MIN_TIME, Int64Array
from headrace.model.watermarks import WatermarkPolicy

WIRE: Final = pa.schema([("dest", pa.int64()), ("body", pa.binary())])
"""The schema of rows in flight."""

HEARTBEAT: Final = "heartbeat"
"""The name of the source that only reports the time."""

Station = tuple[int, int]
"""A place in a stream's line: so many levels of exchanges, and then so many hops through columns, after the sources."""

_HEADER: Final = b"headrace"
_SHARD_BITS: Final = 32
_SEGMENTS: Final = 1 << 30
_SPREAD: Final = 16  # rows on their way to a sink travel under so many keys
_HELD_ROWS: Final = 10 * BATCH_SIZE


def pack(header: dict[str, Any], batch: pa.RecordBatch | None = None) -> bytes:
    """A body.

    >>> header, batch = unpack(pack({"now": 7}, pa.record_batch({"x": [1, 2]})))
    >>> header, batch.to_pydict(), unpack(pack({"now": 8}))[1].num_rows
    ({'now': 7}, {'x': [1, 2]}, 0)
    """
    batch = pa.record_batch([], schema=pa.schema([])) if batch is None else batch
    return arrow_bytes(batch, {_HEADER: json.dumps(header)})


def unpack(body: bytes) -> tuple[dict[str, Any], pa.RecordBatch]:
    """Header and batch of a body."""
    reader = pa.ipc.open_stream(body)
    return json.loads(reader.schema.metadata[_HEADER]), reader.read_next_batch()


def wire(rows: Sequence[tuple[int, bytes]]) -> pa.RecordBatch:
    """Rows in flight as a batch."""
    dests, bodies = zip(*rows, strict=True) if rows else ((), ())
    return pa.record_batch([pa.array(dests, pa.int64()), pa.array(bodies, pa.binary())], schema=WIRE)


def shard_dests(exchange: int, shards: int, partitions: int) -> tuple[int, ...]:
    """The destinations of an exchange's shards: numbers that Spark's hash spreads evenly over so many partitions.

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
    """The exchange a destination is a shard of; None for that of a sink."""
    return dest >> _SHARD_BITS if dest >= 0 else None


def segment_dest(segment: int) -> int:
    """The destination of a segment of columns: like that of an exchange no stream has so many of.

    >>> segment_dest(2) > shard_dests(1_000_000, 1, 1)[0], exchange_of(segment_dest(0)) is None
    (True, False)
    """
    return (_SEGMENTS + segment) << _SHARD_BITS


def sink_dest(sink: int, sender: int) -> int:
    """A destination of a sink, below zero; senders share the work of taking rows there.

    >>> sink_of(sink_dest(5, sender=18)), exchange_of(sink_dest(5, sender=18))
    (5, None)
    """
    return -1 - (sink * _SPREAD + sender % _SPREAD)


def sink_of(dest: int) -> int:
    """The sink of a destination below zero."""
    return (-1 - dest) // _SPREAD


def sink_dests(sink: int) -> tuple[int, int]:
    """The least and the greatest destination of a sink."""
    return sink_dest(sink, _SPREAD - 1), sink_dest(sink, 0)


def shards_of(keys: pa.BinaryArray, shards: int) -> Int64Array:
    """The shard of each encoded key, the same in every process.

    >>> shards_of(pa.array([b"a", b"b", b"a"]), 4).tolist()
    [3, 2, 3]
    """
    # A shard finds its windows by the lower half of the hash, which must not be the same for all its keys.
    numbers: Int64Array = (hash_bytes(keys) >> np.uint64(32)).astype(np.int64) % shards
    return numbers


@dataclass
class Tidings:
    """What a task has to tell the shards it feeds: the time of the batch, and how far what it read has come.

    `lows` has an entry for every upstream that spoke in this task, None if it had nothing to say about its watermark;
    `partitions`, those of its partitions that spoke; `disorder`, what there is to tell of their elements' order. Of
    those in `followed` the watermark is by the times of the rows that reach an exchange.
    """

    station: Station = (0, 0)
    partition: int = 0
    now: int | None = None
    lows: dict[str, int | None] = field(default_factory=dict)
    partitions: dict[str, dict[str, int]] = field(default_factory=dict)
    disorder: dict[str, dict[str, Sketch]] = field(default_factory=dict)
    followed: dict[str, WatermarkPolicy] = field(default_factory=dict)
    skewed: int = 0  # elements whose clocks are not believed

    def hear(self, name: str, low: int | None, now: int | None, partition: str = WHOLE) -> None:
        """An upstream, or a partition of it, has come to `low`, in a batch of the time `now`."""
        if partition == WHOLE:
            before = self.lows.get(name)
            self.lows[name] = low if before is None else before if low is None else max(before, low)
        else:
            self.lows.setdefault(name, None)
            lows = self.partitions.setdefault(name, {})
            lows[partition] = max(lows.get(partition, MIN_TIME), MIN_TIME if low is None else low)
        if now is not None:
            self.now = now if self.now is None else max(self.now, now)


@dataclass
class ToShards:
    """Sends the rows of a program's output to the shards of an exchange, and every shard the tidings, rows or not.

    If the exchange has to know how late its input comes, every shard hears that of all rows, not of its own alone.
    """

    rows: Output
    dests: tuple[int, ...]
    upstream: frozenset[str]  # whose tidings matter to the exchange
    tidings: Tidings
    delays: Delays | None = None
    held: list[pa.RecordBatch] = field(default_factory=list)
    sent: int = 0
    progress: dict[str, Progress] = field(default_factory=dict)  # of those that are followed

    def schema(self) -> pa.Schema:
        return WIRE

    def add(self, bundle: Bundle) -> Iterator[pa.RecordBatch]:
        return self._taken(bundle, self.rows.add)

    def add_columns(self, bundle: ColumnBundle) -> Iterator[pa.RecordBatch]:
        """Columns as they are, if the rows can be made of them."""
        if isinstance(self.rows, Columnar):
            yield from self._taken(bundle, self.rows.add_columns)
        else:
            for part in bundle.parts():
                yield from self.add(part)

    def _taken(self, bundle: Any, add: Callable[[Any], Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
        for name, policy in self.tidings.followed.items():
            self.progress.setdefault(name, Progress(policy)).observe(bundle.all_times(), now=self.tidings.now)
        if self.delays is not None and self.tidings.now is not None:
            self.delays.observe(bundle.all_times(), now=self.tidings.now)
        self.held += add(bundle)
        if sum(batch.num_rows for batch in self.held) >= _HELD_ROWS:
            told: dict[str, Any] = {"lows": {}}
            yield wire([(dest, self._body(mine, told)) for dest, mine in self._by_shard() if mine is not None])

    def finish(self) -> Iterator[pa.RecordBatch]:
        self.held += self.rows.finish()
        told = self._told()
        if told["lows"] or self.held:
            yield wire([(dest, self._body(mine, told)) for dest, mine in self._by_shard()])

    def _told(self) -> dict[str, Any]:
        lows = {name: low for name, low in self.tidings.lows.items() if name in self.upstream}
        disorder = {name: each for name, each in self.tidings.disorder.items() if name in lows}
        for name, progress in self.progress.items():
            # Whoever reads the same elements mistrusts the same clocks.
            self.tidings.skewed = max(self.tidings.skewed, progress.skewed)
            if name in lows and (low := progress.low()) > MIN_TIME:
                lows[name] = low
            if name in lows and (sketch := progress.sketch()) is not None:
                disorder[name] = {WHOLE: sketch}
        told: dict[str, Any] = {"lows": lows}
        if partitions := {name: each for name, each in self.tidings.partitions.items() if name in lows}:
            told["partitions"] = partitions
        if disorder:
            told["disorder"] = disorder
        if self.delays is not None:
            told["delays"] = sorted(self.delays.buckets.items())
        return told

    def _by_shard(self) -> Iterator[tuple[int, pa.RecordBatch | None]]:
        if not self.held:
            yield from ((dest, None) for dest in self.dests)
            return
        rows = pa.concat_batches(self.held)
        self.held = []
        shard = self._shards(rows)
        order = np.argsort(shard.astype(np.int16) if len(self.dests) < 2**15 else shard, kind="stable")  # by radix
        edges = np.searchsorted(shard[order], np.arange(len(self.dests) + 1)).tolist()
        rows = rows.take(pa.array(order))
        for number, dest in enumerate(self.dests):
            count = edges[number + 1] - edges[number]
            yield dest, rows.slice(edges[number], count) if count else None

    def _shards(self, rows: pa.RecordBatch) -> Int64Array:
        return shards_of(rows.column(KEY), len(self.dests))

    def _body(self, rows: pa.RecordBatch | None, told: dict[str, Any]) -> bytes:
        task = self.tidings
        self.sent += 1
        return pack({"from": [*task.station, task.partition, self.sent], "now": task.now, **told}, rows)


@dataclass
class ToSink:
    """Sends the batches of a program's output to a sink."""

    batches: Output
    number: int
    tidings: Tidings

    def schema(self) -> pa.Schema:
        return WIRE

    def add(self, bundle: Bundle) -> Iterator[pa.RecordBatch]:
        return self._sent(self.batches.add(bundle))

    def add_columns(self, bundle: ColumnBundle) -> Iterator[pa.RecordBatch]:
        """Columns as they are, if the sink takes them."""
        if isinstance(self.batches, Columnar):
            yield from self._sent(self.batches.add_columns(bundle))
        else:
            for part in bundle.parts():
                yield from self.add(part)

    def finish(self) -> Iterator[pa.RecordBatch]:
        return self._sent(self.batches.finish())

    def _sent(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        dest = sink_dest(self.number, self.tidings.partition)
        for batch in batches:
            yield wire([(dest, pack({}, batch))])
