"""The Python programs of a stream: one after each source and one after each level of exchanges, with their clocks.

They are the programs of a batch, but for what enters and leaves: rows from a source or panes from shards enter, rows in
flight leave, and with them, to every shard, how far the input has come.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from headrace.engine.bundles import LOW, NOW, TIME, Bundle
from headrace.engine.clocks import source_watermark
from headrace.engine.exchanges import Work
from headrace.engine.program import Head, Program, Readers
from headrace.engine.routing import STATUS, WIRE, Station, Tidings, exchange_of, pack, sink_dest, unpack, wire
from headrace.model.pickling import define_in_script
from headrace.model.times import DAY, MAX_TIME, MIN_TIME

HEARTBEAT: Final = "heartbeat"
"""The name of what only tells the time."""

MAX_SKEW: Final = DAY
"""How far ahead of processing time an event may be before it is taken for a wrong clock."""

Watermarks = Literal["given", "from times", "followed"]
"""How a source's watermark is known: rows tell it; it is the latest event time; or the latest that functions set."""


@dataclass
class FromSource:
    """Reads the rows of a source, and notes its watermark."""

    name: str
    rows: Head
    watermarks: Watermarks
    tidings: Tidings

    def bundles(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Bundle]:
        if self.watermarks == "followed":
            self.tidings.followed.add(self.name)
        for batch in batches:
            if not batch.num_rows:
                continue
            now = pc.max(batch.column(NOW)).as_py()
            elements = batch.filter(pc.is_null(batch.column(LOW))).drop_columns([NOW, LOW])
            self.tidings.hear(self.name, pc.max(batch.column(LOW)).as_py(), now)
            if self.watermarks == "from times":
                times = np.asarray(elements.column(TIME).drop_null())
                at = MAX_TIME if now is None else now
                low, skewed = source_watermark(MIN_TIME, times, now=at, slack=0, max_skew=MAX_SKEW)
                self.tidings.hear(self.name, low, now)
                self.tidings.skewed += skewed
            if elements.num_rows:
                yield from self.rows.bundles(iter([elements]))


@dataclass
class FromClocks:
    """Reads rows that only tell how far sources have come, or what time it is."""

    tidings: Tidings

    def bundles(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Bundle]:
        for batch in batches:
            for row in batch.to_pylist():
                self.tidings.hear(row["source"], row[LOW], row[NOW])
        yield from ()


@dataclass
class SourceProgram(Program):
    """Callable by mapInArrow over the rows of a source."""

    tidings: Tidings = field(kw_only=True)
    label: str = field(kw_only=True)

    def schema(self) -> pa.Schema:
        return WIRE

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        define_in_script(self.classes)
        self.tidings.partition = _partition()
        for _, batch in self._run(batches):
            yield batch
        if self.tidings.skewed and self.counters is not None:
            self.counters.add(Counter({(self.label, "skewed"): self.tidings.skewed}))


@dataclass(frozen=True)
class Entry:
    """Where what the shards of an exchange give enters a program, by tag."""

    work: Work
    readers: dict[str | None, Readers]


@dataclass
class LevelProgram(Program):
    """Callable by mapInArrow over what the shards of a level gave; rows that go elsewhere pass."""

    tidings: Tidings = field(kw_only=True)
    station: Station = field(kw_only=True)
    entries: dict[int, Entry] = field(kw_only=True)

    def schema(self) -> pa.Schema:
        return WIRE

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        define_in_script(self.classes)
        self.tidings.station, self.tidings.partition = self.station, _partition()
        self._passing: list[tuple[int, bytes]] = []
        self._told: dict[str, Any] = {}
        for _, batch in self._run(batches):
            yield batch
            yield from self._passed()
        if self._told:
            self._passing.append((sink_dest(STATUS, self.tidings.partition), pack(self._told)))
        yield from self._passed()

    def _passed(self) -> Iterator[pa.RecordBatch]:
        if self._passing:
            yield wire(self._passing)
            self._passing.clear()

    def _entries(self) -> Iterable[Readers]:
        return [readers for entry in self.entries.values() for readers in entry.readers.values()]

    def _entering(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[Bundle, Readers]]:
        for batch in batches:
            for dest, body in zip(batch.column("dest").to_pylist(), batch.column("body").to_pylist(), strict=True):
                exchange = exchange_of(dest)
                entry = None if exchange is None else self.entries.get(exchange)
                if entry is None:
                    self._passing.append((dest, body))
                    continue
                header, given = unpack(body)
                self.tidings.hear(header["name"], header["watermark"], header["now"])
                self._told[header["name"]] = header
                for tag, bundle in entry.work.bundles(given):
                    yield bundle, entry.readers[tag]


def _partition() -> int:
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()
