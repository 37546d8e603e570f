"""Applies column transforms to DataFrames: Select, Where, windows, and GroupBy with its aggregations.

Each aggregation has a Catalyst expression here and array or Python forms elsewhere; they must agree.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkTypeError
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DataType, LongType, StructField, StructType

from headrace.engine.catalyst import joining, skippedrows
from headrace.engine.catalyst.analysis import analysis_message, quiet_analysis
from headrace.engine.catalyst.parsing import quoted
from headrace.engine.catalyst.partials import (
    RANDOM,
    drawn,
    finished_expression,
    hashed,
    is_precombined,
    partial_expression,
)
from headrace.engine.catalyst.precombining import ACCUMULATORS, precombine
from headrace.engine.catalyst.sketchfunctions import register_for
from headrace.engine.plan.columnchecks import check_top
from headrace.engine.plan.taps import generates_rows
from headrace.engine.worker.hidden import BAD, END, LOW, NOW, PART, PUNCTUATION, REJECTED, START, TIME
from headrace.engine.worker.matchoperator import MatchOperator
from headrace.model import algebra, sketches
from headrace.model.agg import Aggregation
from headrace.model.aggregationtypes import wrong_type
from headrace.model.algebra import CombineFn
from headrace.model.algebra.changing import AddedFn, RemovedFn
from headrace.model.algebra.partial import PartialFn
from headrace.model.columnjoins import Join
from headrace.model.columns import Aggregate, Select, TopRows, Where
from headrace.model.errors import PipelineError
from headrace.model.keyed import Reshuffle, WindowInto
from headrace.model.knowncolumns import no_column
from headrace.model.matching import MatchQueries
from headrace.model.panes import Windowing
from headrace.model.pipeline import Node
from headrace.model.sortorder import SortOrder, is_sortable
from headrace.model.times import MIN_TIME
from headrace.model.windows import (
    GLOBAL_WINDOW,
    CountWindows,
    FixedWindows,
    GlobalWindows,
    SlidingWindows,
    WindowFn,
)

HIDDEN = (TIME, START, END, BAD, NOW, LOW, PART, PUNCTUATION, REJECTED)
"""Columns that are no part of the elements; the last five are of streams."""
SHARED = "__tap"
"""Columns that begin with this hold other collections that are read from the same source."""
_SESSION, _PLACE = "__session", "__place"


def element_names(data: DataFrame) -> list[str]:
    """Returns the names of the columns that elements have."""
    return [name for name in data.columns if name not in HIDDEN and not name.startswith(SHARED)]


def element_columns(data: DataFrame) -> list[Column]:
    """Returns the columns that elements have, quoted, since their names may be anything."""
    return [F.col("`" + name.replace("`", "``") + "`") for name in element_names(data)]


def only_columns(data: DataFrame, read: set[str] | None) -> DataFrame:
    """Returns a frame with these columns of its elements; with all, if None are known, or if Spark, which ignores case,
    could not tell two names apart."""
    if read is None or len({name.lower() for name in data.columns}) < len(data.columns):
        return data
    names = [name for name in data.columns if name in read or name in HIDDEN]
    return data.select(*["`" + name.replace("`", "``") + "`" for name in names])


@dataclass(frozen=True)
class RowSubset:
    """The rows that a transform is for; others pass through with the columns `carried`."""

    condition: Column
    carried: tuple[str, ...]


def apply(
    node: Node,
    data: DataFrame,
    other: DataFrame | None = None,
    *,
    marking: bool = False,
    subset: RowSubset | None = None,
) -> DataFrame:
    """Returns the frame after one column transform; with `marking`, rows that it drops stay, marked as no elements.

    `other` is the right frame of a join: in a stream, a table with the columns of elements.
    """
    if isinstance(node.transform, Select | Where):
        register_for(_written(node.transform), data.sparkSession)
    try:
        with quiet_analysis():
            if other is not None:
                return _joined(node, data, other, marking, subset)
            return _transformed_and_marked(node, data) if marking else _transformed(node, data, subset)
    except AnalysisException as error:
        raise PipelineError(f"{node}: {analysis_message(error, element_names(data))}") from None


def _joined(node: Node, data: DataFrame, other: DataFrame, marking: bool, subset: RowSubset | None) -> DataFrame:
    join, own = node.transform, element_names(data)
    assert isinstance(join, Join)
    try:
        if subset is not None:
            own = [name for name in own if name not in subset.carried]
            return joining.join_table(join, data, other, own, elements=subset.condition, marking=False)
        if LOW in data.columns:
            return joining.join_table(join, data, other, own, elements=F.col(LOW).isNull(), marking=marking)
        return joining.join_batches(join, data, other, own, element_names(other))
    except PipelineError as error:
        raise PipelineError(f"{node}: {error}") from None


def _transformed(node: Node, data: DataFrame, subset: RowSubset | None = None) -> DataFrame:
    transform = node.transform
    if isinstance(transform, Select):
        return _select(transform, data) if subset is None else _select_in(node, transform, data, subset)
    if isinstance(transform, Where):
        condition = _expression(transform.condition)
        if subset is not None and skippedrows.skips_failures(node):
            own = element_columns(data.drop(*subset.carried))
            data = skippedrows.tried(node, [condition], data, own, subset.condition)
            return data.where(F.when(subset.condition, skippedrows.value(0)).otherwise(F.lit(True))).drop(
                skippedrows.TRIED
            )
        if subset is not None:
            return data.where(F.when(subset.condition, condition).otherwise(F.lit(True)))
        return data.where(condition if LOW not in data.columns else condition | F.col(LOW).isNotNull())
    if isinstance(transform, WindowInto):
        return assign_windows(node, transform.windowing.window, data)
    if isinstance(transform, Aggregate):
        _check_aggregate(node, transform, data)
        return _aggregate(transform, node.inputs[0].windowing, data)
    if isinstance(transform, TopRows):
        kinds = {name: _arrow_type(data.schema[name].dataType) for name in element_names(data)}
        check_top(node, transform, kinds)
        return _top_rows(transform, node.inputs[0].windowing, data, kinds)
    if isinstance(transform, MatchQueries):
        columns = [*map(quoted, transform.keep), *(name for name in (TIME, START, END) if name in data.columns)]
        schema = data.select(*columns).schema.add(transform.number, "long")
        return data.mapInArrow(MatchOperator.of(node.label, transform).over_batches, schema)
    if isinstance(transform, Reshuffle):
        return data.repartition(data.sparkSession.sparkContext.defaultParallelism)
    raise NotImplementedError(f"no Catalyst form for {transform!r}")


def _transformed_and_marked(node: Node, data: DataFrame) -> DataFrame:
    transform = node.transform
    if isinstance(transform, Where):
        return _where_and_marked(node, transform, data)
    if not isinstance(transform, Select) or generates_rows(node):
        return _transformed(node, data, None)
    # Expressions are for elements: on rows that were dropped they might fail.
    expressions = _expressions(transform, element_columns(data))
    names = data.select(*expressions).columns
    if len(names) != len(expressions):  # some expand to several columns
        return _transformed(node, data, None)
    guarded = [F.when(F.col(LOW).isNull(), each).alias(name) for each, name in zip(expressions, names, strict=True)]
    elements = element_names(data)
    if skippedrows.skips_failures(node):
        data = skippedrows.tried(node, expressions, data, element_columns(data), F.col(LOW).isNull())
        values = [skippedrows.value(number).alias(name) for number, name in enumerate(names)]
        others = [name for name in data.columns if name not in (*elements, skippedrows.TRIED, LOW)]
        return data.select(*values, *others, skippedrows.low_of_rejected())
    return data.select(*guarded, *[name for name in data.columns if name not in elements])


def _where_and_marked(node: Node, where: Where, data: DataFrame) -> DataFrame:
    """Applies Where in a stream: rows that it drops lose their columns, but still move the watermark."""
    condition, names = _expression(where.condition), element_names(data)
    if skippedrows.skips_failures(node):
        data = skippedrows.tried(node, [condition], data, element_columns(data), F.col(LOW).isNull())
        condition = skippedrows.value(0)
    dropped = F.when(condition, None).otherwise(MIN_TIME)
    marked = data.withColumn(LOW, F.coalesce(LOW, dropped)).drop(skippedrows.TRIED)
    # A condition that follows sees nulls, and not the values that this one kept from it.
    values = [
        F.when(F.col(LOW).isNull(), column).alias(name)
        for name, column in zip(names, element_columns(marked), strict=True)
    ]
    return marked.select(*values, *[name for name in marked.columns if name not in names])


def _select(select: Select, data: DataFrame) -> DataFrame:
    elements = element_names(data)
    return data.select(
        *_expressions(select, element_columns(data)), *[name for name in data.columns if name not in elements]
    )


def _select_in(node: Node, select: Select, data: DataFrame, subset: RowSubset) -> DataFrame:
    expressions = _expressions(select, element_columns(data.drop(*subset.carried)))
    names = data.select(*expressions).columns
    if generates_rows(node) or len(names) != len(expressions):
        raise PipelineError(
            f"{node}: behind functions or groupings of a stream an expression gives one column and one row; name "
            "the columns one by one, and use FlatMap to make several rows of one"
        )
    # Expressions are for the rows of the subset: on others, which have nulls here, they might fail.
    guarded = [F.when(subset.condition, each).alias(name) for each, name in zip(expressions, names, strict=True)]
    elements = [name for name in element_names(data) if name not in subset.carried]
    if skippedrows.skips_failures(node):
        own = element_columns(data.drop(*subset.carried))
        data = skippedrows.tried(node, expressions, data, own, subset.condition).drop(*elements)
        guarded = [skippedrows.value(number).alias(name) for number, name in enumerate(names)]
    return data.select(*guarded, *[name for name in data.columns if name not in (*elements, skippedrows.TRIED)])


def _written(transform: Select | Where) -> list[Any]:
    """Returns the expressions of a transform, as they were written."""
    return [transform.condition] if isinstance(transform, Where) else [*transform.columns, *transform.named.values()]


def _expressions(select: Select, columns: list[Column]) -> list[Column]:
    """Returns the expressions of a Select; "*" is all these columns."""
    named = [_expression(column).alias(name) for name, column in select.named.items()]
    plain = [[*columns] if _is_star(column) else [_expression(column)] for column in select.columns]
    return [*itertools.chain.from_iterable(plain), *named]


def _is_star(column: Any) -> bool:
    return isinstance(column, str) and column.strip() == "*"


def _expression(column: Any) -> Column:
    return F.expr(column) if isinstance(column, str) else column


def assign_windows(node: Node, window: WindowFn, data: DataFrame) -> DataFrame:
    """Adds the bounds of each row's window; a row of several windows is repeated."""
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
        if LOW in data.columns:  # rows that are no elements are not repeated
            starts = F.when(F.col(LOW).isNull(), starts).otherwise(F.array(last))
        spread = data.withColumn(START, F.explode(starts))
        return spread.where(F.col(START) + F.lit(window.size) > time).withColumn(END, F.col(START) + F.lit(window.size))
    if window.keyed and not isinstance(window, CountWindows):
        raise PipelineError(
            f"{node}: {window!r} depends on a key, which columns do not have; make pairs with KeyBy(...) first"
        )
    return _assign_by_arrays(window, data)


def _assign_by_arrays(window: WindowFn, data: DataFrame) -> DataFrame:
    bounds = [StructField(START, LongType(), False), StructField(END, LongType(), False)]

    def assign(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            # Rows that are no elements are in no window, but stay.
            marked = LOW in batch.schema.names and batch.column(LOW).null_count < batch.num_rows
            others = np.flatnonzero(np.asarray(batch.column(LOW).is_valid())) if marked else np.zeros(0, np.int64)
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


def _check_aggregate(node: Node, aggregate: Aggregate, data: DataFrame) -> None:
    """Refuses keys and aggregated columns that do not exist, and aggregations of columns that cannot have them."""
    columns = element_names(data)
    for name in aggregate.reads():
        if name not in columns:
            raise PipelineError(f"{node}: {no_column(name, columns)}")
    for aggregation in aggregate.aggregations.values():
        kinds = {name: _arrow_type(data.schema[name].dataType) for name in aggregation.columns}
        if reason := wrong_type(aggregation, kinds):
            raise PipelineError(f"{node}: {reason}")


def _arrow_type(kind: DataType) -> pa.DataType | None:
    try:
        return to_arrow_type(kind, timezone="UTC")
    except PySparkTypeError:  # a type that Arrow does not have
        return None


def _precombined(aggregate: Aggregate, data: DataFrame) -> tuple[DataFrame, dict[str, Aggregation]]:
    """Returns a frame, and the aggregations of it, with accumulators where Python must make them."""
    collected = {name: each for name, each in aggregate.aggregations.items() if is_precombined(each.fn)}
    if not collected:
        return data, aggregate.aggregations
    groups = [*aggregate.keys, *(name for name in (START, END) if name in data.columns)]
    of = {name: f"{ACCUMULATORS}{number}" for number, name in enumerate(collected)}
    merging = {name: replace(each, column=of[name]) for name, each in collected.items()}
    return precombine(data, groups, list(collected.values())), {**aggregate.aggregations, **merging}


def _aggregate(aggregate: Aggregate, windowing: Windowing, data: DataFrame) -> DataFrame:
    if isinstance(windowing.window, CountWindows):
        data = _numbered(windowing.window, [F.col(name) for name in aggregate.keys], data)
    data, aggregations = _precombined(aggregate, data)
    if any(isinstance(_whole(each.fn), algebra.SampleFn) for each in aggregations.values()):
        data = data.withColumn(RANDOM, F.rand(seed=0))
    results = [expression(each, data.schema).alias(name) for name, each in aggregations.items()]
    end_time = _pane_time(windowing, lambda aggregate: aggregate)
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
    bounds = [F.min(START).alias(START), F.max(END).alias(END)]
    grouped = _in_sessions(windowing, keys, data).groupBy(*keys, _SESSION).agg(*results, end_time.alias(TIME), *bounds)
    return grouped.select(*aggregate.keys, *aggregate.aggregations, TIME, START, END)


def _pane_time(windowing: Windowing, over: Callable[[Column], Column]) -> Column:
    """Returns the time of a window's result; `over` applies an aggregate to the window's rows."""
    if windowing.timestamp_combiner == "earliest":
        return over(F.min(F.coalesce(TIME, F.lit(MIN_TIME))))
    if windowing.timestamp_combiner == "latest" or isinstance(windowing.window, CountWindows):
        return over(F.max(F.coalesce(TIME, F.lit(MIN_TIME))))
    return F.lit(GLOBAL_WINDOW.max_timestamp()) if windowing.is_global else over(F.max(END)) - 1


def _numbered(window: CountWindows, keys: list[Column], data: DataFrame) -> DataFrame:
    """Assigns rows to windows by their numbers among those of their key: in the order of time, and then as they are."""
    arrived = data.withColumn(_ARRIVAL, F.monotonically_increasing_id())
    order = Window.partitionBy(*keys).orderBy(F.coalesce(TIME, F.lit(MIN_TIME)), _ARRIVAL)
    number = F.row_number().over(order).cast("bigint") - 1
    start = number - F.pmod(number, F.lit(window.n))
    placed = arrived.withColumn(START, start).withColumn(END, F.col(START) + F.lit(window.n))
    return placed.drop(_ARRIVAL)


def _in_sessions(windowing: Windowing, keys: list[Column], data: DataFrame) -> DataFrame:
    """Adds the number of each row's session among those of its key."""
    if type(windowing.window).merge is not WindowFn.merge:
        raise PipelineError(
            f"GroupBy: {windowing.window!r} merges windows in its own way, which columns cannot; use CombinePerKey"
        )
    # Rows by start; a session begins where no earlier row of the key reaches.
    by_start = Window.partitionBy(*(keys or [F.lit(0)])).orderBy(START, END)
    reach = F.max(END).over(by_start.rowsBetween(Window.unboundedPreceding, -1))
    begins = F.when(reach.isNull() | (F.col(START) >= reach), 1).otherwise(0)
    marked = data.withColumn("__begins", begins)
    return marked.withColumn(_SESSION, F.sum("__begins").over(by_start.rowsBetween(Window.unboundedPreceding, 0)))


def _top_rows(top: TopRows, windowing: Windowing, data: DataFrame, kinds: dict[str, pa.DataType | None]) -> DataFrame:
    keys, names = [F.col(quoted(name)) for name in top.keys], list(kinds)
    groups = keys
    if windowing.window.merging:
        data, groups = _in_sessions(windowing, keys, data), [*keys, F.col(_SESSION)]
    elif not windowing.is_global:
        groups = [*keys, F.col(START), F.col(END)]
    ties = [SortOrder(name) for name, kind in kinds.items() if kind is not None and is_sortable(kind)]
    window = Window.partitionBy(*(groups or [F.lit(0)]))
    placed = F.row_number().over(window.orderBy(*map(_sorted, (*top.by, *ties))))
    hidden = {TIME: _pane_time(windowing, lambda aggregate: aggregate.over(window))}
    if not windowing.is_global:
        hidden |= {START: F.min(START).over(window), END: F.max(END).over(window)}
    rows = data.select(*map(quoted, names), *(each.alias(name) for name, each in hidden.items()), placed.alias(_PLACE))
    first = rows.where(F.col(_PLACE) <= top.n)
    rank = [] if top.rank is None else [F.col(_PLACE).alias(top.rank)]
    return first.select(*map(quoted, names), *rank, *hidden)


def _sorted(order: SortOrder) -> Column:
    column = F.col(quoted(order.column))
    if order.descending:
        return column.desc_nulls_first() if order.nulls_first else column.desc_nulls_last()
    return column.asc_nulls_first() if order.nulls_first else column.asc_nulls_last()


def expression(aggregation: Aggregation, schema: StructType) -> Column:
    """Returns the Catalyst expression of an aggregation of columns of these types."""
    value = F.lit(1) if aggregation.column is None else F.col(aggregation.column)
    if aggregation.column is not None and isinstance(_whole(aggregation.fn), _HASHED):
        value = hashed(value, schema[aggregation.column].dataType)
    if aggregation.by is not None:
        by = F.col(aggregation.by)
        value = F.when(by.isNotNull(), F.struct(by.alias("by"), value.alias("value")))
    return _form(aggregation.fn, value)


def _whole(fn: CombineFn[Any, Any, Any]) -> CombineFn[Any, Any, Any]:
    """Returns the aggregation that a partial one is of."""
    return fn.fn if isinstance(fn, PartialFn) else fn


def _form(fn: CombineFn[Any, Any, Any], value: Column) -> Column:
    form = _FORMS.get(type(fn))
    if form is None:
        raise PipelineError(f"{fn} has no Catalyst expression; use CombinePerKey({fn})")
    return form(fn, value)


def _quantiles(fn: sketches.QuantilesFn, value: Column) -> Column:
    ranks = F.array(*[F.lit(i / (fn.n - 1)) for i in range(fn.n)])
    points = F.kll_sketch_get_quantile_double(F.kll_sketch_agg_double(value.cast("double")), ranks)
    return F.when(F.count(value) > 0, points).otherwise(F.array().cast("array<double>"))  # nulls alone make no sketch


def _top(fn: algebra.TopFn, value: Column) -> Column:
    return F.slice(F.sort_array(F.collect_list(value), asc=fn.reverse), 1, fn.n)


def _heavy_hitters(fn: sketches.HeavyHittersFn, value: Column) -> Column:
    return F.call_function("approx_top_k", value, F.lit(fn.k), F.lit(fn.counters))


_ARRIVAL = "__arrival"
_HASHED = (sketches.ApproxDistinctFn, sketches.ThetaFn)
"""Sketches that Spark makes, of hashes that must be those of the model."""
_FORMS: dict[type[CombineFn[Any, Any, Any]], Callable[[Any, Column], Column]] = {
    algebra.CountFn: lambda fn, value: F.count(value),
    # Where SQL gives null for a column of nulls, a CombineFn has an answer for no values.
    algebra.SumFn: lambda fn, value: F.coalesce(F.sum(value), F.lit(0)),
    algebra.MeanFn: lambda fn, value: F.coalesce(F.avg(value), F.lit(float("nan"))),
    algebra.VarianceFn: lambda fn, value: F.coalesce(F.var_samp(value), F.lit(float("nan"))),
    algebra.SumOrNoneFn: lambda fn, value: F.sum(value),
    algebra.MeanOrNoneFn: lambda fn, value: F.avg(value),
    algebra.VarianceOrNoneFn: lambda fn, value: F.var_samp(value),
    # A batch takes nothing back.
    RemovedFn: lambda fn, value: F.max(F.when(F.lit(False), value)),
    AddedFn: lambda fn, value: F.max(value),
    algebra.MinFn: lambda fn, value: F.min(value),
    algebra.MaxFn: lambda fn, value: F.max(value),
    algebra.MinByFn: lambda fn, value: F.min(value)["value"],
    algebra.MaxByFn: lambda fn, value: F.max(value)["value"],
    algebra.FirstFn: lambda fn, value: F.min(F.struct(F.coalesce(TIME, F.lit(MIN_TIME)), value.alias("v")))["v"],
    algebra.LastFn: lambda fn, value: F.max(F.struct(F.coalesce(TIME, F.lit(MIN_TIME)), value.alias("v")))["v"],
    algebra.TopFn: _top,
    algebra.CollectFn: lambda fn, value: F.collect_list(value),
    algebra.CountDistinctFn: lambda fn, value: F.count_distinct(value),
    algebra.EitherFn: lambda fn, value: _form(fn.exact, value),
    sketches.ApproxDistinctFn: lambda fn, value: F.hll_sketch_estimate(F.hll_sketch_agg(value, F.lit(fn.lg_k))),
    sketches.QuantilesFn: _quantiles,
    sketches.HeavyHittersFn: _heavy_hitters,
    sketches.RankFn: finished_expression,
    sketches.HistogramFn: finished_expression,
    sketches.ThetaFn: finished_expression,
    sketches.CountMinFn: finished_expression,
    sketches.FrequencyFn: finished_expression,
    sketches.SecondMomentFn: finished_expression,
    sketches.BloomFn: finished_expression,
    algebra.SampleFn: drawn,
    PartialFn: partial_expression,
}
