"""Partial aggregates: the pipeline of a view with accumulators in place of results.

Counts and sums are their own accumulators. Accumulators of other aggregations are bytes, so that each is one column.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headrace.model.agg import Aggregation
from headrace.model.algebra import CombineFn, CountFn, EitherFn, SumFn
from headrace.model.algebra.partial import PartialFn
from headrace.model.columns import Aggregate
from headrace.model.safebytes import decode
from headrace.model.sinks import WindowedValue
from headrace.views.declare.layout import Layout, Partial


def to_partials(aggregate: Aggregate, *, speed: bool = False) -> Aggregate:
    """Returns an aggregation of the same groups to accumulators: of the batch layer, or those of the speed layer.

    >>> import headrace as hr
    >>> to_partials(hr.GroupBy("url").aggregate(n=hr.count(), people=hr.approx_distinct("user"))).keys
    ('url',)
    """
    return Aggregate(aggregate.keys, {name: _to_partial(one, speed) for name, one in aggregate.aggregations.items()})


def partial_of(layout: Layout, element: WindowedValue) -> Partial:
    """Reads the partial aggregates of one element of such a pipeline."""
    row, keys = element.value, len(layout.keys)
    accumulators = [value if is_number(fn) else decode(value) for fn, value in zip(layout.fns, row[keys:], strict=True)]
    return Partial(tuple(row[:keys]), *element.window, tuple(accumulators))


def _to_partial(aggregation: Aggregation, speed: bool) -> Aggregation:
    fn = aggregation.fn
    if speed and isinstance(fn, EitherFn):
        fn = fn.speed
    return aggregation if is_number(fn) else replace(aggregation, fn=PartialFn(fn))


def is_number(fn: CombineFn[Any, Any, Any]) -> bool:
    """Returns whether the accumulator of an aggregation is a number, and so its own column."""
    return isinstance(fn, CountFn | SumFn)
