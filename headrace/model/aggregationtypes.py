"""The types of columns that an aggregation takes."""

from __future__ import annotations

from collections.abc import Mapping
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
    algebra.SumOrNoneFn: "sum",
    algebra.MeanOrNoneFn: "mean",
    algebra.VarianceOrNoneFn: "variance",
    sketches.QuantilesFn: "quantiles",
    sketches.RankFn: "rank",
    sketches.HistogramFn: "histogram",
}
_OF_HASHED: Final[dict[type[CombineFn[Any, Any, Any]], str]] = {
    sketches.ThetaFn: "theta",
    sketches.CountMinFn: "count_min",
    sketches.FrequencyFn: "frequency",
    sketches.BloomFn: "bloom",
    sketches.SecondMomentFn: "second_moment",
}


def wrong_type(aggregation: Aggregation, kinds: Mapping[str, pa.DataType | None]) -> str | None:
    """Returns why an aggregation cannot be of columns of these types; None if it can, or if a type is not known.

    >>> import headrace as hr
    >>> wrong_type(hr.sum("city"), {"city": pa.string()})
    "sum needs numbers, and 'city' is a string; convert it first, e.g. Select(city='cast(city as double)')"
    """
    fn, column = aggregation.fn, aggregation.column
    while isinstance(fn, PartialFn):
        fn = fn.fn
    if aggregation.by is not None:
        known = {name: of for name in aggregation.columns if (of := kinds.get(name)) is not None}
        return next((_no_order(fn, name, of) for name, of in known.items() if pa.types.is_nested(of)), None)
    kind = None if column is None else kinds.get(column)
    if kind is None:
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
    if (name := _OF_HASHED.get(type(fn))) is not None and not _is_hashed(kind):
        return (
            f"{name} takes whole numbers, text and bytes, and {column!r} is a {kind}; convert it first, e.g. "
            f"Select({column}='cast({column} as string)')"
        )
    if isinstance(fn, sketches.FrequencyFn):
        wanted = int if pa.types.is_integer(kind) else bytes if _is_bytes(kind) else str
        for value in fn.of if isinstance(fn.of, tuple) else (fn.of,):
            if not isinstance(value, wanted):
                return f"frequency: {column!r} is a {kind}, and never {value!r}; give values of its type"
    return None


def _no_order(fn: object, column: str, kind: pa.DataType) -> str:
    name = "min_by" if isinstance(fn, algebra.MinByFn) else "max_by"
    return (
        f"{name} takes values that have an order, and {column!r} is a {kind}; take a part of it, or convert it first, "
        f"e.g. Select({column}='to_json({column})')"
    )


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _is_hashed(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind) or _is_bytes(kind)
    )


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))
