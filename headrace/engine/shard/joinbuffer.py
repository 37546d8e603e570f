"""The rows of one side of a join that may still find a match, as Arrow batches, with arrays beside them.

Rows stay in the order in which they came. Batches are merged so that there are few of them, and each row is copied a
few times only.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from headrace.engine.columns.arrays import grown
from headrace.model.times import Int64Array

_MOST_BYTES: Final = 1 << 30
"""Batches are not merged beyond this size: offsets of text have 32 bits."""

_NUMBERS: Final = ("seq", "slot", "time", "end", "until")


class JoinBuffer:
    """Rows with the numbers that a join needs of them.

    - seq: their numbers in order of arrival, which no two rows of a shard ever share
    - slot: that of their key and window, -1 if a part of the key is null
    - time, end: their event times, and the ends of their windows
    - until: the watermark from which on nothing can match them

    >>> buffer = JoinBuffer(pa.schema({"x": pa.int64()}))
    >>> numbers = {name: np.array([1, 2]) for name in ("seq", "slot", "time", "end", "until")}
    >>> buffer.append(pa.record_batch({"x": [7, 8]}), numbers)
    >>> buffer.keep(np.array([False, True]))
    >>> buffer.take(np.array([0])).to_pydict(), buffer["seq"].tolist()
    ({'x': [8]}, [2])
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema, self.size = schema, 0
        self._batches: list[pa.RecordBatch] = []
        self._numbers = {name: np.zeros(0, np.int64) for name in _NUMBERS}

    def __getitem__(self, name: str) -> Int64Array:
        """Returns one of the numbers of each row."""
        return self._numbers[name][: self.size]

    def append(self, rows: pa.RecordBatch, numbers: dict[str, Int64Array]) -> None:
        """Adds rows behind those that are there."""
        size = self.size + rows.num_rows
        for name, array in self._numbers.items():
            self._numbers[name] = array = grown(array, self.size, size)
            array[self.size : size] = numbers[name]
        self.size = size
        self._batches.append(rows)
        while len(self._batches) > 1 and self._worth_merging(*self._batches[-2:]):
            self._batches[-2:] = [pa.concat_batches(self._batches[-2:])]

    def _worth_merging(self, before: pa.RecordBatch, last: pa.RecordBatch) -> bool:
        return bool(before.num_rows <= 2 * last.num_rows and before.nbytes + last.nbytes <= _MOST_BYTES)

    def take(self, positions: Int64Array) -> pa.RecordBatch:
        """Returns the rows at ascending positions."""
        parts, begin = [], 0
        edges = np.searchsorted(positions, np.cumsum([0, *(batch.num_rows for batch in self._batches)])).tolist()
        for batch, first, last in zip(self._batches, edges, edges[1:], strict=False):
            if last > first:
                parts.append(batch.take(pa.array(positions[first:last] - begin)))
            begin += batch.num_rows
        return pa.concat_batches(parts) if parts else no_rows(self.schema)

    def keep(self, mask: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> None:
        """Removes all rows but these."""
        if mask.all():
            return
        numbers = {name: self[name][mask] for name in self._numbers}
        batches, begin = [], 0
        for batch in self._batches:
            if len(stays := np.flatnonzero(mask[begin : begin + batch.num_rows])):
                batches.append(batch if len(stays) == batch.num_rows else batch.take(pa.array(stays)))
            begin += batch.num_rows
        self._numbers, self._batches, self.size = numbers, batches, len(numbers["seq"])


def no_rows(schema: pa.Schema) -> pa.RecordBatch:
    """Makes a batch without rows."""
    return pa.record_batch([pa.array([], kind) for kind in schema.types], schema=schema)
