"""Keys of joins as arrays: bytes that are the same where a join finds two rows equal, and the pairs of equal codes.

Unlike the keys of groupings, these are never decoded, so they need no tags: a join compares columns of one type. As in
SQL, a null equals nothing; NaN equals itself, and 0.0 equals -0.0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.model.keys import tag_numbers
from headrace.model.times import Int64Array


def is_joinable(kind: pa.DataType) -> bool:
    """Returns whether rows of streams can be joined on columns of a type: plain values, no lists, structs or maps.

    >>> is_joinable(pa.int32()), is_joinable(pa.list_(pa.int32()))
    (True, False)
    """
    types = pa.types
    plain = (types.is_integer, types.is_boolean, types.is_floating, types.is_decimal128, types.is_temporal)
    text = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    return any(test(kind) for test in (*plain, *text)) and not types.is_interval(kind)


def encode_join_keys(columns: Sequence[pa.Array]) -> pa.BinaryArray:
    """Encodes rows of key columns, each of a joinable type; null where one of them is.

    >>> keys = encode_join_keys([pa.array([0.0, -0.0, None]), pa.array(["a", "a", "a"])])
    >>> keys[0] == keys[1], keys.null_count
    (True, 1)
    """
    cells = [_cells(column) for column in columns]
    if len(cells) == 1:
        return cells[0]
    parts: list[pa.Array] = []
    for column in cells:
        lengths = pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False).astype("<u4")
        parts += [tag_numbers(b"", lengths), column]
    return pc.binary_join_element_wise(*parts, b"")


def comparable(column: pa.Array) -> pa.Array:
    """Returns a key column in which values that a join finds equal are the same value.

    >>> comparable(pa.array([-0.0, None, 1.0])).to_pylist()
    [0.0, None, 1.0]
    """
    if not pa.types.is_floating(column.type):
        return column
    floats = np.asarray(column.fill_null(0.0)) + 0  # -0.0 becomes 0.0
    floats[np.isnan(floats)] = np.nan
    return pa.array(floats, column.type, mask=np.asarray(column.is_null()) if column.null_count else None)


def _cells(column: pa.Array) -> pa.BinaryArray:
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return column.cast(pa.binary())
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return column.cast(pa.large_binary()).cast(pa.binary())
    if pa.types.is_decimal128(kind):
        column = pc.if_else(column.is_valid(), column, pa.scalar(0, kind)) if column.null_count else column
        words = np.frombuffer(column.buffers()[1], "<i8")[2 * column.offset : 2 * (column.offset + len(column))]
        return _with_nulls_of(column, tag_numbers(b"", np.ascontiguousarray(words).view("V16")))
    if pa.types.is_floating(kind):
        floats = np.asarray(comparable(column).fill_null(0.0))
        return _with_nulls_of(column, tag_numbers(b"", floats))
    if kind.bit_width == 32 and pa.types.is_temporal(kind):
        column = column.cast(pa.int32())
    numbers = np.asarray(column.cast(pa.int64()).fill_null(0))
    return _with_nulls_of(column, tag_numbers(b"", numbers))


def _with_nulls_of(column: pa.Array, cells: pa.BinaryArray) -> pa.BinaryArray:
    return pc.if_else(column.is_valid(), cells, pa.scalar(None, pa.binary())) if column.null_count else cells


def equal_pairs(left: Int64Array, right: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Returns the positions of all pairs of equal codes, in the order of the left and then of the right.

    >>> [side.tolist() for side in equal_pairs(np.array([5, 7, 5]), np.array([7, 5, 5]))]
    [[0, 0, 1, 2, 2], [1, 2, 0, 1, 2]]
    """
    order = np.argsort(right, kind="stable")
    ordered = right[order]
    first, last = np.searchsorted(ordered, left, "left"), np.searchsorted(ordered, left, "right")
    return _ranges(order, first, last)


def near_pairs(
    left: Int64Array,
    right: Int64Array,
    left_times: Int64Array,
    right_times: Int64Array,
    bounds: tuple[int, int],
) -> tuple[Int64Array, Int64Array]:
    """Returns the positions of all pairs of equal codes whose times, right less left, differ by `bounds`.

    >>> codes, times = np.array([5, 5, 5]), np.array([10, 20, 30])
    >>> [side.tolist() for side in near_pairs(np.array([5]), codes, np.array([15]), times, (-5, 10))]
    [[0, 0], [0, 1]]
    """
    order = np.lexsort((right_times, right))
    ordered, times = right[order], right_times[order]
    first, last = np.searchsorted(ordered, left, "left"), np.searchsorted(ordered, left, "right")
    lower, upper = bounds
    begin = _search(times, first, last, left_times + lower)
    return _ranges(order, begin, _search(times, begin, last, left_times + (upper + 1)))


def latest_pairs(
    left: Int64Array, right: Int64Array, left_times: Int64Array, right_times: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """Returns, for each left position with one, the right one of the same code with the latest time up to its own.

    Of several at the same time it is the last.

    >>> codes, times = np.array([5, 5, 5]), np.array([10, 20, 20])
    >>> [side.tolist() for side in latest_pairs(np.array([5, 5, 7]), codes, np.array([25, 9, 25]), times)]
    [[0], [2]]
    """
    order = np.lexsort((right_times, right))
    ordered, times = right[order], right_times[order]
    first, last = np.searchsorted(ordered, left, "left"), np.searchsorted(ordered, left, "right")
    end = _search(times, first, last, left_times + 1)
    found = np.flatnonzero(end > first)
    return found, order[end[found] - 1]


def _search(times: Int64Array, first: Int64Array, last: Int64Array, least: Int64Array) -> Int64Array:
    """Returns, for each range of ordered times, the first position in it whose time is at least so much."""
    low, high = first.copy(), last.copy()
    open_ = np.flatnonzero(low < high)
    while len(open_):
        middle = (low[open_] + high[open_]) // 2
        below = times[middle] < least[open_]
        low[open_] = np.where(below, middle + 1, low[open_])
        high[open_] = np.where(below, high[open_], middle)
        open_ = open_[low[open_] < high[open_]]
    return low


def _ranges(order: Int64Array, first: Int64Array, last: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Returns pairs of the number of each range and each position in it."""
    count = last - first
    at = np.repeat(np.arange(len(count)), count)
    begin = np.cumsum(count) - count
    return at, order[np.arange(len(at)) - np.repeat(begin - first, count)]
