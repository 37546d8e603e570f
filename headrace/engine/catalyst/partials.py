"""Catalyst forms of partial aggregations: the accumulators that their CombineFns would have, as bytes.

Catalyst aggregates; Python turns its result into an accumulator, once for each group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import BinaryType

from headrace.engine.worker.hidden import TIME
from headrace.model import algebra, sketches
from headrace.model.algebra import CombineFn
from headrace.model.algebra.partial import PartialFn
from headrace.model.errors import PipelineError
from headrace.model.safebytes import encode
from headrace.model.times import MIN_TIME

Form = Callable[[Any, Column], Column]
Dump = Callable[[Any, Any], Any]


def partial_expression(partial: PartialFn, value: Column) -> Column:
    """Returns the expression of a group's accumulator, as bytes."""
    fn = partial.fn
    if type(fn) not in _FORMS:
        raise PipelineError(f"{fn} has no Catalyst expression; a view can have it in CombinePerKey only")
    form, dump = _FORMS[type(fn)]

    def encode_all(results: pa.Array) -> pa.Array:
        return pa.array([encode(dump(fn, result)) for result in results.to_pylist()], pa.binary())

    return arrow_udf(encode_all, BinaryType())(form(fn, value))  # type: ignore[no-any-return, call-overload]


def _timed(value: Column) -> Column:
    return F.struct(F.coalesce(TIME, F.lit(MIN_TIME)).alias("time"), value.alias("value"))


def _one(fn: object, result: Any) -> list[Any]:
    """A heap of at most one value."""
    return [] if result is None else [(result, result)]


def _at_time(fn: object, result: Any) -> list[Any]:
    return [] if result is None else [(result["time"], result["value"])]


def _by(fn: object, result: Any) -> list[Any]:
    return [] if result is None else [(result["by"], result["value"])]


def _heap(fn: algebra.TopFn, result: list[Any]) -> list[Any]:
    return [(each, each) for each in reversed(result)]  # the best comes last: a sorted list is a heap


def _accumulated(fn: CombineFn[Any, Any, Any], result: list[Any]) -> Any:
    return fn.dump(fn.add_all(fn.zero(), result))


def _sketch(fn: CombineFn[Any, Any, Any], result: bytes | None) -> Any:
    return fn.dump(fn.zero() if result is None else fn.load(result))


_FORMS: Final[dict[type[CombineFn[Any, Any, Any]], tuple[Form, Dump]]] = {
    algebra.MeanFn: (
        lambda fn, value: F.struct(F.coalesce(F.sum(value), F.lit(0)).alias("sum"), F.count(value).alias("count")),
        lambda fn, result: (result["sum"], result["count"]),
    ),
    algebra.VarianceFn: (
        lambda fn, value: F.struct(
            F.count(value).alias("count"), F.avg(value).alias("mean"), F.var_pop(value).alias("variance")
        ),
        lambda fn, result: (
            (result["count"], result["mean"], result["variance"] * result["count"]) if result["count"] else fn.zero()
        ),
    ),
    algebra.MinFn: (lambda fn, value: F.min(value), _one),
    algebra.MaxFn: (lambda fn, value: F.max(value), _one),
    algebra.MinByFn: (lambda fn, value: F.min(value), _by),
    algebra.MaxByFn: (lambda fn, value: F.max(value), _by),
    algebra.FirstFn: (lambda fn, value: F.min(_timed(value)), _at_time),
    algebra.LastFn: (lambda fn, value: F.max(_timed(value)), _at_time),
    algebra.TopFn: (
        lambda fn, value: F.slice(F.sort_array(F.collect_list(value), asc=fn.reverse), 1, fn.n),
        _heap,
    ),
    algebra.CollectFn: (lambda fn, value: F.collect_list(value), lambda fn, result: result),
    algebra.CountDistinctFn: (lambda fn, value: F.collect_set(value), _accumulated),
    algebra.EitherFn: (lambda fn, value: F.collect_set(value), _accumulated),
    sketches.ApproxDistinctFn: (lambda fn, value: F.hll_sketch_agg(value, F.lit(fn.lg_k)), _sketch),
    sketches.QuantilesFn: (lambda fn, value: F.kll_sketch_agg_double(value.cast("double")), _sketch),
    # Spark's own sketch of frequent values is of another kind, and the two do not merge.
    sketches.HeavyHittersFn: (lambda fn, value: F.collect_list(value), _accumulated),
}
