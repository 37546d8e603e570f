"""Transforms of columns in Catalyst: Select, Where, windows, and GroupBy with its aggregations.

Each aggregation has a Catalyst form here and array or Python forms elsewhere; they must agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from headrace.engine.catalyst.partials import partial_expression
from headrace.engine.plan.taps import generates_rows
from headrace.engine.worker.hidden import BAD, END, LOW, NOW, PART, PUNCTUATION, START, TIME
from headrace.model import algebra, sketches
from headrace.model.agg import Aggregation
from headrace.model.algebra import CombineFn
from headrace.model.algebra.partial import PartialFn
from headrace.model.columns import Aggregate, Select, Where
from headrace.model.errors import PipelineError
from headrace.model.keyed import Reshuffle, WindowInto
from headrace.model.panes import Windowing
from headrace.model.pipeline import Node
from headrace.model.times import MIN_TIME
from headrace.model.windows import (
    GLOBAL_WINDOW,
    CountWindows,
    FixedWindows,
    GlobalWindows,
    SlidingWindows,
    WindowFn,
)

HIDDEN = (TIME, START, END, BAD, NOW, LOW, PART, PUNCTUATION)
"""Columns that are no part of the elements; the last four a stream has."""
SHARED = "__tap"
"""Columns that begin with this are not of the elements either, but of others that are read from the same source."""


def own(data: DataFrame) -> list[str]:
    """The columns of the elements."""
    return [name for name in data.columns if name not in HIDDEN and not name.startswith(SHARED)]


def columns(data: DataFrame) -> list[Column]:
    """The columns of the elements, whatever their names."""
    return [F.col("`" + name.replace("`", "``") + "`") for name in own(data)]


@dataclass(frozen=True)
class Among:
    """Rows among others, which a transform leaves alone, and the columns that those have."""

    mine: Column
    carried: tuple[str, ...]


def apply(node: Node, data: DataFrame, *, marking: bool = False, among: Among | None = None) -> DataFrame:
    """The frame after one column transform. `marking`: rows that it drops stay, but are no elements."""
    try:
        return _marking(node, data) if marking else _applied(node, data, among)
    except AnalysisException as error:
        raise PipelineError(f"{node}: {str(error).splitlines()[0]}") from None


def _applied(node: Node, data: DataFrame, among: Among | None = None) -> DataFrame:
    transform = node.transform
    if isinstance(transform, Select):
        return _select(transform, data) if among is None else _select_among(node, transform, data, among)
    if isinstance(transform, Where):
        condition = _expression(transform.condition)
        if among is not None:
            return data.where(F.when(among.mine, condition).otherwise(F.lit(True)))
        return data.where(condition if LOW not in data.columns else condition | F.col(LOW).isNotNull())
    if isinstance(transform, WindowInto):
        return assign_windows(node, transform.windowing.window, data)
    if isinstance(transform, Aggregate):
        return _aggregate(transform, node.inputs[0].windowing, data)
    if isinstance(transform, Reshuffle):
        return data.repartition(data.sparkSession.sparkContext.defaultParallelism)
    raise NotImplementedError(f"no Catalyst form for {transform!r}")


def _marking(node: Node, data: DataFrame) -> DataFrame:
    transform = node.transform
    if isinstance(transform, Where):
        return _marked(transform, data)
    if not isinstance(transform, Select) or generates_rows(node):
        return _applied(node, data, None)
    # Expressions are for elements: of what was dropped, they might fail.
    given = _expressions(transform)
    names = data.select(*given).columns
    if len(names) != len(given):  # some are several
        return _applied(node, data, None)
    guarded = [F.when(F.col(LOW).isNull(), each).alias(name) for each, name in zip(given, names, strict=True)]
    elements = own(data)
    return data.select(*guarded, *[name for name in data.columns if name not in elements])


def _marked(where: Where, data: DataFrame) -> DataFrame:
    """Where in a stream: what it drops has no columns any more, but tells how far the source has come."""
    dropped = F.when(_expression(where.condition), None).otherwise(MIN_TIME)
    marked = data.withColumn(LOW, F.coalesce(LOW, dropped))
    named = own(data)
    # A condition that follows sees nulls, and not the values it was protected from.
    kept = [F.when(F.col(LOW).isNull(), column).alias(name) for name, column in zip(named, columns(data), strict=True)]
    return marked.select(*kept, *[name for name in data.columns if name not in named])


def _select(select: Select, data: DataFrame) -> DataFrame:
    elements = own(data)
    return data.select(*_expressions(select), *[name for name in data.columns if name not in elements])


def _select_among(node: Node, select: Select, data: DataFrame, among: Among) -> DataFrame:
    given = _expressions(select)
    names = data.select(*given).columns
    if generates_rows(node) or len(names) != len(given):
        raise PipelineError(
            f"{node}: in the midst of a stream, beside other rows, an expression gives one column and one row; name "
            "the columns one by one, and use FlatMap to make several rows of one"
        )
    # Expressions are for its own rows: of others, which have nulls here, they might fail.
    guarded = [F.when(among.mine, each).alias(name) for each, name in zip(given, names, strict=True)]
    elements = [name for name in own(data) if name not in among.carried]
    return data.select(*guarded, *[name for name in data.columns if name not in elements])


def _expressions(select: Select) -> list[Column]:
    named = [_expression(column).alias(name) for name, column in select.named.items()]
    return [*map(_expression, select.columns), *named]


def _expression(column: Any) -> Column:
    return F.expr(column) if isinstance(column, str) else column


def assign_windows(node: Node, window: WindowFn, data: DataFrame) -> DataFrame:
    """The frame with the bounds of each row's windows; rows of several windows are repeated."""
    data = data.drop(START, END)
    if isinstance(window, GlobalWindows):
        return data
    time = F.coalesce(F.col(TIME), F.lit(MIN_TIME))
    if isinstance(window, FixedWindows):
        start = time - F.pmod(time - F.lit(window.offset), F.lit(window.size))
        return data.withColumns({START: start, END: start + F.lit(window.size)})
    if isinstance(window, SlidingWindows):
        last = time - F.pmod(time - F.lit(window.offset), F.lit(window.period))
        first = last - F.lit((window.size - 1) // window.period * window.period)
        starts = F.sequence(first, last, F.lit(window.period))
        if LOW in data.columns:  # what is no element is not repeated
            starts = F.when(F.col(LOW).isNull(), starts).otherwise(F.array(last))
        spread = data.withColumn(START, F.explode(starts))
        return spread.where(F.col(START) + F.lit(window.size) > time).withColumn(END, F.col(START) + F.lit(window.size))
    if window.keyed and not isinstance(window, CountWindows):
        raise PipelineError(
            f"{node}: {window!r} depends on a key, which columns do not tell; make pairs with KeyBy(...) first"
        )
    return _assign_by_arrays(window, data)


def _assign_by_arrays(window: WindowFn, data: DataFrame) -> DataFrame:
    bounds = [StructField(START, LongType(), False), StructField(END, LongType(), False)]

    def assign(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            # What is no element is in no window, but stays.
            told = LOW in batch.schema.names and batch.column(LOW).null_count < batch.num_rows
            others = np.flatnonzero(np.asarray(batch.column(LOW).is_valid())) if told else np.zeros(0, np.int64)
            elements = np.delete(np.arange(batch.num_rows), others)
            times = np.asarray(batch.column(TIME).fill_null(MIN_TIME))[elements]
            if isinstance(window, CountWindows):
                index, start, end = window.assign_ordinals(np.zeros(len(times), np.int64))
            else:
                index, start, end = window.assign(times)
            start, end = (np.concatenate([bound, np.zeros(len(others), np.int64)]) for bound in (start, end))
            rows = batch.take(pa.array(np.concatenate([elements[index], others])))
            yield rows.append_column(START, pa.array(start)).append_column(END, pa.array(end))

    return data.mapInArrow(assign, StructType([*data.schema.fields, *bounds]))


def _aggregate(aggregate: Aggregate, windowing: Windowing, data: DataFrame) -> DataFrame:
    missing = [name for name in aggregate.keys if name not in data.columns]
    if missing:
        columns = ", ".join(name for name in data.columns if name not in HIDDEN)
        raise PipelineError(f"GroupBy: there is no column {missing[0]!r}; there are {columns}")
    results = [expression(a).alias(name) for name, a in aggregate.aggregations.items()]
    end_time: Column = F.lit(GLOBAL_WINDOW.max_timestamp())
    if windowing.timestamp_combiner == "earliest":
        end_time = F.min(F.coalesce(TIME, F.lit(MIN_TIME)))
    elif windowing.timestamp_combiner == "latest":
        end_time = F.max(F.coalesce(TIME, F.lit(MIN_TIME)))
    elif not windowing.is_global:
        end_time = F.max(END) - 1
    keys = [F.col(name) for name in aggregate.keys]
    if windowing.is_global:
        return data.groupBy(*keys).agg(*results, end_time.alias(TIME))
    if not windowing.window.merging:
        # Where the size is fixed the start tells the end, and one key less is hashed and compared.
        size = windowing.window.size if isinstance(windowing.window, FixedWindows | SlidingWindows) else None
        if size is not None and windowing.timestamp_combiner == "end_of_window":
            grouped = data.groupBy(*keys, START).agg(*results).withColumn(END, F.col(START) + F.lit(size))
            return grouped.withColumn(TIME, F.col(END) - 1).select(
                *aggregate.keys, *aggregate.aggregations, TIME, START, END
            )
        grouped = data.groupBy(*keys, START, END).agg(*results, end_time.alias(TIME))
        return grouped.select(*aggregate.keys, *aggregate.aggregations, TIME, START, END)
    if type(windowing.window).merge is not WindowFn.merge:
        raise PipelineError(
            f"GroupBy: {windowing.window!r} merges windows in its own way, which columns cannot; use CombinePerKey"
        )
    # Sessions: rows by start; a session begins where no earlier row of the key reaches.
    by_start = Window.partitionBy(*(keys or [F.lit(0)])).orderBy(START, END)
    reach = F.max(END).over(by_start.rowsBetween(Window.unboundedPreceding, -1))
    begins = F.when(reach.isNull() | (F.col(START) >= reach), 1).otherwise(0)
    marked = data.withColumn("__begins", begins)
    numbered = marked.withColumn(
        "__session", F.sum("__begins").over(by_start.rowsBetween(Window.unboundedPreceding, 0))
    )
    bounds = [F.min(START).alias(START), F.max(END).alias(END)]
    grouped = numbered.groupBy(*keys, "__session").agg(*results, end_time.alias(TIME), *bounds)
    return grouped.select(*aggregate.keys, *aggregate.aggregations, TIME, START, END)


def expression(aggregation: Aggregation) -> Column:
    """The Catalyst form of an aggregation."""
    return _form(aggregation.fn, F.lit(1) if aggregation.column is None else F.col(aggregation.column))


def _form(fn: CombineFn[Any, Any, Any], value: Column) -> Column:
    form = _FORMS.get(type(fn))
    if form is None:
        raise PipelineError(f"{fn} has no form in columns; use CombinePerKey({fn})")
    return form(fn, value)


def _quantiles(fn: sketches.QuantilesFn, value: Column) -> Column:
    ranks = F.array(*[F.lit(i / (fn.n - 1)) for i in range(fn.n)])
    points = F.kll_sketch_get_quantile_double(F.kll_sketch_agg_double(value.cast("double")), ranks)
    return F.when(F.count(value) > 0, points).otherwise(F.array().cast("array<double>"))  # nulls alone make no sketch


def _top(fn: algebra.TopFn, value: Column) -> Column:
    return F.slice(F.sort_array(F.collect_list(value), asc=fn.reverse), 1, fn.n)


def _heavy_hitters(fn: sketches.HeavyHittersFn, value: Column) -> Column:
    return F.call_function("approx_top_k", value, F.lit(fn.k), F.lit(fn.counters))


_FORMS: dict[type[CombineFn[Any, Any, Any]], Callable[[Any, Column], Column]] = {
    algebra.CountFn: lambda fn, value: F.count(value),
    # Where SQL gives null for a column of nulls, a CombineFn has an answer for no values.
    algebra.SumFn: lambda fn, value: F.coalesce(F.sum(value), F.lit(0)),
    algebra.MeanFn: lambda fn, value: F.coalesce(F.avg(value), F.lit(float("nan"))),
    algebra.VarianceFn: lambda fn, value: F.coalesce(F.var_samp(value), F.lit(float("nan"))),
    algebra.MinFn: lambda fn, value: F.min(value),
    algebra.MaxFn: lambda fn, value: F.max(value),
    algebra.FirstFn: lambda fn, value: F.min(F.struct(F.coalesce(TIME, F.lit(MIN_TIME)), value.alias("v")))["v"],
    algebra.LastFn: lambda fn, value: F.max(F.struct(F.coalesce(TIME, F.lit(MIN_TIME)), value.alias("v")))["v"],
    algebra.TopFn: _top,
    algebra.CollectFn: lambda fn, value: F.collect_list(value),
    algebra.CountDistinctFn: lambda fn, value: F.count_distinct(value),
    algebra.EitherFn: lambda fn, value: _form(fn.exact, value),
    sketches.ApproxDistinctFn: lambda fn, value: F.hll_sketch_estimate(F.hll_sketch_agg(value, F.lit(fn.lg_k))),
    sketches.QuantilesFn: _quantiles,
    sketches.HeavyHittersFn: _heavy_hitters,
    PartialFn: partial_expression,
}
