"""Beam's own trigger driver as the work of a stream's shards, for windowings that Headrace cannot express.

The state of a key is that of Beam's driver: windows as it has merged them, their elements as bytes, and timers. A key
is stepped when it gets elements or when one of its timers is due; windows whose lateness is used up are dropped.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.trigger import GeneralTriggerDriver, InMemoryUnmergedState, MergeableStateAdapter
from apache_beam.utils import windowed_value
from apache_beam.utils.timestamp import Timestamp

from headrace.dialects.beam.beamtimers import NEVER
from headrace.dialects.beam.beamtimes import to_micros, to_timestamp
from headrace.dialects.beam.border import WindowBorder, WindowKind, fold, from_pane, from_times, to_pane, to_times
from headrace.dialects.beam.stagespecs import Port, StageSpec
from headrace.dialects.beam.storedrecords import RecordShard
from headrace.engine.columns.cells import decode_cells
from headrace.engine.shard.clocks import Clocks, output_watermark
from headrace.engine.shard.identity import Identity
from headrace.engine.shard.processor import StepResult
from headrace.engine.shard.taggedbundles import pack_bundles, unpack_bundles
from headrace.engine.worker.bundles import Bundle
from headrace.engine.worker.shuffle import KEY, SPELLING, VALUE
from headrace.model.keys import decode_keys
from headrace.model.panes import GLOBAL, Windowing
from headrace.model.pickling import dumps
from headrace.model.times import MAX_TIME, MIN_TIME


@dataclass(eq=False)
class DrivenKey:
    """A key, the state of Beam's driver for it, and when it has to be stepped next."""

    name: bytes
    seq: int
    state: InMemoryUnmergedState = field(default_factory=InMemoryUnmergedState)
    event: int = NEVER
    processing: int = NEVER
    ends: int = NEVER
    hold: int = NEVER


class _ShardClock:
    """The processing time of the step, as Beam's driver asks for it."""

    def __init__(self) -> None:
        self.now = Timestamp(0)

    def time(self) -> float:
        return float(self.now)


class DriverShard(RecordShard[DrivenKey]):
    """The processor of a shard. Rows have KEY, SPELLING and VALUE: time, window as bytes, pane, and value as bytes."""

    def __init__(self, windowing: Any, windows: WindowBorder) -> None:
        super().__init__()
        self._clock, self._windows = _ShardClock(), windows
        self._lateness = windowing.allowed_lateness
        self._driver = GeneralTriggerDriver(windowing, self._clock)

    def step(self, rows: pa.RecordBatch | None = None, clocks: Clocks | None = None) -> StepResult:
        """Adds rows, moves the clocks on, and fires panes."""
        before, after = self.clocks, self.clocks.moved(clocks or Clocks())
        self._clock.now = to_timestamp(max(after.now, 0))
        panes: list[tuple[bytes, windowed_value.WindowedValue]] = []
        late = None
        if rows is not None and rows.num_rows:
            late, taken = self._taken(rows, before)
            for key, values in taken.items():
                record = self.records.by_name.get(key)
                if record is None:
                    record = self.records.add(DrivenKey(key, self.records.next_seq))
                low = to_timestamp(before.watermark)
                panes += ((key, pane) for pane in self._driver.process_elements(record.state, values, low, low))
                panes += self._fired(record, before)
                self._changed(record)
        for record in list(self.records.by_name.values()):
            if min(record.event, record.ends) <= after.watermark or record.processing <= after.now:
                panes += self._fired(record, after)
                self._collect_garbage(record, after)
        self.clocks = after
        hold = min((record.hold for record in self.records.by_name.values()), default=MAX_TIME)
        self.watermark = output_watermark(self.watermark, after.watermark, np.array([hold]))
        groups = pack_bundles((None, self._group(key, pane)) for key, pane in panes)
        return StepResult(groups, late, 0, self.watermark, len(self.records.by_name))

    def _taken(
        self, rows: pa.RecordBatch, clocks: Clocks
    ) -> tuple[pa.RecordBatch | None, dict[bytes, list[windowed_value.WindowedValue]]]:
        """Reads rows as windowed values by key; rows whose window is over are late."""
        keys = decode_keys(rows.column(KEY), rows.column(SPELLING))
        entries = decode_cells(rows.column(VALUE))
        micros = from_times(np.array([entry[0] for entry in entries], np.int64))
        low, over, taken = to_timestamp(clocks.watermark), np.zeros(len(keys), np.bool_), dict[Any, list[Any]]()
        for at, (key, time, (_, window, pane, value)) in enumerate(zip(keys, micros, entries, strict=True)):
            placed = self._windows.decoded(window)
            over[at] = low > placed[0].end + self._lateness
            if not over[at]:
                taken.setdefault(key, []).append(windowed_value.create(value, time, placed, from_pane(pane)))
        return rows.filter(pa.array(over)) if over.any() else None, taken

    def _fired(self, record: DrivenKey, clocks: Clocks) -> Iterator[tuple[bytes, windowed_value.WindowedValue]]:
        """Fires the timers of a key that are due; at the end of time, those of processing time, too."""
        low = to_timestamp(clocks.watermark)
        now = to_timestamp(MAX_TIME if clocks.watermark >= MAX_TIME else clocks.now)
        while due := record.state.get_timers(clear=True, watermark=low, processing_time=now)[0]:
            for window, (name, domain, time, _) in due:
                for pane in self._driver.process_timer(window, name, domain, time, record.state, low):
                    yield record.name, pane
        self._changed(record)

    def _changed(self, record: DrivenKey) -> None:
        """Notes that a key has changed, and when it has to be stepped next."""
        self.records.changed[record.seq] = record
        self._look(record)

    def _look(self, record: DrivenKey) -> None:
        by_domain = {TimeDomain.WATERMARK: NEVER, TimeDomain.REAL_TIME: NEVER}
        for timers in record.state.timers.values():
            for (_, domain, _), time in timers.items():
                by_domain[domain] = min(by_domain[domain], to_micros(Timestamp.of(time)))
        record.event, record.processing = by_domain[TimeDomain.WATERMARK], by_domain[TimeDomain.REAL_TIME]
        windows = MergeableStateAdapter(record.state).known_windows()
        record.ends = min((self._end(window) for window in windows), default=MIN_TIME)
        earliest = record.state.get_earliest_hold()
        record.hold = to_micros(earliest) + 1 if to_micros(earliest) < MAX_TIME else NEVER

    def _end(self, window: Any) -> int:
        return min(to_micros(window.end + self._lateness) + 1, MAX_TIME)

    def _collect_garbage(self, record: DrivenKey, clocks: Clocks) -> None:
        """Drops windows whose lateness is used up, and the key with its last one."""
        adapter = MergeableStateAdapter(record.state)
        for window in [each for each in adapter.known_windows() if self._end(each) <= clocks.watermark]:
            for number in adapter.window_ids.pop(window):
                record.state.state.pop(number, None)
                record.state.timers.pop(number, None)
            adapter._persist_window_ids()
        if not adapter.known_windows():
            self.records.drop(record)
        else:
            self._look(record)

    def _group(self, key: bytes, pane: windowed_value.WindowedValue) -> Bundle:
        (window,), info = pane.windows, pane.pane_info
        ours = to_pane(info.is_first, info.is_last, info.timing, info.index, info.nonspeculative_index)
        times = to_times([pane.timestamp_micros])
        values = list(pane.value)
        if self._windows.kind is WindowKind.GLOBAL:
            return Bundle([(key, values)], times, pane=ours)
        if self._windows.kind is WindowKind.FOLDED:
            key = fold(self._windows.bytes_of(window), key)
        start, end = self._windows.bounds(window)
        return Bundle([(key, values)], times, np.array([start]), np.array([end]), ours)

    # State

    def _dump(self, record: DrivenKey) -> bytes:
        state = record.state
        by_window = {window: dict(tags) for window, tags in state.state.items()}
        return dumps((by_window, {window: dict(timers) for window, timers in state.timers.items()}, state.global_state))

    def _load(self, seq: int, name: bytes, cell: bytes) -> DrivenKey:
        record = DrivenKey(name, seq)
        by_window, timers, record.state.global_state = pickle.loads(cell)
        for window, tags in by_window.items():
            record.state.state[window].update(tags)
        record.state.timers.update(timers)
        self._look(record)
        return record


@dataclass(frozen=True)
class DriverWork:
    """Groups by Beam's trigger driver: the entries of `EntriesFn` come in, and groups come out."""

    spec: StageSpec
    sink: Port
    windowing: Windowing = field(default=GLOBAL, repr=False)

    needs_time: ClassVar[bool] = True
    retracts: ClassVar[bool] = False

    def processor(self, shard: int = 0) -> DriverShard:
        components = self.spec.components
        return DriverShard(components.windowing(self.sink.collection), components.windows(self.sink.collection))

    def bundles(self, emitted: pa.RecordBatch) -> Iterator[tuple[str | None, Bundle]]:
        return unpack_bundles(emitted)

    def identity(self) -> Identity:
        return {"kind": "beam driver", "window": self.describe()}

    def describe(self) -> str:
        windowing = self.spec.components.windowing(self.sink.collection)
        return f"Beam's trigger driver, {type(windowing.windowfn).__qualname__}, {windowing.triggerfn}"
