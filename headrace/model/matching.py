"""Pairs rows with the queries of a table that they match. Queries are data: they come and go while a stream runs.

Constants and values are compared as sort keys: 64-bit integers in the order of the numbers, so that every range is one
with both ends in it. As in Spark, NaN is greater than all numbers and equals itself, and -0.0 is 0.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import pyarrow as pa

from headrace.model.columns import Columnwise
from headrace.model.errors import PipelineError
from headrace.model.times import Int64Array

LEAST: Final = -(2**63)
GREATEST: Final = 2**63 - 1
"""The least and the greatest sort key: the ends of ranges that have none."""
_EMPTY: Final = (GREATEST, LEAST)

Constants = tuple[list[str] | list[int], ...]
"""Of each parameter, what a query has for it: the values or sort keys of "in", the two ends of "range"."""


@dataclass(frozen=True)
class Parameter:
    """A column of rows that queries compare: with a set of values ("in"), or with a range of numbers ("range")."""

    column: str
    kind: Literal["in", "range"]


class MatchQueries(Columnwise):
    """Gives a row for each query of a table that a row matches: the columns `keep`, and the query's number.

    `table` is the file of a `QueryTable`. A query matches if each of its parameters does. Null matches nothing.
    """

    def __init__(self, table: str, parameters: Sequence[Parameter], keep: Sequence[str], number: str) -> None:
        if not parameters:
            raise PipelineError("MatchQueries needs at least one parameter; without, all rows match all queries")
        if number in keep:
            raise PipelineError(f"MatchQueries: there is a column {number!r} already; choose another for the number")
        self.table, self.parameters, self.keep, self.number = table, tuple(parameters), tuple(keep), number

    def default_label(self) -> str:
        return f"MatchQueries({', '.join(f'{each.column} {each.kind}' for each in self.parameters)})"


def sort_key(number: float) -> int:
    """Returns the sort key of a number: an integer's is itself.

    >>> sort_key(-3), sort_key(-0.0), sort_key(1.0) < sort_key(1.5) < sort_key(float("nan"))
    (-3, 0, True)
    """
    if isinstance(number, int):
        return number
    return int(sort_keys(pa.array([number], pa.float64()))[0])


def sort_keys(numbers: pa.Array) -> Int64Array:
    """Returns the sort keys of integers or floats; of null, any.

    >>> sort_keys(pa.array([2, -1])).tolist(), np.argsort(sort_keys(pa.array([2.5, -1.0, -2.0]))).tolist()
    ([2, -1], [2, 1, 0])
    """
    if not pa.types.is_floating(numbers.type):
        return np.asarray(numbers.cast(pa.int64()).fill_null(0))
    floats = np.asarray(numbers.cast(pa.float64()).fill_null(0.0)) + 0.0  # -0.0 becomes 0.0
    bits = floats.view(np.int64)
    keys: Int64Array = np.where(bits < 0, bits ^ np.int64(GREATEST), bits)
    return np.where(np.isnan(floats), np.int64(GREATEST), keys)


def range_of(operator: str, number: float) -> tuple[int, int]:
    """Returns the ends, both within it, of the range of sort keys that compare so with a number.

    >>> range_of(">", 5) == (6, GREATEST), range_of("<=", 5) == (LEAST, 5)
    (True, True)
    """
    key = sort_key(number)
    return {
        "<": (LEAST, key - 1) if key > LEAST else _EMPTY,
        "<=": (LEAST, key),
        ">": (key + 1, GREATEST) if key < GREATEST else _EMPTY,
        ">=": (key, GREATEST),
    }[operator]
