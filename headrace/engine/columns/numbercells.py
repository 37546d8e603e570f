"""Records: cells that hold a fixed number of numbers, which arrays read and write without an object per row.

Each number is nine bytes: a tag (int, float, or none there) and its eight bytes. A record begins with a tag of its own;
a plain number is such a cell without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.model.times import Int64Array

RECORD: Final = b"r"
"""The tag of a record."""

_INT, _FLOAT, _NONE = b"ifN"
_WIDTH: Final = 9
_KINDS: Final = {_INT: np.dtype("<i8"), _FLOAT: np.dtype("<f8")}

Mask = npt.NDArray[np.bool_]


class Record(tuple[Any, ...]):
    """What a record holds, as Python sees it: ints, floats and None."""


@dataclass(frozen=True)
class Numbers:
    """A column of numbers, all int64 or all float64; where `there` is not set, there is none."""

    values: npt.NDArray[Any]
    there: Mask

    @staticmethod
    def all(values: npt.NDArray[Any]) -> Numbers:
        """None is missing.

        >>> Numbers.all(np.array([1, 2])).tolist()
        [1, 2]
        """
        return Numbers(values, np.ones(len(values), np.bool_))

    @staticmethod
    def of(objects: Sequence[Any]) -> Numbers | None:
        """The numbers of Python objects; None if they are not all int64, or all float, but for those that are None.

        >>> Numbers.of([1, None]).tolist(), Numbers.of([1, 2.0]), Numbers.of([2**63])
        ([1, None], None, None)
        """
        kinds = set(map(type, objects))
        missing = type(None) in kinds
        kinds.discard(type(None))
        if len(kinds) > 1 or not kinds <= {int, float}:
            return None
        there = np.array([each is not None for each in objects], np.bool_) if missing else None
        filled = [0 if each is None else each for each in objects] if missing else objects
        try:
            values = np.array(filled, np.float64 if float in kinds else np.int64)
        except OverflowError:
            return None
        return Numbers.all(values) if there is None else Numbers(values, there)

    @staticmethod
    def of_column(column: pa.Array) -> Numbers | None:
        """The numbers of an Arrow column; None if it has another type.

        >>> Numbers.of_column(pa.array([1, None], pa.int16())).tolist(), Numbers.of_column(pa.array(["a"]))
        ([1, None], None)
        """
        if not is_numbers(column.type):
            return None
        kind = np.float64 if pa.types.is_floating(column.type) else np.int64
        if not column.null_count:
            return Numbers.all(np.asarray(column).astype(kind, copy=False))
        values = np.asarray(column.fill_null(0)).astype(kind, copy=False)
        return Numbers(values, np.asarray(column.is_valid()))

    @property
    def integral(self) -> bool:
        return self.values.dtype.kind == "i"

    def __len__(self) -> int:
        return len(self.values)

    def take(self, positions: Int64Array) -> Numbers:
        return Numbers(self.values[positions], self.there[positions])

    def array(self) -> pa.Array:
        """As an Arrow column, null where there is none."""
        return pa.array(self.values, mask=None if self.there.all() else ~self.there)

    def tolist(self) -> list[Any]:
        values: list[Any] = self.values.tolist()
        if self.there.all():
            return values
        return [value if there else None for value, there in zip(values, self.there.tolist(), strict=True)]


def is_numbers(kind: pa.DataType) -> bool:
    """Whether the values of an Arrow type are all int64 or all float64.

    >>> is_numbers(pa.int32()), is_numbers(pa.uint64()), is_numbers(pa.bool_())
    (True, False, False)
    """
    return bool(pa.types.is_signed_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind))


def write_records(columns: Sequence[Numbers], tag: bytes = RECORD) -> pa.BinaryArray:
    """Rows of numbers as cells.

    >>> cells = write_records([Numbers.of([1, None]), Numbers.of([0.5, 1.5])])
    >>> [column.tolist() for column in read_records(cells, 2)]
    [[1, None], [0.5, 1.5]]
    """
    count, width = len(columns[0]) if columns else 0, len(tag) + _WIDTH * len(columns)
    cells = np.empty((count, width), np.uint8)
    cells[:, : len(tag)] = np.frombuffer(tag, np.uint8)
    for at, column in zip(range(len(tag), width, _WIDTH), columns, strict=True):
        kind = _INT if column.integral else _FLOAT
        cells[:, at] = kind if column.there.all() else np.where(column.there, kind, _NONE)
        values = np.ascontiguousarray(column.values, _KINDS[kind])
        cells[:, at + 1 : at + _WIDTH] = values.view(np.uint8).reshape(count, _WIDTH - 1)
    offsets = np.arange(count + 1, dtype=np.int32) * width
    return pa.BinaryArray.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(cells)])


def read_records(cells: pa.BinaryArray, columns: int, tag: bytes = RECORD) -> list[Numbers] | None:
    """The columns of such cells; None if not all cells are, or if a column has both ints and floats."""
    width = len(tag) + _WIDTH * columns
    if not len(cells):
        return [Numbers.all(np.zeros(0, np.int64))] * columns
    offsets = np.frombuffer(cells.buffers()[1], np.int32, len(cells) + 1, cells.offset * 4)
    if cells.null_count or (np.diff(offsets) != width).any():
        return None
    raw = np.frombuffer(cells.buffers()[2], np.uint8)[offsets[0] : offsets[-1]].reshape(-1, width)
    if (raw[:, : len(tag)] != np.frombuffer(tag, np.uint8)).any():
        return None
    read = [_read(raw[:, at], raw[:, at + 1 : at + _WIDTH]) for at in range(len(tag), width, _WIDTH)]
    return None if any(column is None for column in read) else read  # type: ignore[return-value]


def record_width(cell: bytes) -> int:
    """How many numbers a record holds.

    >>> record_width(write_records([Numbers.of([7])] * 3)[0].as_py())
    3
    """
    return (len(cell) - len(RECORD)) // _WIDTH


def record_of(cell: bytes) -> Record:
    """What one record holds.

    >>> record_of(write_records([Numbers.of([7])])[0].as_py())
    (7,)
    """
    starts = range(len(RECORD), len(cell), _WIDTH)
    return Record(
        None if cell[at] == _NONE else np.frombuffer(cell, _KINDS[cell[at]], 1, at + 1).item() for at in starts
    )


def _read(tags: npt.NDArray[np.uint8], values: npt.NDArray[np.uint8]) -> Numbers | None:
    there = tags != _NONE
    kind = int(tags[np.argmax(there)]) if there.any() else _INT
    if kind not in _KINDS or not (tags[there] == kind).all():
        return None
    return Numbers(np.ascontiguousarray(values).view(_KINDS[kind]).reshape(-1), there)
