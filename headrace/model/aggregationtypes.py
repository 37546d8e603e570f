"""The types of columns that an aggregation takes."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from headrace.model import algebra, sketches
from headrace.model.agg import Aggregation
from headrace.model.algebra import CombineFn
from headrace.model.algebra.partial import PartialFn

_OF_NUMBERS: Final[dict[type[CombineFn[Any, Any, Any]], str]] = {
    algebra.SumFn: "sum",
    algebra.MeanFn: "mean",
    algebra.VarianceFn: "variance",
    sketches.QuantilesFn: "quantiles",
}


def wrong_type(aggregation: Aggregation, kind: pa.DataType | None) -> str | None:
    """Returns why an aggregation cannot be of a column of this type; None if it can, or if the type is not known.

    >>> import headrace as hr
    >>> wrong_type(hr.sum("city"), pa.string())
    "sum needs numbers, and 'city' is a string; convert it first, e.g. Select(city='cast(city as double)')"
    """
    fn, column = aggregation.fn, aggregation.column
    while isinstance(fn, PartialFn):
        fn = fn.fn
    if kind is None or column is None:
        return None
    if (name := _OF_NUMBERS.get(type(fn))) is not None and not _is_number(kind):
        return (
            f"{name} needs numbers, and {column!r} is a {kind}; convert it first, e.g. "
            f"Select({column}='cast({column} as double)')"
        )
    approximate = fn.approximate if isinstance(fn, algebra.EitherFn) else fn
    if isinstance(approximate, sketches.ApproxDistinctFn) and not _is_hashed(kind):
        return (
            f"approx_distinct counts whole numbers, text and bytes, and {column!r} is a {kind}; use count_distinct, or "
            f"convert it first, e.g. Select({column}='cast({column} as string)')"
        )
    return None


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _is_hashed(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )
