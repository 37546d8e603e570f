"""Catalyst forms of partial aggregations: the accumulators that their CombineFns would have, as bytes.

Catalyst aggregates; what it found is turned into an accumulator in Python, once for each group.
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
Dumped = Callable[[Any, Any], Any]


def partial_expression(partial: PartialFn, value: Column) -> Column:
    """The accumulator of a group, as bytes."""
    fn = partial.fn
    if type(fn) not in _FORMS:
        raise PipelineError(f"{fn} has no form in columns; a view can have it in CombinePerKey only")
    form, dumped = _FORMS[type(fn)]

    def encoded(found: pa.Array) -> pa.Array:
        return pa.array([encode(dumped(fn, each)) for each in found.to_pylist()], pa.binary())

    return arrow_udf(encoded, BinaryType())(form(fn, value))  # type: ignore[no-any-return, call-overload]


def _timed(value: Column) -> Column:
    return F.struct(F.coalesce(TIME, F.lit(MIN_TIME)).alias("time"), value.alias("value"))


def _one(fn: object, found: Any) -> list[Any]:
    """A heap of at most one value."""
    return [] if found is None else [(found, found)]


def _at_time(fn: object, found: Any) -> list[Any]:
    return [] if found is None else [(found["time"], found["value"])]


def _heap(fn: algebra.TopFn, found: list[Any]) -> list[Any]:
    return [(each, each) for each in reversed(found)]  # the best comes last: a sorted list is a heap


def _added(fn: CombineFn[Any, Any, Any], found: list[Any]) -> Any:
    return fn.dump(fn.add_all(fn.zero(), found))


def _sketch(fn: CombineFn[Any, Any, Any], found: bytes | None) -> Any:
    return fn.dump(fn.zero() if found is None else fn.load(found))


_FORMS: Final[dict[type[CombineFn[Any, Any, Any]], tuple[Form, Dumped]]] = {
    algebra.MeanFn: (
        lambda fn, value: F.struct(F.coalesce(F.sum(value), F.lit(0)).alias("sum"), F.count(value).alias("count")),
        lambda fn, found: (found["sum"], found["count"]),
    ),
    algebra.VarianceFn: (
        lambda fn, value: F.struct(
            F.count(value).alias("count"), F.avg(value).alias("mean"), F.var_pop(value).alias("variance")
        ),
        lambda fn, found: (
            (found["count"], found["mean"], found["variance"] * found["count"]) if found["count"] else fn.zero()
        ),
    ),
    algebra.MinFn: (lambda fn, value: F.min(value), _one),
    algebra.MaxFn: (lambda fn, value: F.max(value), _one),
    algebra.FirstFn: (lambda fn, value: F.min(_timed(value)), _at_time),
    algebra.LastFn: (lambda fn, value: F.max(_timed(value)), _at_time),
    algebra.TopFn: (
        lambda fn, value: F.slice(F.sort_array(F.collect_list(value), asc=fn.reverse), 1, fn.n),
        _heap,
    ),
    algebra.CollectFn: (lambda fn, value: F.collect_list(value), lambda fn, found: found),
    algebra.CountDistinctFn: (lambda fn, value: F.collect_set(value), _added),
    algebra.EitherFn: (lambda fn, value: F.collect_set(value), _added),
    sketches.ApproxDistinctFn: (lambda fn, value: F.hll_sketch_agg(value, F.lit(fn.lg_k)), _sketch),
    sketches.QuantilesFn: (lambda fn, value: F.kll_sketch_agg_double(value.cast("double")), _sketch),
    # Spark's own sketch of frequent values is of another kind, and the two do not merge.
    sketches.HeavyHittersFn: (lambda fn, value: F.collect_list(value), _added),
}
