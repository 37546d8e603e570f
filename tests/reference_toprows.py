"""The naive definition of GroupBy(...).top(...): rows are compared two by two, as SQL's ORDER BY defines it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cmp_to_key
from typing import Any

Row = dict[str, Any]
By = Sequence[tuple[str, bool, bool]]
"""Columns, whether they are descending, and whether nulls are first."""


def compare(a: Any, b: Any, descending: bool = False, nulls_first: bool = True) -> int:
    """-1, 0 or 1: which of two values is first. NaN is greater than any number."""
    if a is None or b is None:
        return 0 if a is b else (-1 if (a is None) is nulls_first else 1)
    less = b if descending else a
    more = a if descending else b
    if _is_nan(less) or _is_nan(more):
        return int(_is_nan(less)) - int(_is_nan(more))
    return int(less > more) - int(less < more)


def top_rows(rows: Sequence[Row], n: int, by: By) -> list[Row]:
    """The first n rows, and of rows that are alike in `by` those that are first by all columns."""

    def both(a: Row, b: Row) -> int:
        orders = [*by, *((name, False, True) for name in a)]
        return next((order for order in (compare(a[c], b[c], d, f) for c, d, f in orders) if order), 0)

    return sorted(rows, key=cmp_to_key(both))[:n]


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)
