"""The shards of a level on Spark: one stateful operator, which keeps each shard's state as blocks.

Spark's state store is the only truth. A worker also keeps the shards it has seen last in memory; a shard's stamp in the
store tells whether such a copy is the newest. What a shard does with its rows is its processor's.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from headrace.engine.bundles import BLOCK_SCHEMA, TIME
from headrace.engine.clocks import Clocks, Delays, Upstream
from headrace.engine.exchanges import Work
from headrace.engine.failures import blame
from headrace.engine.placing import COUNT
from headrace.engine.routing import pack, unpack
from headrace.engine.shard import Step
from headrace.model.pickling import define_in_script
from headrace.model.times import MIN_TIME

_STAMP: Final = StructType(
    [StructField(name, LongType()) for name in ("version", "base", "whole", "deltas")]
    + [StructField("token", BinaryType())]
)
_VERSION: Final = StructType([StructField("version", LongType())])
_CELL: Final = StructType([StructField("cell", BinaryType())])

_SMALL: Final = 65_536
"""Bytes of changes that are not worth writing the whole state anew for."""
_KEPT: Final = 256
"""How many shards a worker keeps in memory."""


@dataclass(frozen=True)
class ShardSpec:
    """What a shard is: its name, the exchange it belongs to and what that does, and whom it waits for."""

    name: str
    label: str
    work: Work
    upstream: tuple[str, ...]


@dataclass
class Stamp:
    """Which state the store has: blocks from version `base`, a whole state, to `version`; sizes in bytes.

    `token` is of one attempt at this version only: an attempt that failed may have left a copy in a worker.
    """

    version: int = 0
    base: int = 0
    whole: int = 0
    deltas: int = 0
    token: bytes = b""


class Shard:
    """A shard in a worker's memory: its processor, the clocks of what it reads, and counts for whoever asks."""

    def __init__(self, spec: ShardSpec) -> None:
        self.spec = spec
        self.processor = spec.work.processor()
        # One that has not spoken yet is waited for.
        self.upstream = Upstream(low=dict.fromkeys(spec.upstream, MIN_TIME))
        self.delays = Delays()
        self.late = self.refused = 0

    def step(self, bodies: list[tuple[dict[str, Any], pa.RecordBatch]]) -> tuple[Step, int]:
        """Takes in what the tasks of a micro-batch sent; returns what came of it, and the time it is."""
        now = max((header["now"] for header, _ in bodies if header["now"] is not None), default=MIN_TIME)
        now = max(now, self.processor.clocks.now)
        parts = [rows for _, rows in bodies if rows.num_rows]
        rows = pa.concat_batches(parts) if parts else None
        for header, _ in bodies:
            for name, low in header["lows"].items():
                if low is not None:
                    self.upstream.report(name, low, now=now)
        fractions = self.processor.fractions
        if fractions and rows is not None:
            self.delays.observe(np.asarray(rows.column(TIME)), now=now)
        watermark = self.upstream.advance(now=now)
        step = self.processor.step(rows, Clocks(watermark, now, self.delays.watermarks(fractions, now=now)))
        self.late += _elements(step.late)
        self.refused += step.refused
        return step, now

    def cell(self, *, whole: bool) -> bytes:
        """The state, or what has changed of it since it was last asked for."""
        blocks = self.processor.dump() if whole else self.processor.changes()
        header = {
            "upstream": self.upstream.dump().decode(),
            "delays": list(self.delays.buckets.items()),
            "late": self.late,
            "refused": self.refused,
        }
        return pack(header, pa.record_batch([pa.array(blocks, pa.binary())], schema=BLOCK_SCHEMA))

    def load(self, cells: list[bytes]) -> None:
        """Takes over the state of cells, a whole one first."""
        read = [unpack(cell) for cell in cells]
        self.processor.load([block for _, blocks in read for block in blocks.column(0).to_pylist()])
        header, _ = read[-1]
        self.upstream = Upstream.load(header["upstream"].encode())
        self.delays = Delays(dict(map(tuple, header["delays"])))
        self.late, self.refused = header["late"], header["refused"]


def _elements(rows: pa.RecordBatch | None) -> int:
    if rows is None:
        return 0
    return int(np.asarray(rows.column(COUNT)).sum()) if COUNT in rows.schema.names else rows.num_rows


@dataclass
class Copies:
    """The shards a worker has in memory, by stream and destination, each with the token of its state."""

    held: OrderedDict[tuple[str, int], tuple[bytes, Shard]] = field(default_factory=OrderedDict)

    def take(self, stream: str, dest: int, token: bytes) -> Shard | None:
        """The copy, if it is of this state. It is taken out: a step that fails leaves none."""
        kept, shard = self.held.pop((stream, dest), (b"", None))
        return shard if kept == token else None

    def keep(self, stream: str, dest: int, token: bytes, shard: Shard) -> None:
        self.held[stream, dest] = token, shard
        while len(self.held) > _KEPT:
            self.held.popitem(last=False)


_copies: Final = Copies()


class Shards(StatefulProcessor):
    """All shards of a level, by destination. Rows for others pass."""

    def __init__(self, stream: str, specs: dict[int, ShardSpec], classes: dict[str, type]) -> None:
        self.stream, self.specs, self.classes = stream, specs, classes

    def init(self, handle: StatefulProcessorHandle) -> None:
        define_in_script(self.classes)
        self.stamp = handle.getValueState("stamp", _STAMP)
        self.cells = handle.getMapState("cells", _VERSION, _CELL)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        (dest,) = key
        spec = self.specs.get(dest)
        if spec is None:
            for row in rows:
                yield Row(dest=dest, body=row.body)
            return
        # The order in which Spark fetched them is no two times the same.
        bodies = sorted((unpack(row.body) for row in rows), key=lambda body: body[0]["from"])
        held = self.stamp.get()
        stamp = Stamp() if held is None else Stamp(*held)
        with blame(spec.label):
            shard = self._shard(dest, spec, stamp)
            step, now = shard.step(bodies)
            self._write(shard, stamp)
        _copies.keep(self.stream, dest, stamp.token, shard)
        header = {
            "name": spec.name,
            "now": now,
            "watermark": step.watermark,
            "input": shard.upstream.watermark,
            "held": step.held,
            "late": shard.late,
            "refused": shard.refused,
            "waiting": None if step.waiting is None else asdict(step.waiting),
            # All shards hear the same of sources; one tells.
            "lows": shard.upstream.low if spec.name.endswith("/0") else {},
        }
        yield Row(dest=dest, body=pack(header, step.panes))

    def _shard(self, dest: int, spec: ShardSpec, stamp: Stamp) -> Shard:
        shard = _copies.take(self.stream, dest, bytes(stamp.token)) if stamp.version else None
        if shard is None:
            shard = Shard(spec)
            if stamp.version:
                versions = range(stamp.base, stamp.version + 1)
                shard.load([bytes(self.cells.getValue((version,))[0]) for version in versions])  # type: ignore[index]
        return shard

    def _write(self, shard: Shard, stamp: Stamp) -> None:
        whole = not stamp.version or stamp.deltas > max(stamp.whole, _SMALL)
        cell = shard.cell(whole=whole)
        stamp.version += 1
        if whole:
            if stamp.base:
                self.cells.clear()
            stamp.base, stamp.whole, stamp.deltas = stamp.version, len(cell), 0
        else:
            stamp.deltas += len(cell)
        self.cells.updateValue((stamp.version,), (cell,))
        stamp.token = os.urandom(8)
        self.stamp.update((stamp.version, stamp.base, stamp.whole, stamp.deltas, stamp.token))

    def close(self) -> None:
        pass
