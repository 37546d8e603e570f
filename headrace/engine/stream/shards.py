"""The shards of a level on Spark: one stateful operator, which stores the state of each shard as blocks.

Only Spark's state store is authoritative. A worker also has a cache of the shards it processed last; the stamp of a
shard in the store tells whether the cached state is the newest. A shard's processor does the work.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from headrace.engine.shard.clocks import Clocks, Upstream
from headrace.engine.shard.delays import Delays
from headrace.engine.shard.placing import COUNT
from headrace.engine.shard.processor import StepResult
from headrace.engine.shard.reports import ClockReport, ShardReport
from headrace.engine.shard.wire import pack, unpack
from headrace.engine.shard.work import SlicedProcessor, Work
from headrace.engine.state.statecells import CELL, CELL_KEY, STAMP, StateCells, StateStamp
from headrace.engine.worker.blame import blame
from headrace.model.metriccells import recording
from headrace.model.pickling import define_in_script
from headrace.model.times import MIN_TIME

_CACHED: Final = 256
"""How many shards a worker caches."""


@dataclass(frozen=True)
class ShardSpec:
    """The specification of a shard: its name and number, the label and work of its exchange, and its upstream.

    Of sources it may have the partitions, after how long they are idle, and whether their writers say how far they are.
    """

    name: str
    label: str
    work: Work
    upstream: tuple[str, ...]
    number: int = 0
    partitions: dict[str, tuple[str, ...]] = field(default_factory=dict)
    idle_after: dict[str, int] = field(default_factory=dict)
    written: frozenset[str] = frozenset()


class Shard:
    """A shard in a worker's memory: its processor, the clocks of its upstream, and counts for its report."""

    def __init__(self, spec: ShardSpec) -> None:
        self.spec = spec
        self.processor = spec.work.processor(spec.number)
        partitions = {name: dict.fromkeys(parts, MIN_TIME) for name, parts in spec.partitions.items()}
        lows = dict.fromkeys(spec.upstream, MIN_TIME)
        self.upstream = Upstream(lows, spec.idle_after, partitions, written=spec.written)
        self.delays = Delays()
        self.late = self.refused = 0
        self.copies = {"used": 0, "caught up": 0, "loaded": 0}  # how often workers had a copy, an older one, or none

    def step(self, reports: list[ClockReport], parts: list[pa.RecordBatch]) -> tuple[StepResult, int]:
        """Takes in what the tasks of a micro-batch sent; returns what came of it, and the time of the batch."""
        now = max((report.now for report in reports if report.now is not None), default=MIN_TIME)
        now = max(now, self.processor.clocks.now)
        parts = [rows for rows in parts if rows.num_rows]
        rows = pa.concat_batches(parts) if parts else None
        for report in reports:
            for name, partition, low in report.watermarks():
                self.upstream.report(name, low, now=now, partition=partition)
        self.upstream.learn((sketch for report in reports for sketch in report.sketches()), now=now)
        fractions = self.processor.fractions
        for report in reports:
            self.delays.merge(report.delays)
        watermark = self.upstream.advance(now=now)
        step = self.processor.step(rows, Clocks(watermark, now, self.delays.watermarks(fractions, now=now)))
        self.late += _elements(step.late)
        self.refused += step.refused
        return step, now

    def header(self) -> dict[str, Any]:
        """Returns what is stored besides the processor's state."""
        return {
            "upstream": self.upstream.dump().decode(),
            "delays": list(self.delays.buckets.items()),
            "late": self.late,
            "refused": self.refused,
            "copies": self.copies,
        }

    def load(self, cells: Iterable[bytes]) -> None:
        """Restores the state in cells: all of it or, on top of the state it has, the deltas since."""
        header: dict[str, Any] = {}
        blocks: list[bytes] = []
        for cell in cells:
            header, more = unpack(cell)
            blocks += more.column(0).to_pylist()
        self.processor.load(blocks)
        self.upstream.load(header["upstream"].encode())
        self.delays = Delays(dict(map(tuple, header["delays"])))
        self.late, self.refused, self.copies = header["late"], header["refused"], header["copies"]


def _received(body: bytes) -> tuple[ClockReport, pa.RecordBatch]:
    header, rows = unpack(body)
    return ClockReport.load(header), rows


def _elements(rows: pa.RecordBatch | None) -> int:
    if rows is None:
        return 0
    return int(np.asarray(rows.column(COUNT)).sum()) if COUNT in rows.schema.names else rows.num_rows


@dataclass
class ShardCache:
    """The shards in a worker's memory, by stream and destination, each with the stamp of its state."""

    shards: OrderedDict[tuple[str, int], tuple[StateStamp, Shard]] = field(default_factory=OrderedDict)

    def take(self, stream: str, dest: int) -> tuple[StateStamp, Shard] | None:
        """Removes and returns the shard, if it is cached; so a step that fails leaves none."""
        return self.shards.pop((stream, dest), None)

    def put(self, stream: str, dest: int, stamp: StateStamp, shard: Shard) -> None:
        self.shards[stream, dest] = stamp, shard
        while len(self.shards) > _CACHED:
            self.shards.popitem(last=False)


_cache: Final = ShardCache()


class ShardOperator(StatefulProcessor):
    """The shards of a level, by destination, as an operator of Spark's; rows for other destinations pass.

    With `after`, the program behind the level runs here: then a task must have no more than one shard. A row for one of
    the `forgotten` removes its state. With `stamps_apart`, stamps are a state variable of their own.
    """

    def __init__(
        self,
        stream: str,
        specs: dict[int, ShardSpec],
        classes: dict[str, type],
        after: Callable[[int, ShardReport, pa.RecordBatch], Iterator[pa.RecordBatch]] | None = None,
        forgotten: frozenset[int] = frozenset(),
        *,
        stamps_apart: bool = False,
    ) -> None:
        self.stream, self.specs, self.classes, self.after = stream, specs, classes, after
        self.forgotten, self.stamps_apart = forgotten, stamps_apart

    def init(self, handle: StatefulProcessorHandle) -> None:
        define_in_script(self.classes)
        stamp = handle.getValueState("stamp", STAMP) if self.stamps_apart else None
        self.cells = StateCells(handle.getMapState("cells", CELL_KEY, CELL), stamp)

    def handleInitialState(self, key: Any, initialState: Row, timerValues: Any) -> None:
        """Takes over a cell of the state that the stream begins with."""
        self.cells.put_back(initialState.kind, initialState.number, bytes(initialState.cell))

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        (dest,) = key
        spec = self.specs.get(dest)
        if dest in self.forgotten:
            self.cells.clear()
            return
        if spec is None:
            for row in rows:
                yield Row(dest=dest, body=row.body)
            return
        # The order in which Spark fetched them is no two times the same.
        bodies = sorted((_received(row.body) for row in rows), key=lambda body: body[0].sender)
        stamp = self.cells.stamp()
        with recording(all_threads=True) as recorder, blame(spec.label):
            shard = Shard(spec) if stamp is None else self._shard(dest, spec, stamp)
            step, now = shard.step([report for report, _ in bodies], [rows for _, rows in bodies])
            stamp = self.cells.write(stamp or StateStamp(), shard.header(), shard.processor)
        _cache.put(self.stream, dest, stamp, shard)
        report = ShardReport(
            spec.name,
            now,
            watermark=step.watermark,
            input_watermark=shard.upstream.watermark,
            held=step.held,
            idle=tuple(shard.upstream.idle(now=now)),
            late=shard.late,
            refused=shard.refused,
            copies=shard.copies,
            counts=dict(step.counts),
            waiting=step.waiting,
            # All shards get the same reports of sources; one passes them on.
            lows=shard.upstream.by_name() if spec.number == 0 else {},
            metrics=recorder.cells,
            again=step.again,
        )
        if self.after is None:
            yield Row(dest=dest, body=pack(report.dump(), step.panes))
            return
        for batch in self.after(dest, report, step.panes):
            for to, sent in zip(batch.column("dest").to_pylist(), batch.column("body").to_pylist(), strict=True):
                yield Row(dest=to, body=sent)

    def _shard(self, dest: int, spec: ShardSpec, stamp: StateStamp) -> Shard:
        """Returns the shard with the state of the stamp: cached, cached with later deltas, or loaded."""
        cached, shard = _cache.take(self.stream, dest) or (None, None)
        if shard is not None and cached is not None:
            if cached.token == stamp.token:
                shard.copies["used"] += 1
                return shard
            if isinstance(shard.processor, SlicedProcessor) and (deltas := self.cells.since(stamp, cached)) is not None:
                shard.load(deltas)
                shard.copies["caught up"] += 1
                return shard
        shard = Shard(spec)
        shard.load(self.cells.whole(stamp))
        shard.copies["loaded"] += 1
        return shard

    def close(self) -> None:
        pass
