"""Sorts rows of columns by arrays, as Spark orders them: nulls where they are wanted, and NaN above all numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.model.times import Int64Array


def sort_keys(column: pa.Array, *, descending: bool = False, nulls_first: bool = True) -> list[npt.NDArray[np.generic]]:
    """Returns arrays whose ascending order, by the first and then by the next, is the order wanted of a column.

    >>> [each.tolist() for each in sort_keys(pa.array([3, None, 1]), descending=True, nulls_first=False)]
    [[False, True, False], [-4, -1, -2]]
    >>> [each.tolist() for each in sort_keys(pa.array(["b", "a"]))]
    [[1, 0]]
    """
    keys: list[npt.NDArray[np.generic]] = []
    if column.null_count:
        null = np.asarray(column.is_null())
        keys.append(~null if nulls_first else null)
    kind = column.type
    if pa.types.is_floating(kind):
        floats = np.asarray(column.fill_null(0.0) if column.null_count else column).astype(np.float64)
        nan = np.isnan(floats)
        if nan.any():
            keys.append(~nan if descending else nan)
            floats[nan] = 0
        return [*keys, -floats if descending else floats]
    numbers = _ranks(column) if not _is_whole(kind) else _numbers(column)
    return [*keys, ~numbers if descending else numbers]


def leading_rows(groups: Int64Array, keys: Sequence[npt.NDArray[np.generic]], n: int) -> Int64Array:
    """Returns the positions of the rows, group by group, that less than n rows of their group are before.

    There may be more than n of a group, if some are equal.

    >>> leading_rows(np.array([0, 1, 0, 0]), [np.array([5, 5, 4, 5])], 2).tolist()
    [2, 0, 3, 1]
    """
    if not len(groups):
        return np.zeros(0, np.int64)
    order = np.lexsort((*reversed(keys), groups))
    begins = np.ones(len(order), np.bool_)
    begins[1:] = np.diff(groups[order]) != 0
    differs = begins.copy()
    for key in keys:
        ordered = key[order]
        differs[1:] |= ordered[1:] != ordered[:-1]
    at = np.arange(len(order))
    before = np.maximum.accumulate(np.where(differs, at, 0)) - np.maximum.accumulate(np.where(begins, at, 0))
    return order[before < n]


def _is_whole(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_temporal(kind))


def _numbers(column: pa.Array) -> Int64Array:
    if pa.types.is_temporal(column.type) and column.type.bit_width == 32:
        column = column.cast(pa.int32())
    return np.asarray(column.cast(pa.int64()).fill_null(0))


def _ranks(column: pa.Array) -> Int64Array:
    """Returns the rank of each value among the different ones; that of a null is 0."""
    encoded = column.dictionary_encode()
    ranks = np.zeros(max(len(encoded.dictionary), 1), np.int64)
    ranks[np.asarray(pc.array_sort_indices(encoded.dictionary))] = np.arange(len(encoded.dictionary))
    codes: Int64Array = np.asarray(encoded.indices.fill_null(0))
    return ranks[codes]
