"""Aggregate functions over columns, for `GroupBy(...).aggregate`: `hr.agg.count()`, `hr.agg.sum("price")`.

Each is also in `headrace` itself: `hr.count` is `hr.agg.count`. A batch runs them as Catalyst expressions, a stream as
array kernels; both compute the same.

>>> import headrace as hr
>>> with hr.Pipeline() as p:
...     sales = p | hr.Create([("tea", 3.0), ("tea", 5.0)]) | hr.Select(item="_1", price="_2")
...     stats = sales | hr.GroupBy("item").aggregate(n=hr.agg.count(), mean=hr.agg.mean("price")) | hr.Collect()
>>> list(stats)
[Row(item='tea', n=2, mean=4.0)]
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from headrace.model import algebra, sketches
from headrace.model.algebra import CombineFn
from headrace.model.errors import PipelineError


@dataclass(frozen=True)
class Aggregation:
    """An aggregate function and the column that it reads (None: whole rows), for `GroupBy(...).aggregate`.

    `by` is the column that ranks the values, for `min_by` and `max_by`.

    >>> import headrace as hr
    >>> hr.agg.sum("price").column
    'price'
    """

    fn: CombineFn[Any, Any, Any]
    column: str | None = None
    by: str | None = None  # the column that ranks the values of `column`

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns that it reads."""
        return tuple(name for name in (self.column, self.by) if name is not None)

    def __str__(self) -> str:
        of = "" if self.column is None else f" of {self.column}"
        return f"{self.fn}{of}{'' if self.by is None else f' by {self.by}'}"


def count() -> Aggregation:
    """Counts the rows.

    >>> import headrace as hr
    >>> print(hr.agg.count())
    CountFn()
    """
    return Aggregation(algebra.CountFn())


def sum(column: str) -> Aggregation:
    """Adds up a column.

    >>> import headrace as hr
    >>> print(hr.agg.sum("price"))
    SumFn() of price
    """
    return Aggregation(algebra.SumFn(), column)


def mean(column: str) -> Aggregation:
    """Computes the mean of a column.

    >>> import headrace as hr
    >>> print(hr.agg.mean("price"))
    MeanFn() of price
    """
    return Aggregation(algebra.MeanFn(), column)


def variance(column: str) -> Aggregation:
    """Computes the sample variance of a column.

    >>> import headrace as hr
    >>> print(hr.agg.variance("price"))
    VarianceFn() of price
    """
    return Aggregation(algebra.VarianceFn(), column)


def min(column: str) -> Aggregation:
    """Finds the smallest value of a column.

    >>> import headrace as hr
    >>> print(hr.agg.min("price"))
    MinFn() of price
    """
    return Aggregation(algebra.MinFn(), column)


def max(column: str) -> Aggregation:
    """Finds the largest value of a column.

    >>> import headrace as hr
    >>> print(hr.agg.max("price"))
    MaxFn() of price
    """
    return Aggregation(algebra.MaxFn(), column)


def min_by(column: str, by: str) -> Aggregation:
    """Finds the value of a column in the row where `by` is smallest; of several such rows, the smallest value.

    Rows where `by` is null do not count.

    >>> import headrace as hr
    >>> with hr.Pipeline() as p:
    ...     offers = p | hr.Create([("tea", "Amy", 3), ("tea", "Bob", 2)]) | hr.Select(item="_1", shop="_2", price="_3")
    ...     cheapest = offers | hr.GroupBy("item").aggregate(shop=hr.min_by("shop", "price")) | hr.Collect()
    >>> list(cheapest)
    [Row(item='tea', shop='Bob')]
    """
    return Aggregation(algebra.MinByFn(), column, by)


def max_by(column: str, by: str) -> Aggregation:
    """Finds the value of a column in the row where `by` is largest; of several such rows, the largest value.

    Rows where `by` is null do not count.

    >>> import headrace as hr
    >>> print(hr.agg.max_by("shop", "price"))
    MaxByFn() of shop by price
    """
    return Aggregation(algebra.MaxByFn(), column, by)


def first(column: str) -> Aggregation:
    """Finds the value of the row with the earliest event time.

    >>> import headrace as hr
    >>> print(hr.agg.first("page"))
    FirstFn() of page
    """
    return Aggregation(algebra.FirstFn(), column)


def last(column: str) -> Aggregation:
    """Finds the value of the row with the latest event time.

    >>> import headrace as hr
    >>> print(hr.agg.last("page"))
    LastFn() of page
    """
    return Aggregation(algebra.LastFn(), column)


def top(column: str, n: int) -> Aggregation:
    """Finds the n largest values of a column, the largest first.

    >>> import headrace as hr
    >>> print(hr.agg.top("score", 3))
    TopFn(3) of score
    """
    return Aggregation(algebra.TopFn(n), column)


def collect(column: str) -> Aggregation:
    """Collects all values of a column in a list.

    >>> import headrace as hr
    >>> print(hr.agg.collect("page"))
    CollectFn() of page
    """
    return Aggregation(algebra.CollectFn(), column)


def quantiles(column: str, n: int) -> Aggregation:
    """Estimates n quantiles of a column, from its minimum to its maximum at equal distances of rank.

    >>> import headrace as hr
    >>> print(hr.agg.quantiles("latency", 5))
    QuantilesFn(5) of latency
    """
    return Aggregation(sketches.QuantilesFn(n), column)


def approx_distinct(column: str) -> Aggregation:
    """Estimates how many different values a column has, in little memory.

    >>> import headrace as hr
    >>> print(hr.agg.approx_distinct("user"))
    ApproxDistinctFn() of user
    """
    return Aggregation(sketches.ApproxDistinctFn(), column)


def count_distinct(column: str, *, speed: Aggregation | None = None) -> Aggregation:
    """Counts the different values of a column exactly, by storing all of them.

    In a view, `speed=hr.approx_distinct(column)` makes the speed layer estimate, in little memory. An answer is exact
    if a batch version has counted all its rows, and it says where it is not.

    >>> import headrace as hr
    >>> print(hr.agg.count_distinct("user"))
    CountDistinctFn() of user
    >>> print(hr.agg.count_distinct("user", speed=hr.agg.approx_distinct("user")))
    EitherFn(CountDistinctFn(), ApproxDistinctFn()) of user
    """
    exact = algebra.CountDistinctFn()
    if speed is None:
        return Aggregation(exact, column)
    if not isinstance(speed, Aggregation) or not isinstance(speed.fn, sketches.ApproxDistinctFn):
        raise PipelineError(f"count_distinct: speed must be hr.approx_distinct({column!r}), got {speed}")
    if speed.column != column:
        raise PipelineError(f"count_distinct: both must be of the same column, got {column!r} and speed={speed}")
    return Aggregation(algebra.EitherFn(exact, speed.fn), column)


def heavy_hitters(column: str, k: int) -> Aggregation:
    """Estimates the k most frequent values of a column, with their counts.

    >>> import headrace as hr
    >>> print(hr.agg.heavy_hitters("page", 10))
    HeavyHittersFn(10) of page
    """
    return Aggregation(sketches.HeavyHittersFn(k), column)


def theta(column: str, *, lg_k: int = 12) -> Aggregation:
    """Makes a theta sketch of a column, as bytes: `hr.ThetaSketch` counts different values, also of set operations.

    The estimate is exact up to 2**lg_k different values; beyond, its relative standard error is 1.6 % by default.

    >>> import headrace as hr
    >>> print(hr.agg.theta("user"))
    ThetaFn() of user
    """
    return Aggregation(sketches.ThetaFn(lg_k), column)


def count_min(column: str, *, error: float = 0.001, confidence: float = 0.99) -> Aggregation:
    """Makes a Count-Min sketch of a column, as bytes: `hr.CountMinSketch` tells how often a value occurs.

    Of N rows, a frequency is never too low, and with this confidence not too high by more than `error` * N.

    >>> import headrace as hr
    >>> print(hr.agg.count_min("page"))
    CountMinFn() of page
    """
    return Aggregation(sketches.CountMinFn(error, confidence), column)


def frequency(column: str, of: Any, *, error: float = 0.001, confidence: float = 0.99) -> Aggregation:
    """Estimates how often a column has a value, or each of a list of values, by a Count-Min sketch.

    The error is that of `count_min`.

    >>> import headrace as hr
    >>> with hr.Pipeline() as p:
    ...     visits = p | hr.Create([("a", "ann"), ("a", "bob"), ("a", "bob")]) | hr.Select(page="_1", user="_2")
    ...     often = visits | hr.GroupBy("page").aggregate(n=hr.frequency("user", of=["bob", "eve"])) | hr.Collect()
    >>> list(often)
    [Row(page='a', n=[2, 0])]
    """
    return Aggregation(sketches.FrequencyFn(_several(of), error, confidence), column)


def rank(column: str, of: float | Iterable[float]) -> Aggregation:
    """Estimates the rank of a number in a column, or of each of a list of them: the fraction that does not exceed it.

    It is off by at most 0.0133, with 99 % confidence.

    >>> import headrace as hr
    >>> with hr.Pipeline() as p:
    ...     calls = p | hr.Create([("a", 10), ("a", 20), ("a", 900)]) | hr.Select(page="_1", ms="_2")
    ...     fast = calls | hr.GroupBy("page").aggregate(fast=hr.rank("ms", of=[5, 900])) | hr.Collect()
    >>> list(fast)
    [Row(page='a', fast=[0.0, 1.0])]
    """
    return Aggregation(sketches.RankFn(_several(of)), column)


def histogram(column: str, bins: int | Iterable[float] = 10) -> Aggregation:
    """Estimates a histogram of a column: [low, high, count] of each bin, for a number of bins or a list of bounds.

    A count is off by at most 1.65 % of the rows, with 99 % confidence.

    >>> import headrace as hr
    >>> with hr.Pipeline() as p:
    ...     calls = p | hr.Create([("a", 10), ("a", 20), ("a", 90)]) | hr.Select(page="_1", ms="_2")
    ...     times = calls | hr.GroupBy("page").aggregate(times=hr.histogram("ms", bins=2)) | hr.Collect()
    >>> list(times)
    [Row(page='a', times=[[10.0, 50.0, 2.0], [50.0, 90.0, 1.0]])]
    """
    return Aggregation(sketches.HistogramFn(_several(bins)), column)


def bloom(column: str, *, items: int = 10_000, false_positives: float = 0.01) -> Aggregation:
    """Makes a Bloom filter of a column, as bytes: `hr.BloomFilter` tells whether a value has occurred.

    A value that has occurred is always found; up to so many different `items`, another one is found with a probability
    of `false_positives`.

    >>> import headrace as hr
    >>> print(hr.agg.bloom("user", items=1000))
    BloomFn(items=1000) of user
    """
    return Aggregation(sketches.BloomFn(items, false_positives), column)


def second_moment(column: str) -> Aggregation:
    """Estimates the second moment of a column: the sum of the squares of how often each different value occurs.

    It is exact up to 1,000 different values; beyond, it is off by at most 10 %, with 99 % confidence.

    >>> import headrace as hr
    >>> print(hr.agg.second_moment("page"))
    SecondMomentFn() of page
    """
    return Aggregation(sketches.SecondMomentFn(), column)


def sample(column: str, n: int, *, seed: int = 0) -> Aggregation:
    """Draws a uniform sample of at most n values of a column, without replacement, in no particular order.

    >>> import headrace as hr
    >>> print(hr.agg.sample("page", 3))
    SampleFn(3) of page
    """
    return Aggregation(algebra.SampleFn(n, seed), column)


def _several(values: Any) -> Any:
    """Returns a value as it is, and several as a tuple."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        return values
    return tuple(values)
