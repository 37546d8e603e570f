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

from headrace.engine.bundles import END, LOW, NOW, START, TIME, Bundle
from headrace.engine.cells import decode_cells
from headrace.engine.clocks import source_watermark
from headrace.engine.program import Head, Program, Readers
from headrace.engine.routing import STATUS, WIRE, Tidings, exchange_of, pack, sink_dest, unpack, wire
from headrace.engine.shard import TIMINGS
from headrace.engine.shuffle import KEY, SPELLING, VALUE
from headrace.model.keys import decode_keys
from headrace.model.panes import PaneInfo
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
    """Where the panes of an exchange enter a program."""

    global_windows: bool
    readers: Readers


@dataclass
class LevelProgram(Program):
    """Callable by mapInArrow over what the shards of a level gave; rows that go elsewhere pass."""

    tidings: Tidings = field(kw_only=True)
    level: int = field(kw_only=True)
    entries: dict[int, Entry] = field(kw_only=True)

    def schema(self) -> pa.Schema:
        return WIRE

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        define_in_script(self.classes)
        self.tidings.level, self.tidings.partition = self.level, _partition()
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
        return [entry.readers for entry in self.entries.values()]

    def _entering(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[Bundle, Readers]]:
        for batch in batches:
            for dest, body in zip(batch.column("dest").to_pylist(), batch.column("body").to_pylist(), strict=True):
                exchange = exchange_of(dest)
                entry = None if exchange is None else self.entries.get(exchange)
                if entry is None:
                    self._passing.append((dest, body))
                    continue
                header, panes = unpack(body)
                self.tidings.hear(header["name"], header["watermark"], header["now"])
                self._told[header["name"]] = header
                for bundle in pane_bundles(panes, global_windows=entry.global_windows):
                    yield bundle, entry.readers


def pane_bundles(panes: pa.RecordBatch, *, global_windows: bool) -> Iterator[Bundle]:
    """Panes as bundles of pairs, one for each kind of pane; what is taken back comes before what replaces it."""
    if not panes.num_rows:
        return
    kinds = np.stack([np.asarray(panes.column(name)).astype(np.int64) for name in _KIND], axis=1)
    distinct, kind = np.unique(kinds, axis=0, return_inverse=True)
    for number, (back, timing, index, on_time_index, first, last) in reversed(list(enumerate(distinct.tolist()))):
        rows = panes if len(distinct) == 1 else panes.filter(pa.array(kind.reshape(-1) == number))
        keys = decode_keys(rows.column(KEY), rows.column(SPELLING))
        yield Bundle(
            list(zip(keys, decode_cells(rows.column(VALUE)), strict=True)),
            np.asarray(rows.column(TIME)),
            None if global_windows else np.asarray(rows.column(START)),
            None if global_windows else np.asarray(rows.column(END)),
            PaneInfo(TIMINGS[timing], index, on_time_index, bool(first), bool(last)),
            retraction=bool(back),
        )


_KIND: Final = ("retraction", "timing", "index", "on_time_index", "is_first", "is_last")


def _partition() -> int:
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()
