"""Encodes values as cells: bytes, one cell per row of a shuffle. Unlike keys, values keep their type.

Values that are all int, float, str, bytes or None are encoded column by column; anything else is pickled, unless its
maker wrote it as a record (see `numbercells`). Only what this engine encoded is ever decoded.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.engine.columns.numbercells import (
    NUMBER_TYPES,
    NUMBER_WIDTH,
    RECORD,
    Numbers,
    Record,
    byte_rows,
    number_of,
    read_records,
    record_of,
    record_width,
)
from headrace.model.keys import tag_cells, tag_numbers
from headrace.model.pickling import dumps


def encode_cells(values: Sequence[Any]) -> pa.BinaryArray:
    """Encodes values as an array of cells.

    >>> decode_cells(encode_cells([1, 2, 3]))
    [1, 2, 3]
    >>> decode_cells(encode_cells([True, "x", None, {"a": 1}]))
    [True, 'x', None, {'a': 1}]
    """
    kinds = set(map(type, values))
    if len(kinds) == 1:
        try:
            fast = _FAST.get(kinds.pop())
            if fast is not None:
                return fast(values)
        except (OverflowError, UnicodeEncodeError, pa.ArrowInvalid):
            pass  # an int beyond 64 bits or a lone surrogate: pickle has no such limits
    return pa.array([b"p" + dumps(value) for value in values], pa.binary())


def decode_cells(cells: pa.BinaryArray) -> list[Any]:
    """Decodes what `encode_cells` encoded; cells of different calls may follow one another."""
    if not len(cells):
        return []
    tag = cells[0].as_py()[:1]
    if tag == RECORD:
        columns = read_records(cells, record_width(cells[0].as_py()))
        if columns is not None:
            return list(map(Record, zip(*[column.tolist() for column in columns], strict=True)))
    numbers = numbers_of(cells, tag) if tag[0] in NUMBER_TYPES else None
    if numbers is not None:
        return Numbers.all(numbers).tolist()
    return [_decode(cell) for cell in cells.to_pylist()]


def numbers_of(cells: pa.BinaryArray, tag: bytes) -> np.ndarray | None:
    """Returns the cells as one array of numbers, if every cell is a number with this tag; else None.

    >>> numbers_of(encode_cells([1, 2]), b"i").tolist(), numbers_of(encode_cells(["a"]), b"i")
    ([1, 2], None)
    """
    rows = byte_rows(cells, NUMBER_WIDTH)
    if rows is None or (rows[:, 0] != tag[0]).any():
        return None
    return np.ascontiguousarray(rows[:, 1:]).view(NUMBER_TYPES[tag[0]]).reshape(-1)


_FAST: dict[type, Any] = {
    int: lambda values: tag_numbers(b"i", np.array(values, dtype="<i8")),
    float: lambda values: tag_numbers(b"f", np.array(values, dtype="<f8")),
    str: lambda values: tag_cells(b"s", pa.array(values, pa.string()).cast(pa.binary())),
    bytes: lambda values: tag_cells(b"b", pa.array(values, pa.binary())),
    type(None): lambda values: pa.array([b"N"] * len(values), pa.binary()),
}


def _decode(cell: bytes) -> Any:
    tag = cell[:1]
    if tag == b"p":
        return pickle.loads(memoryview(cell)[1:])
    if tag == RECORD:
        return record_of(cell)
    if tag == b"s":
        return cell[1:].decode()
    if tag == b"i":
        return int.from_bytes(cell[1:], "little", signed=True)
    if tag[0] in NUMBER_TYPES:
        return number_of(cell)
    if tag == b"b":
        return cell[1:]
    return None
