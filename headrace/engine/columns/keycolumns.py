"""Encodes key columns as bytes, as the tuples of their rows would be encoded, and decodes such bytes to columns.

Ints, text and bytes, null or not, are encoded by array operations; rows of other types through their tuples.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.model.keys import encode_ints, encode_keys, encode_tuples, tag_cells
from headrace.model.times import Int64Array

_HEAD = 5  # bytes of a tuple before its parts: its tag, and how many there are
_SIZE = 4  # bytes that tell how long a part is


def encode_key_columns(columns: Sequence[pa.Array], rows: int) -> tuple[pa.BinaryArray, pa.BinaryArray | None]:
    """Encodes rows of key columns as `encode_keys` encodes their tuples.

    >>> columns = [pa.array(["a", None]), pa.array([1, 2])]
    >>> encode_key_columns(columns, 2)[0].equals(encode_keys([("a", 1), (None, 2)])[0])
    True
    """
    if not columns:
        encoded, spelling = encode_keys([()])
        return pa.repeat(encoded[0], rows), spelling
    cells = [_cells(column) for column in columns]
    if any(column is None for column in cells):
        return encode_keys(list(zip(*[column.to_pylist() for column in columns], strict=True)))
    return encode_tuples([column for column in cells if column is not None]), None


def decode_key_columns(encoded: pa.BinaryArray, spelling: pa.BinaryArray, columns: int) -> list[pa.Array] | None:
    """Decodes the columns of such keys; None if they are of types that arrays cannot represent.

    >>> encoded, _ = encode_key_columns([pa.array(["a", None]), pa.array([1, 2])], 2)
    >>> [column.to_pylist() for column in decode_key_columns(encoded, pa.nulls(2, pa.binary()), 2)]
    [['a', None], [1, 2]]
    """
    if spelling.null_count < len(spelling):
        return None
    if not columns or not len(encoded):
        return [pa.nulls(len(encoded))] * columns
    offsets = np.frombuffer(encoded.buffers()[1], np.int32, len(encoded) + 1, encoded.offset * 4).astype(np.int64)
    data = np.frombuffer(encoded.buffers()[2], np.uint8)
    at, decoded = offsets[:-1] + _HEAD, []
    for _ in range(columns):
        size = _gathered(data, at, _SIZE).view("<u4").reshape(-1).astype(np.int64)
        column = _column(data, at + _SIZE, size)
        if column is None:
            return None
        decoded.append(column)
        at = at + _SIZE + size
    return decoded


def _cells(column: pa.Array) -> pa.BinaryArray | None:
    kind = column.type
    if pa.types.is_signed_integer(kind):
        cells = encode_ints(np.asarray(column.fill_null(0) if column.null_count else column))
    elif pa.types.is_string(kind):
        cells = tag_cells(b"s", column.cast(pa.binary()))
    elif pa.types.is_binary(kind):
        cells = tag_cells(b"b", column)
    else:
        return None
    return pc.if_else(column.is_valid(), cells, b"N") if column.null_count else cells


def _column(data: npt.NDArray[np.uint8], at: Int64Array, size: Int64Array) -> pa.Array | None:
    """Decodes the part of each key that has `size` bytes from `at` on."""
    tags = data[at]
    there = tags != ord("N")
    mask = None if there.all() else ~there
    if not there.any():
        return pa.nulls(len(at))
    kind = chr(tags[np.argmax(there)])
    if not (tags[there] == ord(kind)).all():
        return None
    if kind == "i":
        # Of a null there are no eight bytes to read.
        bits = _gathered(data, np.where(there, at + 1, at[there][0] + 1), 8).view(">u8").reshape(-1)
        return pa.array((bits.astype(np.uint64) ^ np.uint64(2**63)).view(np.int64), mask=mask)
    if kind not in "sb":
        return None
    length = np.where(there, size - 1, 0)
    offsets = np.concatenate([[0], np.cumsum(length)])
    body = data[np.repeat(at + 1 - offsets[:-1], length) + np.arange(offsets[-1])]
    buffers = [pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(body)]
    validity = None if mask is None else pa.array(there).buffers()[1]
    return pa.Array.from_buffers(pa.string() if kind == "s" else pa.binary(), len(at), [validity, *buffers])


def _gathered(data: npt.NDArray[np.uint8], at: Int64Array, width: int) -> npt.NDArray[np.uint8]:
    """Returns `width` bytes from each position on."""
    windows = np.lib.stride_tricks.sliding_window_view(data, width)
    return np.ascontiguousarray(windows[at])
