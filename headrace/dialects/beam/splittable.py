"""Splittable DoFns in a stream: restrictions that are not done are state of a shard, and go on when they are due.

A step processes new elements, and what is left of earlier ones, each once: a DoFn that has no end stops by itself
(`defer_remainder`) and says when it wants to go on, or is split when the step has taken its time. What is left holds
the watermark where its estimator has it. Whoever waits for the bundle to be committed is called in the next step: its
state is that of this one, so this one was committed.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, ClassVar, Final, Self

import numpy as np
import pyarrow as pa
from apache_beam.utils import windowed_value

from headrace.dialects.beam.border import Form, WindowKind, from_pane, from_times, to_times
from headrace.dialects.beam.keyedstage import OpenStage
from headrace.dialects.beam.stagefn import Tagged
from headrace.dialects.beam.stagespecs import Port, StageSpec
from headrace.dialects.beam.storedrecords import RecordShard
from headrace.dialects.beam.watchdog import Budget, Watchdog
from headrace.engine.columns.cells import decode_cells
from headrace.engine.shard.clocks import Clocks, output_watermark
from headrace.engine.shard.identity import Identity
from headrace.engine.shard.processor import StepResult
from headrace.engine.shard.taggedbundles import pack_bundles, unpack_bundles
from headrace.engine.shard.windowbounds import bounds_of
from headrace.engine.worker.bundles import Bundle
from headrace.engine.worker.shuffle import VALUE
from headrace.model.bundlefns import SideContents, WindowBounds
from headrace.model.panes import Windowing
from headrace.model.pickling import dumps
from headrace.model.times import MAX_TIME

BUDGET: Final = Budget()
"""The share of a micro-batch that a shard of splittable DoFns has."""


@dataclass
class SpreadFn:
    """Makes pairs of elements: a hash, which spreads them over the shards, and their time, bytes, window and pane."""

    spec: StageSpec
    source: Port

    def open(self, sides: Sequence[SideContents]) -> None:
        self._windows = self.spec.components.windows(self.source.collection)

    def run(self, bundle: Bundle) -> Iterator[Tagged]:
        """Makes a pair of each element."""
        folded = self._windows.kind is WindowKind.FOLDED
        pairs = []
        for element, time in zip(bundle.elements, bundle.all_times().tolist(), strict=True):
            window, cell = element if folded else (b"", element)
            pairs.append((blake2b(cell, digest_size=8).digest(), (time, cell, window, bundle.pane)))
        yield "pairs", bundle.with_elements(pairs)

    def close(self) -> Iterator[Tagged]:
        return iter(())


@dataclass(eq=False)
class Residual:
    """The rest of a restriction: its transform, its element as bytes, when it goes on, and what time it holds.

    It has the bounds of the element's windows, since it sees the side inputs of these again.
    """

    name: bytes
    seq: int
    transform: str
    element: bytes
    due: int
    hold: int
    windows: tuple[WindowBounds, ...]


class SplittableShard(RecordShard[Residual]):
    """The processor of a shard. Rows have VALUE, the entries of `SpreadFn`, and perhaps START and END."""

    def __init__(self, work: SplittableStage) -> None:
        super().__init__()
        assert work.spec.splittable is not None
        self._stage, self._transform = OpenStage(work), work.spec.splittable
        self._contents, self._budget = work.contents, work.budget

    def kept_windows(self) -> set[WindowBounds]:
        """Returns the windows of what is left: it sees their side inputs again."""
        return {window for record in self.records.by_name.values() for window in record.windows}

    def step(self, rows: pa.RecordBatch | None = None, clocks: Clocks | None = None) -> StepResult:
        """Processes rows, and what is left and due, and moves the clocks on."""
        self.clocks = after = self.clocks.moved(clocks or Clocks())
        self._stage.finalize()
        outputs: list[tuple[str, Bundle]] = []
        due = [record for record in self.records.by_name.values() if record.due <= after.now]
        if due or (rows is not None and rows.num_rows):
            outputs = self._run(rows, sorted(due, key=lambda record: record.seq))
        waiting = self.records.by_name.values()
        hold = min((record.hold for record in waiting), default=MAX_TIME)
        self.watermark = output_watermark(self.watermark, after.watermark, np.array([hold]))
        again = min((record.due for record in waiting), default=after.now if self._stage.unfinalized else None)
        return StepResult(pack_bundles(outputs), None, 0, self.watermark, len(waiting), again=again)

    def _run(self, rows: pa.RecordBatch | None, due: list[Residual]) -> list[tuple[str, Bundle]]:
        stage, process = self._stage, self._stage.process
        harness = process.first
        op = harness.processor.ops[self._transform]
        coder = op.input_info.main_input_coder.get_impl()
        stage.see(self._contents)
        process.start()
        try:
            with Watchdog(op, process.emitted, self._budget) as watchdog:
                for record in due:
                    if not watchdog.over:
                        self.records.drop(record)
                        op.process(coder.decode_nested(record.element))
                for value in self._values(rows) if rows is not None else ():
                    if watchdog.over:
                        self._put_off(coder.encode_nested(value), value)
                    else:
                        stage.enter(value)
            left = [*process.finish(), *watchdog.left]
            process.flush()
        except BaseException:
            process.abandon()
            raise
        for residual in left:
            windows = tuple(map(stage.border.windows.bounds, harness.residual_element(residual).windows))
            self._keep(harness.processor.delayed_bundle_application(*residual), windows)
        stage.ended()
        return list(process.taken())

    def _values(self, rows: pa.RecordBatch) -> Iterator[windowed_value.WindowedValue]:
        entries, windows = decode_cells(rows.column(VALUE)), self._stage.border.windows
        micros = from_times(np.array([entry[0] for entry in entries], np.int64))
        start, end = bounds_of(rows)
        bounds = zip(start.tolist(), end.tolist(), strict=True)
        for time, placed, (_, cell, window, pane) in zip(micros, bounds, entries, strict=True):
            in_window = windows.decoded(window) if window else self._stage.windows(b"", placed)
            yield windowed_value.create(self._stage.decode(cell), time, in_window, from_pane(pane))

    def _keep(self, left: Any, windows: tuple[WindowBounds, ...]) -> None:
        """Keeps what is left of a restriction."""
        application = left.application
        lows = [low.ToMicroseconds() for low in application.output_watermarks.values()]
        hold = int(to_times([min(lows)])[0]) if lows else self.watermark
        due = self.clocks.now + left.requested_time_delay.ToMicroseconds()
        self._add(application.element, due, hold, windows)

    def _put_off(self, element: bytes, value: windowed_value.WindowedValue) -> None:
        """Keeps an element for which there is no time left in this step."""
        windows = tuple(map(self._stage.border.windows.bounds, value.windows))
        self._add(element, self.clocks.now, int(to_times([value.timestamp_micros])[0]), windows)

    def _add(self, element: bytes, due: int, hold: int, windows: tuple[WindowBounds, ...]) -> None:
        number = self.records.next_seq
        self.records.add(Residual(number.to_bytes(8, "big"), number, self._transform, element, due, hold, windows))

    # State

    def _dump(self, record: Residual) -> bytes:
        return dumps((record.transform, record.element, record.due, record.hold, record.windows))

    def _load(self, seq: int, name: bytes, cell: bytes) -> Residual:
        return Residual(name, seq, *pickle.loads(cell))


@dataclass(frozen=True)
class SplittableStage:
    """Runs a stage that begins with a splittable DoFn: the pairs of `SpreadFn` come in."""

    spec: StageSpec
    source: Port
    writes: tuple[tuple[str, Form], ...]
    windowing: Windowing = field(repr=False)
    contents: tuple[SideContents, ...] = field(default=(), repr=False, compare=False)
    budget: Budget = field(default_factory=lambda: BUDGET)

    needs_time: ClassVar[bool] = True
    retracts: ClassVar[bool] = False

    def seeing(self, contents: Sequence[SideContents]) -> Self:
        """Returns the work with the contents of its side inputs."""
        return replace(self, contents=tuple(contents))

    def form_of(self, sink: str) -> Form:
        """Returns the form in which a sink writes."""
        return dict(self.writes)[sink]

    def processor(self, shard: int = 0) -> SplittableShard:
        return SplittableShard(self)

    def bundles(self, emitted: pa.RecordBatch) -> Iterator[tuple[str | None, Bundle]]:
        return unpack_bundles(emitted)

    def identity(self) -> Identity:
        return {"kind": "beam splittable", "stage": self.spec.name}

    def describe(self) -> str:
        return f"{self.spec.name}, splittable"
