"""The processor and the work of shards where elements wait for side inputs that are streams.

Every shard gets all elements of the side inputs, and its share of the main input. An element waits until each of its
side windows has a first pane, or is over without one; it then goes on with the contents of the side inputs at that
moment.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
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
from headrace.engine.shard.wire import pack, unpack
from headrace.engine.sides.rows import MAIN, ROLE, ROWS, content_rows
from headrace.engine.sides.sideviews import SideView
from headrace.engine.worker.bundles import BLOCK_SCHEMA, Bundle
from headrace.engine.worker.hidden import END, START, TIME
from headrace.engine.worker.shuffle import KEY, SPELLING, VALUE
from headrace.engine.worker.sidevalues import SideValue, WindowBounds, side_window
from headrace.model.keys import encode_key
from headrace.model.panes import Windowing
from headrace.model.times import MIN_TIME, Int64Array
from headrace.model.windows import CountWindows

_NO_ROWS: Final = pa.record_batch([pa.array([], kind) for kind in ROWS.types], schema=ROWS)
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

    def step(self, rows: pa.RecordBatch, now: int) -> tuple[pa.RecordBatch | None, int]:
        """Adds rows of the side input; returns those that are late, and how many were refused."""
        elements = rows.filter(rows.column(VALUE).is_valid())
        disorder = []
        for clock in rows.filter(rows.column(VALUE).is_null()).select([KEY, TIME, PANE]).to_pylist():
            name, partition = json.loads(clock[KEY])
            if clock[PANE] is None:
                self.upstream.report(name, clock[TIME], now=now, partition=partition)
            else:
                disorder.append((name, partition, json.loads(clock[PANE])))
        self.upstream.learn(disorder, now=now)
        step = self.groups.step(self._keyed(elements), Clocks(self.upstream.advance(now=now), now))
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
        return side_window(self.view.window, main)

    def ready(self, window: WindowBounds) -> bool:
        return window in self.shown or self.upstream.watermark >= window[1]

    def remove_unneeded(self, needed: set[WindowBounds], lateness: int, watermark: int) -> None:
        """Removes the windows that no element of the main input can see any more."""
        ends = np.array([end for _, end in self.shown], np.int64)
        for window, over in zip(list(self.shown), expired(ends, lateness, watermark).tolist(), strict=True):
            if over and window not in needed:
                del self.shown[window]
                self.changed.discard(window)
                self.gone.add(window)


class SideProcessor:
    """The processor of a shard where elements wait for their side inputs."""

    def __init__(self, windowing: Windowing, views: tuple[SideView, ...]) -> None:
        self.windowing = windowing
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
        rows = _NO_ROWS if rows is None else rows
        roles = np.asarray(rows.column(ROLE))
        late: list[pa.RecordBatch] = []
        refused = 0
        for number, side in enumerate(self.sides, MAIN + 1):
            too_late, finished = side.step(rows.filter(pa.array(roles == number)), after.now)
            late += [too_late] if too_late is not None else []
            refused += finished
        main = rows.filter(pa.array(roles == MAIN))
        over = self._over(main, before.watermark)
        late += [main.filter(pa.array(over))] if over.any() else []
        released = self._release(main.filter(pa.array(~over)) if over.any() else main)
        self.clocks = after
        for side in self.sides:
            needed = {side.window(window) for window in self.waiting}
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

    def _release(self, main: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the elements that are ready, of those that waited and those that came, and their side windows."""
        sees: set[tuple[int, WindowBounds]] = set()
        free: list[pa.RecordBatch] = []
        for window in sorted(self.waiting):
            if self._ready(window, sees):
                free += self.waiting.pop(window)
                self.released.add(window)
        windows, which = _windows(main)
        ready = np.array([self._ready(window, sees) for window in windows], np.bool_)
        if len(windows):
            free.append(main.filter(pa.array(ready[which])))
        for number in np.flatnonzero(~ready).tolist():
            self._wait(windows[number], main.filter(pa.array(which == number)))
        contents = [
            (number, *window, self.sides[number - 1].shown.get(window, _NOTHING)) for number, window in sorted(sees)
        ]
        return pa.concat_batches([*free, content_rows(contents)])

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
        waiting = [batch for window in sorted(self.waiting) for batch in self.waiting[window]]
        blocks = self._encode(waiting, set(), [set(side.shown) for side in self.sides], [set() for _ in self.sides])
        return blocks + self._groups([side.groups.dump() for side in self.sides])

    def changes(self) -> list[bytes]:
        """Encodes the state delta since `dump`, `changes` or `load` was last called, to be loaded after those."""
        arrived = [batch for batch in self.arrived if _windows(batch)[0][0] not in self.released]
        changed, gone = [side.changed for side in self.sides], [side.gone for side in self.sides]
        blocks = self._encode(arrived, self.released, changed, gone)
        return blocks + self._groups([side.groups.changes() for side in self.sides])

    def load(self, blocks: list[bytes]) -> None:
        """Restores the state of a processor of the same work from its blocks, in order."""
        groups: list[list[bytes]] = [[] for _ in self.sides]
        for header, rows in map(unpack, blocks):
            if header["block"] == "clocks":
                self.clocks, self.watermark = Clocks(*header["clocks"]), header["output"]
                for window in map(tuple, header["released"]):
                    self.waiting.pop(window, None)
                for side, (upstream, gone) in zip(self.sides, header["sides"], strict=True):
                    side.upstream.load(upstream.encode())
                    for window in map(tuple, gone):
                        side.shown.pop(window, None)
                windows, which = _windows(rows)
                for number, bounds in enumerate(windows):
                    self.waiting.setdefault(bounds, []).append(rows.filter(pa.array(which == number)))
            elif header["block"] == "shown":
                columns = (rows.column(name).to_pylist() for name in (ROLE, START, END, VALUE))
                for number, start, end, cell in zip(*columns, strict=True):
                    self.sides[number - 1].shown[start, end] = cell
            else:
                groups[header["side"]] += rows.column(0).to_pylist()
        for side, group_blocks in zip(self.sides, groups, strict=True):
            side.groups.load(group_blocks)

    def _encode(
        self,
        waiting: list[pa.RecordBatch],
        released: set[WindowBounds],
        changed: list[set[WindowBounds]],
        gone: list[set[WindowBounds]],
    ) -> list[bytes]:
        header = {
            "block": "clocks",
            "clocks": [self.clocks.watermark, self.clocks.now],
            "output": self.watermark,
            "released": sorted(released),
            "sides": [
                [side.upstream.dump().decode(), sorted(windows)] for side, windows in zip(self.sides, gone, strict=True)
            ],
        }
        contents = [
            (number, *window, self.sides[number - 1].shown[window])
            for number, windows in enumerate(changed, MAIN + 1)
            for window in sorted(windows)
        ]
        blocks = [
            pack(header, pa.concat_batches([_NO_ROWS, *waiting])),
            pack({"block": "shown"}, content_rows(contents)),
        ]
        self.arrived, self.released = [], set()
        for side in self.sides:
            side.changed, side.gone = set(), set()
        return blocks

    def _groups(self, blocks: list[list[bytes]]) -> list[bytes]:
        return [
            pack({"block": "groups", "side": number}, pa.record_batch([pa.array(cells, pa.binary())], BLOCK_SCHEMA))
            for number, cells in enumerate(blocks)
        ]


def _windows(rows: pa.RecordBatch) -> tuple[list[WindowBounds], Int64Array]:
    """Returns the windows of rows, and the number of each row's window."""
    start, end = (rows.column(name).dictionary_encode() for name in (START, END))
    starts, ends = start.dictionary.to_pylist(), end.dictionary.to_pylist()
    codes = np.asarray(start.indices).astype(np.int64) * len(ends) + np.asarray(end.indices)
    distinct, which = np.unique(codes, return_inverse=True)
    return [(starts[code // len(ends)], ends[code % len(ends)]) for code in distinct.tolist()], which


def _earliest(rows: pa.RecordBatch) -> int:
    return int(np.asarray(rows.column(TIME)).min())


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
        roles = np.asarray(emitted.column(ROLE))
        for number, side in enumerate(self.sides, MAIN + 1):
            shown = emitted.filter(pa.array(roles == number))
            bounds = zip(shown.column(START).to_pylist(), shown.column(END).to_pylist(), strict=True)
            side.show(dict(zip(bounds, shown.column(VALUE).to_pylist(), strict=True)))
        main = emitted.filter(pa.array(roles == MAIN))
        panes = main.column(PANE).dictionary_encode()
        for number, pane in enumerate(panes.dictionary.to_pylist()):
            rows = main.filter(pa.array(np.asarray(panes.indices) == number))
            windowed = not self.windowing.is_global
            yield (
                None,
                Bundle(
                    decode_cells(rows.column(VALUE)),
                    np.asarray(rows.column(TIME)),
                    np.asarray(rows.column(START)) if windowed else None,
                    np.asarray(rows.column(END)) if windowed else None,
                    pane_of(pane),
                ),
            )

    def identity(self) -> Identity:
        return {
            "kind": "side inputs",
            "window": identity_of(self.windowing.window),
            "sides": [view.identity() for view in self.views],
        }

    def describe(self) -> str:
        return f"{self.windowing.window!r} beside " + "; ".join(view.describe() for view in self.views)
