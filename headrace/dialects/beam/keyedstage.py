"""A stage with state and timers as the work of a stream's shards.

A step runs the elements of the step through the stage, then the timers that are due, in order, with those they set
meanwhile; windows that are over fire what they still have and lose their state. Records stay in memory as objects; what
changed is stored once a step, each state by the coder of its spec.
"""

from __future__ import annotations

import pickle
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import Any, ClassVar, Final, Protocol, Self

import numpy as np
import pyarrow as pa
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils import windowed_value

from headrace.dialects.beam import metrics
from headrace.dialects.beam.beamtimers import NEVER, SetTimer, Timers
from headrace.dialects.beam.border import ElementBorder, Form, WindowKind, from_pane, from_times, to_pane, unfold
from headrace.dialects.beam.sides import SideHandler
from headrace.dialects.beam.stageprocess import StageProcess
from headrace.dialects.beam.stagespecs import Port, StageSpec
from headrace.dialects.beam.storedrecords import RecordShard
from headrace.dialects.beam.userstate import Record, UserState
from headrace.engine.columns.cells import decode_cells
from headrace.engine.shard.clocks import Clocks, output_watermark
from headrace.engine.shard.identity import Identity, identity_of
from headrace.engine.shard.placing import expired
from headrace.engine.shard.processor import StepResult
from headrace.engine.shard.taggedbundles import pack_bundles, unpack_bundles
from headrace.engine.shard.windowbounds import bounds_of, window_names
from headrace.engine.worker.bundles import Bundle
from headrace.engine.worker.hidden import TIME
from headrace.engine.worker.shuffle import KEY, SPELLING, VALUE
from headrace.model.bundlefns import SideContents, WindowBounds
from headrace.model.keys import decode_keys
from headrace.model.panes import Windowing
from headrace.model.pickling import dumps
from headrace.model.times import MAX_TIME


class StageWork(Protocol):
    """The work of shards that run a stage."""

    @property
    def spec(self) -> StageSpec: ...

    @property
    def source(self) -> Port: ...

    @property
    def contents(self) -> Sequence[SideContents]: ...

    def form_of(self, sink: str) -> Form: ...


class OpenStage:
    """A stage in this process, which serves one shard after the other."""

    def __init__(self, work: StageWork) -> None:
        spec, components = work.spec, work.spec.components
        self._handler = SideHandler(spec, work.contents)
        self.process = StageProcess(
            spec, self._handler, {sink.transform: work.form_of(sink.transform) for sink in spec.sinks}
        )
        enter = self.process.entry(work.source)
        assert enter is not None  # a stage with state, or with a splittable DoFn, is entered by it
        self.enter = enter
        self.border: ElementBorder = components.border(work.source.collection, Form.CODED)
        self.decode = self.border.coder.get_impl().decode
        self.unfinalized = False  # whether somebody waits for the last bundle to be committed
        weakref.finalize(self, self.process.close)

    def ended(self) -> None:
        """Reports metrics at the end of a step, or with the next one if somebody waits for it to be committed."""
        self.unfinalized = self.process.requires_finalization()
        if not self.unfinalized:
            metrics.record(self.process.report())

    def finalize(self) -> None:
        """Calls those who wait for the last step, which was committed."""
        if self.unfinalized:
            self.process.finalize()
            metrics.record(self.process.report())
            self.unfinalized = False

    @property
    def state(self) -> UserState:
        """The context of the stateful transform."""
        return self._handler.user_state

    def see(self, contents: Sequence[SideContents]) -> None:
        """Shows the stage the contents of its side inputs."""
        if contents:
            self._handler.see(contents)

    def windows(self, key: bytes, bounds: tuple[int, int]) -> tuple[Any, ...]:
        """Returns the window of a key's rows with these bounds, as the windows of an element."""
        windows = self.border.windows
        if windows.kind is WindowKind.GLOBAL:
            return _GLOBAL
        return windows.interval(bounds) if windows.kind is WindowKind.INTERVAL else windows.decoded(unfold(key)[0])


_GLOBAL: Final = (GlobalWindow(),)
_open: Final[weakref.WeakValueDictionary[bytes, OpenStage]] = weakref.WeakValueDictionary()
"""The stages of this process, by their descriptors, as long as a shard uses them."""


class KeyedStageShard(RecordShard[Record]):
    """The processor of a shard. Rows have KEY, SPELLING, TIME, perhaps START and END, and VALUE: entries of `KeyFn`."""

    def __init__(self, work: KeyedStage, stage: OpenStage) -> None:
        super().__init__()
        self._stage, self._lateness, self._contents = stage, work.windowing.allowed_lateness, work.contents
        assert work.spec.stateful is not None
        self._transform = work.spec.stateful
        self.timers = Timers()
        self._deadlines: list[tuple[int, int, Record]] = []

    def step(self, rows: pa.RecordBatch | None = None, clocks: Clocks | None = None) -> StepResult:
        """Processes rows, moves the clocks on, and fires timers."""
        before, after = self.clocks, self.clocks.moved(clocks or Clocks())
        late = None
        self._stage.finalize()
        if rows is not None and rows.num_rows:
            over = expired(bounds_of(rows)[1], self._lateness, before.watermark)
            if over.any():
                late, rows = rows.filter(pa.array(over)), rows.filter(pa.array(~over))
        outputs: list[tuple[str, Bundle]] = []
        has_rows = rows is not None and rows.num_rows > 0
        if has_rows or self._something_due(after):
            self._stage.see(self._contents)
            at = self._stage.state.at
            at.changed, at.timers = self.records.changed, self.timers
            if has_rows:
                outputs += self._run(self._elements(rows))
            outputs += self._run(self._timers_due(after))
            self._stage.ended()
        self.clocks = after
        self.watermark = output_watermark(self.watermark, after.watermark, np.array([self.timers.hold()]))
        again = after.now if self._stage.unfinalized else None
        return StepResult(pack_bundles(outputs), late, 0, self.watermark, len(self.records.by_name), again=again)

    def kept_windows(self) -> set[WindowBounds]:
        """Returns none: a timer sees no side inputs."""
        return set()

    def _something_due(self, clocks: Clocks) -> bool:
        ends = self._deadlines[0][0] if self._deadlines else NEVER
        return min(ends, self.timers.event.first()) <= clocks.watermark or self.timers.processing.first() <= clocks.now

    def _run(self, calls: Iterator[None]) -> list[tuple[str, Bundle]]:
        """Runs calls into the stage as one bundle."""
        process = self._stage.process
        process.start()
        try:
            for _ in calls:
                pass
            process.finish()
            process.flush()
        except BaseException:
            process.abandon()
            raise
        return list(process.taken())

    def _elements(self, rows: pa.RecordBatch) -> Iterator[None]:
        times = np.asarray(rows.column(TIME))
        if (times[1:] < times[:-1]).any():
            rows = rows.take(pa.array(np.argsort(times, kind="stable")))
        keys = decode_keys(rows.column(KEY), rows.column(SPELLING))
        start, end = bounds_of(rows)
        names = window_names(rows.column(KEY), start, end).to_pylist()
        entries = decode_cells(rows.column(VALUE))
        micros = from_times(np.array([time for time, _, _ in entries], np.int64))
        stage, at = self._stage, self._stage.state.at
        bounds = zip(start.tolist(), end.tolist(), strict=True)
        for name, key, placed, time, (_, cell, pane) in zip(names, keys, bounds, micros, entries, strict=True):
            element = stage.decode(cell)
            record = self.records.by_name.get(name)
            if record is None:
                window = stage.windows(key, placed)[0]  # type: ignore[arg-type]  # keys are bytes here
                deadline = min(placed[1] + self._lateness, MAX_TIME)
                record = self.records.add(Record(name, element[0], window, self.records.next_seq, deadline))
                heappush(self._deadlines, (deadline, record.seq, record))
            at.record = record
            stage.enter(windowed_value.create(element, time, (record.window,), from_pane(pane)))
            yield

    def _timers_due(self, clocks: Clocks) -> Iterator[None]:
        yield from self._ring(clocks)
        while self._deadlines and self._deadlines[0][0] <= clocks.watermark:
            _, _, record = heappop(self._deadlines)
            if self.records.by_name.get(record.name) is not record:
                continue
            for timer in sorted(record.timers.values(), key=lambda timer: timer.fire):
                if record.timers.get((timer.family, timer.tag)) is timer:
                    del record.timers[timer.family, timer.tag]
                    self._fire(record, timer)
                    yield
                    yield from self._ring(clocks)
            record.timers.clear()
            self.records.drop(record)
        for record in [record for record in self.records.changed.values() if record.is_blank]:
            self.records.drop(record)

    def _ring(self, clocks: Clocks) -> Iterator[None]:
        while (due := self.timers.due(watermark=clocks.watermark, now=clocks.now)) is not None:
            self._fire(*due)
            yield

    def _fire(self, record: Record, timer: SetTimer) -> None:
        self._stage.state.at.record = record
        self.records.changed[record.seq] = record
        self._stage.process.first.fire(self._transform, timer.family, timer.data(record))

    # State

    def load(self, blocks: list[bytes]) -> None:
        super().load(blocks)
        self.timers, self._deadlines = Timers(), []
        for record in self.records.by_name.values():
            heappush(self._deadlines, (record.deadline, record.seq, record))
            for timer in record.timers.values():
                self.timers.note(record, timer)

    def _dump(self, record: Record) -> bytes:
        border = self._stage.border
        timers = [
            (timer.family, timer.tag, timer.event, timer.fire, timer.hold, _fields(timer.pane))
            for timer in record.timers.values()
        ]
        key = border.coder.key_coder().encode(record.user_key)
        window = border.windows.bytes_of(record.window)
        return dumps((key, window, record.deadline, self._stage.state.dump(record), timers))

    def _load(self, seq: int, name: bytes, cell: bytes) -> Record:
        border = self._stage.border
        key, window, deadline, states, timers = pickle.loads(cell)
        user_key = border.coder.key_coder().decode(key)
        record = Record(name, user_key, border.windows.decoded(window)[0], seq, deadline, encoded=states)
        for family, tag, event, fire, hold, pane in timers:
            placed = from_pane(to_pane(*pane))
            record.timers[family, tag] = SetTimer(family, tag, event, fire, hold, placed)
        return record


def _fields(pane: windowed_value.PaneInfo) -> tuple[bool, bool, int, int, int]:
    return pane.is_first, pane.is_last, pane.timing, pane.index, pane.nonspeculative_index


@dataclass(frozen=True)
class KeyedStage:
    """Runs a stage with state: the pairs of `KeyFn` come in, and what its sinks get comes out, tagged by the sink."""

    spec: StageSpec
    source: Port
    writes: tuple[tuple[str, Form], ...]
    windowing: Windowing
    contents: tuple[SideContents, ...] = field(default=(), repr=False, compare=False)

    needs_time: ClassVar[bool] = True
    retracts: ClassVar[bool] = False

    def seeing(self, contents: Sequence[SideContents]) -> Self:
        """Returns the work with the contents of its side inputs."""
        return replace(self, contents=tuple(contents))

    def form_of(self, sink: str) -> Form:
        """Returns the form in which a sink writes."""
        return dict(self.writes)[sink]

    def processor(self, shard: int = 0) -> KeyedStageShard:
        if self.spec.finalizes:  # who waits for a step of one shard must not be called by that of another
            return KeyedStageShard(self, OpenStage(self))
        stage = _open.get(self.spec.descriptor)
        if stage is None:
            stage = _open[self.spec.descriptor] = OpenStage(self)
        return KeyedStageShard(self, stage)

    def bundles(self, emitted: pa.RecordBatch) -> Iterator[tuple[str | None, Bundle]]:
        return unpack_bundles(emitted)

    def identity(self) -> Identity:
        return {"kind": "beam stage", "stage": self.spec.stateful, "window": identity_of(self.windowing.window)}

    def describe(self) -> str:
        return f"{self.spec.stateful}, {self.windowing.window!r}"
