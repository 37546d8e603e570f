"""The state of a shard where elements wait for side inputs, as blocks: elements, contents shown, and groups."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.engine.shard.wire import pack, unpack
from headrace.engine.sides.rows import MAIN, ROLE, ROWS, content_rows
from headrace.engine.worker.bundles import BLOCK_SCHEMA
from headrace.engine.worker.hidden import END, START
from headrace.engine.worker.shuffle import VALUE
from headrace.engine.worker.sidevalues import WindowBounds
from headrace.model.times import Int64Array

NO_ROWS: Final = pa.record_batch([pa.array([], kind) for kind in ROWS.types], schema=ROWS)


@dataclass
class StoredSide:
    """The state of one side input: its clocks, its contents by window, windows that went, blocks of its groups."""

    upstream: str
    shown: dict[WindowBounds, bytes] = field(default_factory=dict)
    gone: set[WindowBounds] = field(default_factory=set)
    groups: list[bytes] = field(default_factory=list)


@dataclass
class StoredSides:
    """The state of a shard: its clocks, elements that wait, by window, and its side inputs.

    Of a delta, these are elements that began to wait, contents that changed, and windows that went.
    """

    watermark: int
    now: int
    output: int
    sides: list[StoredSide]
    waiting: dict[WindowBounds, list[pa.RecordBatch]] = field(default_factory=dict)
    released: set[WindowBounds] = field(default_factory=set)

    def write(self) -> list[bytes]:
        """Encodes it as blocks, the same for the same contents."""
        header = {
            "block": "clocks",
            "clocks": [self.watermark, self.now],
            "output": self.output,
            "released": sorted(self.released),
            "sides": [[side.upstream, sorted(side.gone)] for side in self.sides],
        }
        waiting = [batch for window in sorted(self.waiting) for batch in self.waiting[window]]
        contents = [
            (number, *window, side.shown[window])
            for number, side in enumerate(self.sides, MAIN + 1)
            for window in sorted(side.shown)
        ]
        return [
            pack(header, pa.concat_batches([NO_ROWS, *waiting])),
            pack({"block": "shown"}, content_rows(contents)),
            *(
                pack({"block": "groups", "side": number}, _group_blocks(side.groups))
                for number, side in enumerate(self.sides)
            ),
        ]


def read_sides(blocks: Iterable[bytes]) -> StoredSides:
    """Decodes blocks, in the order in which they were written: the whole and deltas since."""
    stored = StoredSides(0, 0, 0, [])
    for header, rows in map(unpack, blocks):
        if header["block"] == "clocks":
            _read_clocks(stored, header, rows)
        elif header["block"] == "shown":
            columns = (rows.column(name).to_pylist() for name in (ROLE, START, END, VALUE))
            for number, start, end, cell in zip(*columns, strict=True):
                stored.sides[number - 1].shown[start, end] = cell
        else:
            stored.sides[header["side"]].groups += rows.column(0).to_pylist()
    return stored


def _read_clocks(stored: StoredSides, header: dict[str, Any], rows: pa.RecordBatch) -> None:
    stored.sides = stored.sides or [StoredSide(upstream) for upstream, _ in header["sides"]]
    (stored.watermark, stored.now), stored.output = header["clocks"], header["output"]
    for window in map(tuple, header["released"]):
        stored.waiting.pop(window, None)
    for side, (upstream, gone) in zip(stored.sides, header["sides"], strict=True):
        side.upstream = upstream
        for window in map(tuple, gone):
            side.shown.pop(window, None)
    windows, which = windows_in(rows)
    for number, bounds in enumerate(windows):
        stored.waiting.setdefault(bounds, []).append(rows.filter(pa.array(which == number)))


def windows_in(rows: pa.RecordBatch) -> tuple[list[WindowBounds], Int64Array]:
    """Returns the windows of rows, and the number of each row's window."""
    start, end = (rows.column(name).dictionary_encode() for name in (START, END))
    starts, ends = start.dictionary.to_pylist(), end.dictionary.to_pylist()
    codes = np.asarray(start.indices).astype(np.int64) * len(ends) + np.asarray(end.indices)
    distinct, which = np.unique(codes, return_inverse=True)
    return [(starts[code // len(ends)], ends[code % len(ends)]) for code in distinct.tolist()], which


def _group_blocks(blocks: list[bytes]) -> pa.RecordBatch:
    return pa.record_batch([pa.array(blocks, pa.binary())], BLOCK_SCHEMA)
