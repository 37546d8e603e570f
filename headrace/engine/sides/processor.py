"""The processor and the work of shards where elements wait for side inputs that are streams.

Every shard gets all elements of the side inputs, and its share of the main input. An element waits until each of its
side windows has a first pane, or is over without one; it then goes on with the contents of the side inputs at that
moment.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.engine.columns.cells import decode_cells, encode_cells
from headrace.engine.shard.clocks import Clocks, Upstream, output_watermark
from headrace.engine.shard.identity import Identity, identity_of
from headrace.engine.shard.placing import expired
from headrace.engine.shard.processor import StepResult
from headrace.engine.shard.rows import PANE, pane_of
from headrace.engine.sides.rows import MAIN, ROLE, ROWS, content_rows
from headrace.engine.sides.sideblocks import NO_ROWS, StoredSide, StoredSides, read_sides, windows_in
from headrace.engine.sides.sideviews import SideView
from headrace.engine.worker.bundles import Bundle
from headrace.engine.worker.hidden import END, START, TIME
from headrace.engine.worker.shuffle import KEY, SPELLING, VALUE
from headrace.engine.worker.sidevalues import SideValue, WindowBounds, side_window
from headrace.model.keys import encode_key
from headrace.model.panes import Windowing
from headrace.model.times import MIN_TIME
from headrace.model.windows import CountWindows

_NO_KEY: Final = encode_key(None)
_NOTHING: Final[bytes] = encode_cells([[]])[0].as_py()


class SideState:
    """The state of one side input in a shard: its groups, its watermark, and its contents by window."""

    def __init__(self, view: SideView) -> None:
        self.view = view
        self.groups = view.grouping.processor()
        self.upstream = Upstream(low=dict.fromkeys(view.upstream, MIN_TIME))
        self.shown: dict[WindowBounds, bytes] = {}
        self.changed: set[WindowBounds] = set()
        self.gone: set[WindowBounds] = set()

    def step(self, rows: pa.RecordBatch, now: int, main: int) -> tuple[pa.RecordBatch | None, int]:
        """Adds rows of the side input; returns those that are late, and how many were refused.

        A view that is complete takes what comes after the end of its window as long as the main input, which is at the
        watermark `main`, may still see it.
        """
        elements = rows.filter(rows.column(VALUE).is_valid())
        disorder = []
        for clock in rows.filter(rows.column(VALUE).is_null()).select([KEY, TIME, PANE]).to_pylist():
            name, partition = json.loads(clock[KEY])
            if clock[PANE] is None:
                self.upstream.report(name, clock[TIME], now=now, partition=partition)
            else:
                disorder.append((name, partition, json.loads(clock[PANE])))
        self.upstream.learn(disorder, now=now)
        watermark = self.upstream.advance(now=now)
        if self.view.complete:
            watermark = min(watermark, main)
        step = self.groups.step(self._keyed(elements), Clocks(watermark, now))
        for start, end, cell in zip(
            *(step.panes.column(name).to_pylist() for name in (START, END, VALUE)), strict=True
        ):
            self.shown[start, end] = cell
            self.changed.add((start, end))
        late = step.late if step.late is not None and step.late.num_rows else None
        return None if late is None else late.select(ROWS.names), step.refused

    def _keyed(self, elements: pa.RecordBatch) -> pa.RecordBatch | None:
        if not elements.num_rows:
            return None
        count = elements.num_rows
        columns = {name: elements.column(name) for name in ROWS.names}
        columns |= {KEY: pa.array([_NO_KEY] * count, pa.binary()), SPELLING: pa.nulls(count, pa.binary())}
        return pa.record_batch(columns)

    def window(self, main: WindowBounds) -> WindowBounds:
        """Returns the side window that elements of a window of the main input see."""
        if self.view.mapping is None:
            return side_window(self.view.window, main)
        return self.view.mapping(main)

    def ready(self, window: WindowBounds) -> bool:
        """Returns whether elements may see a window."""
        return (window in self.shown and not self.view.complete) or self.upstream.watermark >= window[1]

    def remove_unneeded(self, needed: set[WindowBounds], lateness: int, watermark: int) -> None:
        """Removes the windows that no element of the main input can see any more."""
        ends = np.array([end for _, end in self.shown], np.int64)
        for window, over in zip(list(self.shown), expired(ends, lateness, watermark).tolist(), strict=True):
            if over and window not in needed:
                del self.shown[window]
                self.changed.discard(window)
                self.gone.add(window)


class SideProcessor:
    """The processor of a shard where elements wait for their side inputs.

    Whoever gets the elements may keep some, and see the side inputs of their windows, which are `reused`, again.
    """

    def __init__(self, windowing: Windowing, views: tuple[SideView, ...], *, keeps: bool = False) -> None:
        self.windowing, self.keeps = windowing, keeps
        self.reused: set[WindowBounds] = set()
        self.clocks = Clocks()
        self.fractions: set[float] = set()
        self.watermark = MIN_TIME  # of the output
        self.sides = [SideState(view) for view in views]
        self.waiting: dict[WindowBounds, list[pa.RecordBatch]] = {}  # by window of the main input
        self.arrived: list[pa.RecordBatch] = []  # those that began to wait since the state was last written
        self.released: set[WindowBounds] = set()

    def step(self, rows: pa.RecordBatch | None = None, clocks: Clocks | None = None) -> StepResult:
        """Adds rows, moves the clocks on, and releases the elements whose side inputs are ready."""
        before, after = self.clocks, self.clocks.moved(clocks or Clocks())
        rows = NO_ROWS if rows is None else rows
        roles = np.asarray(rows.column(ROLE))
        late: list[pa.RecordBatch] = []
        refused = 0
        for number, side in enumerate(self.sides, MAIN + 1):
            too_late, finished = side.step(rows.filter(pa.array(roles == number)), after.now, before.watermark)
            late += [too_late] if too_late is not None else []
            refused += finished
        main = rows.filter(pa.array(roles == MAIN))
        over = self._over(main, before.watermark)
        late += [main.filter(pa.array(over))] if over.any() else []
        released, seen = self._release(main.filter(pa.array(~over)) if over.any() else main)
        self.clocks = after
        for number, side in enumerate(self.sides, MAIN + 1):
            needed = {side.window(window) for window in self.waiting}
            if self.keeps:  # what is released now may be kept
                needed |= {window for role, window in seen if role == number}
            side.remove_unneeded(needed, self.windowing.allowed_lateness, after.watermark)
        holds = [_earliest(batch) for batches in self.waiting.values() for batch in batches]
        self.watermark = output_watermark(self.watermark, after.watermark, np.array(holds, np.int64))
        windows = len(self.waiting) + sum(side.groups.table.held for side in self.sides)
        return StepResult(released, pa.concat_batches(late) if late else None, refused, self.watermark, windows)

    def _over(self, main: pa.RecordBatch, watermark: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Judges which elements are late: the side windows that they see may be removed already."""
        if isinstance(self.windowing.window, CountWindows):
            return np.zeros(main.num_rows, np.bool_)
        return expired(np.asarray(main.column(END)), self.windowing.allowed_lateness, watermark)

    def _release(self, main: pa.RecordBatch) -> tuple[pa.RecordBatch, set[tuple[int, WindowBounds]]]:
        """Returns the elements that are ready, of those that waited and those that came, and their side windows."""
        sees: set[tuple[int, WindowBounds]] = set()
        free: list[pa.RecordBatch] = []
        for window in self.reused:
            self._ready(window, sees)
        for window in sorted(self.waiting):
            if self._ready(window, sees):
                free += self.waiting.pop(window)
                self.released.add(window)
        windows, which = windows_in(main)
        ready = np.array([self._ready(window, sees) for window in windows], np.bool_)
        if len(windows):
            free.append(main.filter(pa.array(ready[which])))
        for number in np.flatnonzero(~ready).tolist():
            self._wait(windows[number], main.filter(pa.array(which == number)))
        contents = [
            (number, *window, self.sides[number - 1].shown.get(window, _NOTHING)) for number, window in sorted(sees)
        ]
        return pa.concat_batches([*free, content_rows(contents)]), sees

    def _ready(self, window: WindowBounds, sees: set[tuple[int, WindowBounds]]) -> bool:
        seen = [(number, side.window(window)) for number, side in enumerate(self.sides, MAIN + 1)]
        if not all(self.sides[number - 1].ready(side_bounds) for number, side_bounds in seen):
            return False
        sees.update(seen)
        return True

    def _wait(self, window: WindowBounds, rows: pa.RecordBatch) -> None:
        self.waiting.setdefault(window, []).append(rows)
        self.arrived.append(rows)

    def dump(self) -> list[bytes]:
        """Encodes the whole state, the same blocks for the same state."""
        stored = self._stored()
        stored.waiting = self.waiting
        for side, of_side in zip(self.sides, stored.sides, strict=True):
            of_side.shown, of_side.groups = side.shown, side.groups.dump()
        return self._written(stored)

    def changes(self) -> list[bytes]:
        """Encodes the state delta since `dump`, `changes` or `load` was last called, to be loaded after those."""
        stored = self._stored()
        for batch in self.arrived:
            if (window := windows_in(batch)[0][0]) not in self.released:
                stored.waiting.setdefault(window, []).append(batch)
        stored.released = self.released
        for side, of_side in zip(self.sides, stored.sides, strict=True):
            of_side.shown = {window: side.shown[window] for window in side.changed}
            of_side.gone, of_side.groups = side.gone, side.groups.changes()
        return self._written(stored)

    def load(self, blocks: list[bytes]) -> None:
        """Restores the state of a processor of the same work from its blocks, in order."""
        stored = read_sides(blocks)
        self.clocks, self.watermark = Clocks(stored.watermark, stored.now), stored.output
        self.waiting = stored.waiting
        for side, of_side in zip(self.sides, stored.sides, strict=True):
            side.upstream.load(of_side.upstream.encode())
            side.shown = of_side.shown
            side.groups.load(of_side.groups)

    def _stored(self) -> StoredSides:
        sides = [StoredSide(side.upstream.dump().decode()) for side in self.sides]
        return StoredSides(self.clocks.watermark, self.clocks.now, self.watermark, sides)

    def _written(self, stored: StoredSides) -> list[bytes]:
        blocks = stored.write()
        self.arrived, self.released = [], set()
        for side in self.sides:
            side.changed, side.gone = set(), set()
        return blocks


def _earliest(rows: pa.RecordBatch) -> int:
    return int(np.asarray(rows.column(TIME)).min())


def released_bundles(emitted: pa.RecordBatch, sides: Sequence[SideValue], *, windowed: bool) -> Iterator[Bundle]:
    """Shows the side inputs what a step emitted of them, and yields the elements that it released."""
    roles = np.asarray(emitted.column(ROLE))
    for number, side in enumerate(sides, MAIN + 1):
        shown = emitted.filter(pa.array(roles == number))
        bounds = zip(shown.column(START).to_pylist(), shown.column(END).to_pylist(), strict=True)
        side.show(dict(zip(bounds, shown.column(VALUE).to_pylist(), strict=True)))
    main = emitted.filter(pa.array(roles == MAIN))
    panes = main.column(PANE).dictionary_encode()
    for number, pane in enumerate(panes.dictionary.to_pylist()):
        rows = main.filter(pa.array(np.asarray(panes.indices) == number))
        yield Bundle(
            decode_cells(rows.column(VALUE)),
            np.asarray(rows.column(TIME)),
            np.asarray(rows.column(START)) if windowed else None,
            np.asarray(rows.column(END)) if windowed else None,
            pane_of(pane),
        )


@dataclass(frozen=True)
class SideInputWork:
    """Releases elements once their side inputs have contents; `sides` are the side inputs of the function behind it."""

    windowing: Windowing
    views: tuple[SideView, ...]
    sides: tuple[SideValue, ...]

    @property
    def needs_time(self) -> bool:
        return any(view.grouping.needs_time for view in self.views)

    @property
    def retracts(self) -> bool:
        return False

    def processor(self, shard: int = 0) -> SideProcessor:
        return SideProcessor(self.windowing, self.views)

    def bundles(self, emitted: pa.RecordBatch) -> Iterator[tuple[None, Bundle]]:
        return (
            (None, bundle) for bundle in released_bundles(emitted, self.sides, windowed=not self.windowing.is_global)
        )

    def identity(self) -> Identity:
        return {
            "kind": "side inputs",
            "window": identity_of(self.windowing.window),
            "sides": [view.identity() for view in self.views],
        }

    def describe(self) -> str:
        return f"{self.windowing.window!r} beside " + "; ".join(view.describe() for view in self.views)
