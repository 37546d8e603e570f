"""A column of byte cells by slot, stored as one Arrow array rather than as a Python object per cell."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.engine.columns.arrays import grown
from headrace.model.times import Int64Array

_NULL: Final = -1
_FEW: Final = 1024  # cells that are not worth compacting


class ByteColumn:
    """Cells by slot, null where nothing was put. It is compacted when most of its cells have been replaced.

    >>> column = ByteColumn()
    >>> column.reserve(3)
    >>> column.put(np.array([2, 0]), pa.array([b"a", b"bc"]))
    >>> column.take(np.array([0, 1, 2])).to_pylist()
    [b'bc', None, b'a']
    """

    def __init__(self) -> None:
        self._number: npt.NDArray[np.int32] = np.zeros(0, np.int32)  # by slot, the number of its cell
        self._filled = 0
        self._reset()

    def _reset(self) -> None:
        self._count = 0
        self._offsets = np.zeros(1, np.int64)
        self._data = np.zeros(0, np.uint8)

    def reserve(self, slots: int) -> None:
        """Makes room for so many slots in all."""
        more = max(slots - len(self._number), 0)
        self._number = np.concatenate([self._number, np.full(more, _NULL, np.int32)])

    def put(self, slots: Int64Array, cells: pa.BinaryArray) -> None:
        """Puts a cell into each of these slots, no two of which are the same."""
        self.clear(slots)
        if cells.null_count:
            slots, cells = slots[np.asarray(cells.is_valid())], cells.drop_null()
        if not len(slots):
            return
        self._number[slots] = np.arange(self._count, self._count + len(cells))
        self._append(cells)
        self._filled += len(slots)
        if self._count > 2 * self._filled + _FEW:
            slots = np.flatnonzero(self._number != _NULL)
            cells = self.take(slots)
            self._reset()
            self._number[slots] = np.arange(len(slots))
            self._append(cells)

    def clear(self, slots: Int64Array) -> None:
        """Removes the cells of these slots."""
        self._filled -= int(np.count_nonzero(self._number[slots] != _NULL))
        self._number[slots] = _NULL

    def take(self, slots: Int64Array) -> pa.BinaryArray:
        """Returns the cells of these slots."""
        numbers = self._number[slots]
        buffers = [None, pa.py_buffer(self._offsets), pa.py_buffer(self._data)]
        cells = pa.Array.from_buffers(pa.large_binary(), self._count, buffers)
        missing = numbers == _NULL
        taken = cells.take(pa.array(numbers, mask=missing if missing.any() else None))
        return taken.cast(pa.binary())

    def _append(self, cells: pa.BinaryArray) -> None:
        _, buffer, data = cells.buffers()
        offsets = np.frombuffer(buffer, np.int32)[cells.offset : cells.offset + len(cells) + 1].astype(np.int64)
        base, size = int(self._offsets[self._count]), int(offsets[-1] - offsets[0])
        self._offsets = grown(self._offsets, self._count + 1, self._count + 1 + len(cells))
        self._offsets[self._count + 1 : self._count + 1 + len(cells)] = offsets[1:] - offsets[0] + base
        self._count += len(cells)
        if size:
            self._data = grown(self._data, base, base + size)
            self._data[base : base + size] = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]
