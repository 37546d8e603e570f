"""Catalyst forms of partial aggregations: the accumulators that their CombineFns would have, as bytes.

Catalyst aggregates; Python turns its result into an accumulator, once for each group. Sketches that Catalyst cannot
finish are finished there, too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import ArrayType, BinaryType, DataType, DoubleType, IntegralType, LongType, StringType

from headrace.engine.worker.hidden import TIME
from headrace.model import algebra, sketches
from headrace.model.algebra import CombineFn
from headrace.model.algebra.partial import PartialFn
from headrace.model.errors import PipelineError
from headrace.model.safebytes import decode, encode
from headrace.model.times import MIN_TIME

Form = Callable[[Any, Column], Column]
Dump = Callable[[Any, Any], Any]

RANDOM: Final = "__random"
"""A column of random numbers, which a frame has if samples are drawn of it: an aggregate cannot make them."""


def partial_expression(partial: PartialFn, value: Column) -> Column:
    """Returns the expression of a group's accumulator, as bytes."""
    fn = partial.fn
    if type(fn) not in _FORMS:
        raise PipelineError(f"{fn} has no Catalyst expression; a view can have it in CombinePerKey only")
    form, dump = _FORMS[type(fn)]

    def encode_all(results: pa.Array) -> pa.Array:
        return pa.array([encode(dump(fn, result)) for result in results.to_pylist()], pa.binary())

    return arrow_udf(encode_all, BinaryType())(form(fn, value))  # type: ignore[no-any-return, call-overload]


def finished_expression(fn: CombineFn[Any, Any, Any], value: Column) -> Column:
    """Returns the expression of a group's result, which the CombineFn itself makes of the accumulator."""
    form, dump = _FORMS[type(fn)]
    kind = _RESULTS[type(fn)](fn)
    arrow = to_arrow_type(kind)

    def finish_all(results: pa.Array) -> pa.Array:
        return pa.array([fn.finish(fn.load(dump(fn, result))) for result in results.to_pylist()], arrow)

    return arrow_udf(finish_all, kind)(form(fn, value))  # type: ignore[no-any-return, call-overload]


def is_precombined(fn: CombineFn[Any, Any, Any]) -> bool:
    """Returns whether Catalyst can only collect accumulators of an aggregation, which Python makes before."""
    whole = fn.fn if isinstance(fn, PartialFn) else fn
    if isinstance(whole, sketches.HeavyHittersFn):
        return fn is not whole
    return type(whole) in _FORMS and _FORMS[type(whole)][0] is _precombined


def hashed(value: Column, kind: DataType) -> Column:
    """Returns a column as the sketches of Spark must hash it to agree with `hashed_as` of the model."""
    if isinstance(kind, IntegralType):
        return value.cast("bigint")
    if isinstance(kind, StringType):
        return F.when(value == "", "\0s").otherwise(value)  # Spark ignores empty text
    if isinstance(kind, BinaryType):
        return F.concat(F.lit("\0b"), F.decode(value, "ISO-8859-1"))
    return value


def drawn(fn: algebra.SampleFn, value: Column) -> Column:
    """Returns the expression of a sample: the values of the rows with the greatest random numbers."""
    by = F.when(value.isNotNull(), F.xxhash64(F.col(RANDOM), F.lit(fn.seed)))
    return F.coalesce(F.max_by(value, by, fn.n), F.array())


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


def _merged(fn: CombineFn[Any, Any, Any], result: list[bytes]) -> Any:
    return fn.dump(reduce(fn.merge, (fn.load(decode(each)) for each in result), fn.zero()))


def _reservoir(fn: algebra.SampleFn, result: Any) -> Any:
    bits, _, sample = fn.add_all(fn.zero(), result["sample"])
    return bits, result["count"], sample


def _precombined(fn: object, accumulators: Column) -> Column:
    return F.collect_list(accumulators)


def _kll(fn: object, value: Column) -> Column:
    return F.kll_sketch_agg_double(value.cast("double"))


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
    sketches.QuantilesFn: (_kll, _sketch),
    # Spark's own sketch of frequent values is of another kind, and the two do not merge.
    sketches.HeavyHittersFn: (_precombined, _merged),
    sketches.RankFn: (_kll, _sketch),
    sketches.HistogramFn: (_kll, _sketch),
    sketches.ThetaFn: (lambda fn, value: F.theta_sketch_agg(value, F.lit(fn.lg_k)), _sketch),
    sketches.CountMinFn: (_precombined, _merged),
    sketches.FrequencyFn: (_precombined, _merged),
    sketches.SecondMomentFn: (_precombined, _merged),
    sketches.BloomFn: (_precombined, _merged),
    algebra.SampleFn: (
        lambda fn, value: F.struct(F.count(value).alias("count"), drawn(fn, value).alias("sample")),
        _reservoir,
    ),
}

_RESULTS: Final[dict[type[CombineFn[Any, Any, Any]], Callable[[Any], DataType]]] = {
    sketches.RankFn: lambda fn: _one_or_several(fn.of, DoubleType()),
    sketches.HistogramFn: lambda fn: ArrayType(ArrayType(DoubleType())),
    sketches.ThetaFn: lambda fn: BinaryType(),
    sketches.CountMinFn: lambda fn: BinaryType(),
    sketches.FrequencyFn: lambda fn: _one_or_several(fn.of, LongType()),
    sketches.SecondMomentFn: lambda fn: DoubleType(),
    sketches.BloomFn: lambda fn: BinaryType(),
}


def _one_or_several(asked: object, kind: DataType) -> DataType:
    return ArrayType(kind) if isinstance(asked, tuple) else kind
