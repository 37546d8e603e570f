"""Outputs of a stream's programs: they send rows to the shards of an exchange, or batches to a sink.

Every shard also gets a report of the task's clocks, with or without rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.engine.shard.clocks import WHOLE
from headrace.engine.shard.delays import Delays
from headrace.engine.shard.reports import ClockReport, TaskClocks
from headrace.engine.shard.slots import shards_of
from headrace.engine.shard.sourceprogress import SourceProgress
from headrace.engine.shard.stagedbodies import MOST_BYTES, StagedBodies
from headrace.engine.shard.wire import WIRE, pack, sink_dest, wire
from headrace.engine.worker.bundles import BATCH_SIZE, Bundle
from headrace.engine.worker.columnbundles import Columnar, ColumnBundle
from headrace.engine.worker.program import Output
from headrace.engine.worker.shuffle import KEY
from headrace.model.times import MIN_TIME, Int64Array

_BUFFERED_ROWS: Final = 10 * BATCH_SIZE
"""How many rows are buffered before they are sent."""


@dataclass
class ToShards:
    """Sends the rows of a program's output to the shards of an exchange, and reports the task's clocks to every shard.

    If the exchange has to know how late its input comes, every shard gets the delays of all rows.
    """

    rows: Output
    dests: tuple[int, ...]
    upstream: frozenset[str]  # whose clocks matter to the exchange
    delays: Delays | None = None
    clocks: TaskClocks = field(default_factory=TaskClocks)  # those of the task, which its program sets
    buffer: list[pa.RecordBatch] = field(default_factory=list)
    sent: int = 0
    progress: dict[str, SourceProgress] = field(default_factory=dict)  # of those that are followed
    by_slot: bool = True  # whether keys belong to slots, as they did not in earlier versions

    def schema(self) -> pa.Schema:
        return WIRE

    def add(self, bundle: Bundle) -> Iterator[pa.RecordBatch]:
        return self._add(bundle, self.rows.add)

    def add_columns(self, bundle: ColumnBundle) -> Iterator[pa.RecordBatch]:
        """Adds columns as they are, if the rows can be made of them."""
        if self.delays is not None or self.clocks.followed:
            bundle = bundle.placed()  # a row of several windows is observed in each
        if isinstance(self.rows, Columnar):
            yield from self._add(bundle, self.rows.add_columns)
        else:
            for part in bundle.parts():
                yield from self.add(part)

    def _add(self, bundle: Any, add: Callable[[Any], Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
        for name, policy in self.clocks.followed.items():
            self.progress.setdefault(name, SourceProgress(policy)).observe(bundle.all_times(), now=self.clocks.now)
        if self.delays is not None and self.clocks.now is not None:
            self.delays.observe(bundle.all_times(), now=self.clocks.now)
        self.buffer += add(bundle)
        if sum(batch.num_rows for batch in self.buffer) >= _BUFFERED_ROWS:
            # Clocks are reported once all is read.
            yield wire([(dest, self._body(rows)) for dest, rows in self._by_shard() if rows is not None])

    def finish(self) -> Iterator[pa.RecordBatch]:
        self.buffer += self.rows.finish()
        report = self._report()
        if report.lows or self.buffer:
            yield wire([(dest, self._body(rows, report)) for dest, rows in self._by_shard()])

    def _report(self) -> ClockReport:
        """Returns what the task has learnt of the exchange's upstream."""
        lows = {name: low for name, low in self.clocks.lows.items() if name in self.upstream}
        disorder = {name: sketches for name, sketches in self.clocks.disorder.items() if name in lows}
        for name, progress in self.progress.items():
            # Whoever reads the same elements mistrusts the same clocks.
            self.clocks.skewed = max(self.clocks.skewed, progress.skewed)
            if name in lows and (low := progress.low()) > MIN_TIME:
                lows[name] = low
            if name in lows and (sketch := progress.sketch()) is not None:
                disorder[name] = {WHOLE: sketch}
        partitions = {name: each for name, each in self.clocks.partitions.items() if name in lows}
        delays = () if self.delays is None else tuple(sorted(self.delays.buckets.items()))
        return ClockReport(lows=lows, partitions=partitions, disorder=disorder, delays=delays)

    def _by_shard(self) -> Iterator[tuple[int, pa.RecordBatch | None]]:
        if not self.buffer:
            yield from ((dest, None) for dest in self.dests)
            return
        rows = pa.concat_batches(self.buffer)
        self.buffer = []
        shard = self._shards(rows)
        order = np.argsort(shard.astype(np.int16) if len(self.dests) < 2**15 else shard, kind="stable")  # by radix
        edges = np.searchsorted(shard[order], np.arange(len(self.dests) + 1)).tolist()
        rows = rows.take(pa.array(order))
        for number, dest in enumerate(self.dests):
            count = edges[number + 1] - edges[number]
            yield dest, rows.slice(edges[number], count) if count else None

    def _shards(self, rows: pa.RecordBatch) -> Int64Array:
        return shards_of(rows.column(KEY), len(self.dests), by_slot=self.by_slot)

    def _body(self, rows: pa.RecordBatch | None, report: ClockReport = ClockReport()) -> bytes:
        level, hop = self.clocks.station
        self.sent += 1
        sender = level, hop, self.clocks.partition, self.sent
        return pack(replace(report, sender=sender, now=self.clocks.now).dump(), rows)


@dataclass
class ToSink:
    """Sends the batches of a program's output to a sink; with a directory for it, only as many as travel easily."""

    batches: Output
    number: int
    staging: str | None = None
    clocks: TaskClocks = field(default_factory=TaskClocks)  # those of the task, which its program sets
    _sent: int = field(default=0, init=False)  # bytes of the task
    _staged: StagedBodies | None = field(default=None, init=False)

    def schema(self) -> pa.Schema:
        return WIRE

    def add(self, bundle: Bundle) -> Iterator[pa.RecordBatch]:
        return self._send(self.batches.add(bundle))

    def add_columns(self, bundle: ColumnBundle) -> Iterator[pa.RecordBatch]:
        """Adds columns as they are, if the sink takes them."""
        if isinstance(self.batches, Columnar):
            yield from self._send(self.batches.add_columns(bundle))
        else:
            for part in bundle.parts():
                yield from self.add(part)

    def finish(self) -> Iterator[pa.RecordBatch]:
        yield from self._send(self.batches.finish())
        if self._staged is not None:
            yield wire([(self._dest, self._staged.close())])
        self._sent, self._staged = 0, None

    def _send(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            body = pack({}, batch)
            self._sent += len(body)
            if self.staging is None or self._sent <= MOST_BYTES:
                yield wire([(self._dest, body)])
            else:
                self._staged = self._staged or StagedBodies(self.staging)
                self._staged.add(body)

    @property
    def _dest(self) -> int:
        return sink_dest(self.number, self.clocks.partition)
