"""Encodes records: cells with a fixed number of numbers, read and written as arrays without an object per row.

Each number is nine bytes: a tag (int, float, time, or none there) and its eight bytes. A record begins with a tag of
its own; a plain number is such a cell without it. A time is a number, too: microseconds since 1970, in UTC.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.model.schema import FIRST_MICRO, LAST_MICRO, UTC_TIMES, column_values
from headrace.model.times import Int64Array

RECORD: Final = b"r"
"""The tag of a record."""

_INT, _FLOAT, _TIME, _NONE = b"iftN"
NUMBER_WIDTH: Final = 9
"""The bytes of a number: its tag and eight more."""
NUMBER_TYPES: Final = {_INT: np.dtype("<i8"), _FLOAT: np.dtype("<f8"), _TIME: np.dtype("<M8[us]")}
"""The types of numbers, by tag."""
_TAGS: Final = {kind.kind: tag for tag, kind in NUMBER_TYPES.items()}

Mask = npt.NDArray[np.bool_]


class Record(tuple[Any, ...]):
    """The numbers of a record as Python objects: ints, floats, times and None."""


@dataclass(frozen=True)
class Numbers:
    """A column of numbers, all int64, all float64 or all times; `there` is not set where a number is missing.

    Times are those that Python has, of the years 1 to 9999.
    """

    values: npt.NDArray[Any]
    there: Mask

    @staticmethod
    def all(values: npt.NDArray[Any]) -> Numbers:
        """Makes a column in which no number is missing.

        >>> Numbers.all(np.array([1, 2])).tolist()
        [1, 2]
        """
        return Numbers(values, np.ones(len(values), np.bool_))

    @staticmethod
    def of(objects: Sequence[Any]) -> Numbers | None:
        """Makes a column of Python objects; None if those that are not None are neither all int64 nor all float.

        >>> Numbers.of([1, None]).tolist(), Numbers.of([1, 2.0]), Numbers.of([2**63])
        ([1, None], None, None)
        """
        kinds = set(map(type, objects))
        missing = type(None) in kinds
        kinds.discard(type(None))
        if len(kinds) > 1 or not kinds <= {int, float}:
            return None
        there = np.array([number is not None for number in objects], np.bool_) if missing else None
        filled = [0 if number is None else number for number in objects] if missing else objects
        try:
            values = np.array(filled, np.float64 if float in kinds else np.int64)
        except OverflowError:
            return None
        return Numbers.all(values) if there is None else Numbers(values, there)

    @staticmethod
    def of_column(column: pa.Array) -> Numbers | None:
        """Makes a column of an Arrow column; None if it has another type.

        >>> Numbers.of_column(pa.array([1, None], pa.int16())).tolist(), Numbers.of_column(pa.array(["a"]))
        ([1, None], None)
        """
        if column.type == UTC_TIMES:
            micros = column.view(pa.int64())
            bounds = pc.min_max(micros).as_py()
            if bounds["min"] is not None and not FIRST_MICRO <= bounds["min"] <= bounds["max"] <= LAST_MICRO:
                return None
            numbers = Numbers.of_column(micros)
            assert numbers is not None
            return Numbers(numbers.values.view(NUMBER_TYPES[_TIME]), numbers.there)
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
        """Returns the numbers as an Arrow column, null where one is missing."""
        values = self.values.view(np.int64) if self.values.dtype.kind == "M" else self.values
        column = pa.array(values, mask=None if self.there.all() else ~self.there)
        return column.view(UTC_TIMES) if self.values.dtype.kind == "M" else column

    def tolist(self) -> list[Any]:
        if self.values.dtype.kind == "M":
            return column_values(self.array())
        values: list[Any] = self.values.tolist()
        if self.there.all():
            return values
        return [value if there else None for value, there in zip(values, self.there.tolist(), strict=True)]


def is_numbers(kind: pa.DataType) -> bool:
    """Returns whether the values of an Arrow type are all int64 or all float64.

    >>> is_numbers(pa.int32()), is_numbers(pa.uint64()), is_numbers(pa.bool_())
    (True, False, False)
    """
    return bool(pa.types.is_signed_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind))


def write_records(columns: Sequence[Numbers], tag: bytes = RECORD) -> pa.BinaryArray:
    """Encodes rows of numbers as cells.

    >>> cells = write_records([Numbers.of([1, None]), Numbers.of([0.5, 1.5])])
    >>> [column.tolist() for column in read_records(cells, 2)]
    [[1, None], [0.5, 1.5]]
    """
    count, width = len(columns[0]) if columns else 0, len(tag) + NUMBER_WIDTH * len(columns)
    cells = np.empty((count, width), np.uint8)
    cells[:, : len(tag)] = np.frombuffer(tag, np.uint8)
    for at, column in zip(range(len(tag), width, NUMBER_WIDTH), columns, strict=True):
        kind = _TAGS[column.values.dtype.kind]
        cells[:, at] = kind if column.there.all() else np.where(column.there, kind, _NONE)
        values = np.ascontiguousarray(column.values, NUMBER_TYPES[kind])
        cells[:, at + 1 : at + NUMBER_WIDTH] = values.view(np.uint8).reshape(count, NUMBER_WIDTH - 1)
    offsets = np.arange(count + 1, dtype=np.int32) * width
    return pa.BinaryArray.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(cells)])


def read_records(cells: pa.BinaryArray, columns: int, tag: bytes = RECORD) -> list[Numbers] | None:
    """Decodes the columns of such cells; None if not all cells are, or if a column has numbers of several types."""
    width = len(tag) + NUMBER_WIDTH * columns
    if not len(cells):
        return [Numbers.all(np.zeros(0, np.int64))] * columns
    rows = byte_rows(cells, width)
    if rows is None or (rows[:, : len(tag)] != np.frombuffer(tag, np.uint8)).any():
        return None
    decoded = [_column(rows[:, at], rows[:, at + 1 : at + NUMBER_WIDTH]) for at in range(len(tag), width, NUMBER_WIDTH)]
    return None if any(column is None for column in decoded) else decoded  # type: ignore[return-value]


def byte_rows(cells: pa.BinaryArray, width: int) -> npt.NDArray[np.uint8] | None:
    """Returns the bytes of cells as rows of a matrix; None if not every cell has this width.

    >>> byte_rows(pa.array([b"ab", b"cd"]), 2).tolist(), byte_rows(pa.array([b"ab", b"c"]), 2)
    ([[97, 98], [99, 100]], None)
    """
    offsets = np.frombuffer(cells.buffers()[1], np.int32, len(cells) + 1, cells.offset * 4)
    if cells.null_count or (np.diff(offsets) != width).any():
        return None
    return np.frombuffer(cells.buffers()[2], np.uint8)[offsets[0] : offsets[-1]].reshape(-1, width)


def record_width(cell: bytes) -> int:
    """Returns how many numbers a record has.

    >>> record_width(write_records([Numbers.of([7])] * 3)[0].as_py())
    3
    """
    return (len(cell) - len(RECORD)) // NUMBER_WIDTH


def record_of(cell: bytes) -> Record:
    """Decodes one record.

    >>> record_of(write_records([Numbers.of([7])])[0].as_py())
    (7,)
    """
    starts = range(len(RECORD), len(cell), NUMBER_WIDTH)
    return Record(None if cell[at] == _NONE else number_of(cell[at:]) for at in starts)


def number_of(cell: bytes) -> Any:
    """Decodes the number that a cell begins with.

    >>> number_of(b"i" + bytes(8))
    0
    """
    [number] = Numbers.all(np.frombuffer(cell, NUMBER_TYPES[cell[0]], 1, 1)).tolist()
    return number


def _column(tags: npt.NDArray[np.uint8], values: npt.NDArray[np.uint8]) -> Numbers | None:
    there = tags != _NONE
    kind = int(tags[np.argmax(there)]) if there.any() else _INT
    if kind not in NUMBER_TYPES or not (tags[there] == kind).all():
        return None
    return Numbers(np.ascontiguousarray(values).view(NUMBER_TYPES[kind]).reshape(-1), there)
