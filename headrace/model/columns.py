"""Transforms of collections with columns: Select, Where, GroupBy(...).aggregate(...).

Expressions are SQL text or Spark Columns; the model only passes them on. An aggregation names a CombineFn and a column,
so that batch (a Catalyst expression) and stream (array kernels) compute one and the same thing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from headrace.model import algebra, sketches
from headrace.model.algebra import CombineFn
from headrace.model.errors import PipelineError
from headrace.model.lateoutput import LateOutput
from headrace.model.pipeline import PCollection, Primitive
from headrace.model.schema import ROWS

EVENT_TIME: Final = "timestamp_micros(__time)"
"""SQL text for an element's event time, to be used in Select and Where."""
WINDOW_START: Final = "timestamp_micros(__start)"
"""SQL text for the start of an element's window."""
WINDOW_END: Final = "timestamp_micros(__end)"
"""SQL text for the end of an element's window."""


class Columnwise(Primitive):
    """A primitive over columns: it needs a collection with a schema and gives one."""

    output_type: object = ROWS


class Select(Columnwise):
    """Columns by name, and new ones by expression: SQL text or Spark Columns.

    >>> import headrace as hr
    >>> with hr.Pipeline() as p:
    ...     named = p | hr.Create([("a", 2)]) | hr.Select(word="_1", twice="_2 * 2") | hr.Collect()
    >>> list(named)
    [Row(word='a', twice=4)]
    """

    def __init__(self, *columns: Any, **named: Any) -> None:
        if not columns and not named:
            raise PipelineError("Select needs at least one column, e.g. Select('user', day='date(ts)')")
        self.columns, self.named = columns, named

    def default_label(self) -> str:
        return f"Select({', '.join([*map(str, self.columns), *self.named])})"


class Where(Columnwise):
    """The rows for which a condition holds: SQL text or a Spark Column.

    >>> import headrace as hr
    >>> with hr.Pipeline() as p:
    ...     large = p | hr.Create([("a", 2), ("b", 5)]) | hr.Where("_2 > 3") | hr.Collect()
    >>> list(large)
    [('b', 5)]
    """

    output_type: object = None

    def __init__(self, condition: Any) -> None:
        self.condition = condition

    def default_label(self) -> str:
        return f"Where({self.condition})"

    def element_type_from(self, inputs: tuple[PCollection, ...]) -> object:
        return inputs[0].element_type


@dataclass(frozen=True)
class Aggregation:
    """An aggregation of one column (or of whole rows), made by `hr.count()`, `hr.sum("x")` and their like."""

    fn: CombineFn[Any, Any, Any]
    column: str | None = None

    def __str__(self) -> str:
        return f"{self.fn}" if self.column is None else f"{self.fn} of {self.column}"


class Aggregate(LateOutput, Columnwise):
    """One row per group and window: the keys and the aggregates."""

    def __init__(self, keys: tuple[str, ...], aggregations: dict[str, Aggregation]) -> None:
        self.keys, self.aggregations = keys, aggregations

    def default_label(self) -> str:
        return f"GroupBy({', '.join(self.keys)})"


class GroupBy:
    """Groups rows by columns: `GroupBy("user").aggregate(n=hr.count())`. Without columns, all rows are one group.

    >>> import headrace as hr
    >>> with hr.Pipeline() as p:
    ...     pairs = p | hr.Create([("a", 2), ("a", 4)])
    ...     stats = pairs | hr.GroupBy("_1").aggregate(n=hr.count(), total=hr.sum("_2")) | hr.Collect()
    >>> list(stats)
    [Row(_1='a', n=2, total=6)]
    """

    def __init__(self, *keys: str) -> None:
        for key in keys:
            if not isinstance(key, str):
                raise PipelineError(
                    f"GroupBy takes names of columns, got {key!r}; compute it first with Select(name=...)"
                )
        self.keys = keys

    def aggregate(self, **aggregations: Aggregation) -> Aggregate:
        """The transform that computes these aggregations for each group."""
        if not aggregations:
            raise PipelineError("aggregate needs at least one aggregation, e.g. aggregate(n=hr.count())")
        for name, aggregation in aggregations.items():
            if not isinstance(aggregation, Aggregation):
                raise PipelineError(
                    f"aggregate: {name}={aggregation!r} is no aggregation; use hr.count(), hr.sum('x') or their like"
                )
            if name in self.keys:
                raise PipelineError(f"aggregate: {name!r} is already the name of a key; choose another")
        return Aggregate(self.keys, aggregations)


def count() -> Aggregation:
    """How many rows.

    >>> import headrace as hr
    >>> print(hr.count())
    CountFn()
    """
    return Aggregation(algebra.CountFn())


def sum(column: str) -> Aggregation:
    """The total of a column.

    >>> import headrace as hr
    >>> print(hr.sum("price"))
    SumFn() of price
    """
    return Aggregation(algebra.SumFn(), column)


def mean(column: str) -> Aggregation:
    """The average of a column.

    >>> import headrace as hr
    >>> print(hr.mean("price"))
    MeanFn() of price
    """
    return Aggregation(algebra.MeanFn(), column)


def variance(column: str) -> Aggregation:
    """The sample variance of a column.

    >>> import headrace as hr
    >>> print(hr.variance("price"))
    VarianceFn() of price
    """
    return Aggregation(algebra.VarianceFn(), column)


def min(column: str) -> Aggregation:
    """The smallest value of a column.

    >>> import headrace as hr
    >>> print(hr.min("price"))
    MinFn() of price
    """
    return Aggregation(algebra.MinFn(), column)


def max(column: str) -> Aggregation:
    """The largest value of a column.

    >>> import headrace as hr
    >>> print(hr.max("price"))
    MaxFn() of price
    """
    return Aggregation(algebra.MaxFn(), column)


def first(column: str) -> Aggregation:
    """The value with the earliest event time.

    >>> import headrace as hr
    >>> print(hr.first("page"))
    FirstFn() of page
    """
    return Aggregation(algebra.FirstFn(), column)


def last(column: str) -> Aggregation:
    """The value with the latest event time.

    >>> import headrace as hr
    >>> print(hr.last("page"))
    LastFn() of page
    """
    return Aggregation(algebra.LastFn(), column)


def top(column: str, n: int) -> Aggregation:
    """The n largest values of a column, largest first.

    >>> import headrace as hr
    >>> print(hr.top("score", 3))
    TopFn(3) of score
    """
    return Aggregation(algebra.TopFn(n), column)


def collect(column: str) -> Aggregation:
    """All values of a column in a list.

    >>> import headrace as hr
    >>> print(hr.collect("page"))
    CollectFn() of page
    """
    return Aggregation(algebra.CollectFn(), column)


def quantiles(column: str, n: int) -> Aggregation:
    """n points from minimum to maximum with equal shares of the column between them.

    >>> import headrace as hr
    >>> print(hr.quantiles("latency", 5))
    QuantilesFn(5) of latency
    """
    return Aggregation(sketches.QuantilesFn(n), column)


def approx_distinct(column: str) -> Aggregation:
    """About how many different values a column has.

    >>> import headrace as hr
    >>> print(hr.approx_distinct("user"))
    ApproxDistinctFn() of user
    """
    return Aggregation(sketches.ApproxDistinctFn(), column)


def count_distinct(column: str, *, speed: Aggregation | None = None) -> Aggregation:
    """How many different values a column has, exactly, by remembering all of them.

    In a view, `speed=hr.approx_distinct(column)` lets the speed layer count approximately, in little memory: an answer
    is exact where a batch version has counted all of it, and says where not.

    >>> import headrace as hr
    >>> print(hr.count_distinct("user"))
    CountDistinctFn() of user
    >>> print(hr.count_distinct("user", speed=hr.approx_distinct("user")))
    EitherFn(CountDistinctFn(), ApproxDistinctFn()) of user
    """
    exact = algebra.CountDistinctFn()
    if speed is None:
        return Aggregation(exact, column)
    if not isinstance(speed, Aggregation) or not isinstance(speed.fn, sketches.ApproxDistinctFn):
        raise PipelineError(f"count_distinct: speed is hr.approx_distinct({column!r}), got {speed}")
    if speed.column != column:
        raise PipelineError(f"count_distinct: both are of one column, got {column!r} and speed={speed}")
    return Aggregation(algebra.EitherFn(exact, speed.fn), column)


def heavy_hitters(column: str, k: int) -> Aggregation:
    """The k most frequent values of a column with their approximate counts.

    >>> import headrace as hr
    >>> print(hr.heavy_hitters("page", 10))
    HeavyHittersFn(10) of page
    """
    return Aggregation(sketches.HeavyHittersFn(k), column)
