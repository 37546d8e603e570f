"""IntervalJoin in a stream: the output that sends the elements of both sides, and the work of the join.

It joins pairs of Python objects without making objects of them: keys and values stay encoded until a match leaves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa

from headrace.engine.columns.cells import decode_cells, encode_cells
from headrace.engine.shard.identity import Identity, identity_of
from headrace.engine.shard.joinprocessor import LEFT, RIGHT, SIDE, JoinProcessor, JoinSide, JoinSpec
from headrace.engine.shard.rows import has_bounds
from headrace.engine.shard.windowbounds import bounds_of
from headrace.engine.worker.blame import blame
from headrace.engine.worker.bundles import Bundle
from headrace.engine.worker.hidden import START, TIME
from headrace.engine.worker.operators import parts_of
from headrace.engine.worker.shuffle import KEY, SPELLING, VALUE, ToRows, row_batch, shuffle_schema
from headrace.model.joins import IntervalJoinFn
from headrace.model.keys import decode_keys
from headrace.model.panes import Windowing
from headrace.model.times import format_duration

_COLUMNS: Final = ((KEY, LEFT, KEY), (SPELLING, LEFT, SPELLING), ("left", LEFT, VALUE), ("right", RIGHT, VALUE))


class ToSides(ToRows):
    """Writes pairs of a key and (side, value) as rows with a column SIDE."""

    def batch(self, bundle: Bundle) -> pa.RecordBatch:
        with blame(self.label):
            keys, marked = parts_of(bundle)
            sides = np.fromiter((side for side, _ in marked), np.int8, len(marked))
            values = encode_by_side([value for _, value in marked], sides)
            return row_batch(self.out, keys, values, bundle).append_column(SIDE, pa.array(sides))


def encode_by_side(values: list[Any], sides: np.ndarray[Any, np.dtype[np.int8]]) -> pa.BinaryArray:
    """Encodes values of two sides, each by itself, since those of one side are more often of one type.

    >>> decode_cells(encode_by_side(["a", 1, "b"], np.array([0, 1, 0], np.int8)))
    ['a', 1, 'b']
    """
    at = [np.flatnonzero(sides == side) for side in (LEFT, RIGHT)]
    cells = pa.concat_arrays([encode_cells([values[number] for number in numbers.tolist()]) for numbers in at])
    return cells.take(pa.array(np.argsort(np.concatenate(at))))


@dataclass(frozen=True)
class IntervalJoinWork:
    """Joins elements of two streams that have one key, and times at most so far apart."""

    windowing: Windowing
    fn: IntervalJoinFn

    needs_time: ClassVar[bool] = False
    retracts: ClassVar[bool] = False

    def rows(self, label: str) -> ToSides:
        """Makes the output that sends rows to the join."""
        return ToSides(label, shuffle_schema(windowed=has_bounds(self.windowing), timed=True))

    def processor(self, shard: int = 0) -> JoinProcessor:
        side = JoinSide(self.rows("").schema(), (KEY,))
        return JoinProcessor(JoinSpec((side, side), _COLUMNS, self.fn.lateness, (self.fn.lower, self.fn.upper)))

    def bundles(self, emitted: pa.RecordBatch) -> Iterator[tuple[None, Bundle]]:
        if not emitted.num_rows:
            return
        keys = decode_keys(emitted.column(KEY), emitted.column(SPELLING))
        sides = (decode_cells(emitted.column(name)) for name in ("left", "right"))
        elements = list(zip(keys, zip(*sides, strict=True), strict=True))
        start, end = bounds_of(emitted) if START in emitted.schema.names else (None, None)
        yield None, Bundle(elements, np.asarray(emitted.column(TIME)), start, end)

    def identity(self) -> Identity:
        within = [self.fn.lower, self.fn.upper]
        return {"kind": "interval join", "window": identity_of(self.windowing.window), "within": within}

    def describe(self) -> str:
        lower, upper = format_duration(self.fn.lower), format_duration(self.fn.upper)
        return f"interval join, {lower} to {upper}, {self.windowing.window!r}"
