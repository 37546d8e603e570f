"""Accumulators as what a pipeline gives: the same view, with what stores keep in place of answers.

Counts and sums are their own accumulators. Of others the accumulator comes as bytes, so that it is one column.
"""

from __future__ import annotations

from typing import Any

from headrace.model.agg import Aggregation
from headrace.model.algebra import CombineFn, CountFn, EitherFn, SumFn
from headrace.model.algebra.partial import PartialFn
from headrace.model.columns import Aggregate
from headrace.model.safebytes import decode
from headrace.model.sinks import WindowedValue
from headrace.views.declare.layout import Layout, Partial


def kept(aggregate: Aggregate, *, speed: bool = False) -> Aggregate:
    """The same groups with their accumulators: those of the batch layer, or of the speed layer where it has others.

    >>> import headrace as hr
    >>> kept(hr.GroupBy("url").aggregate(n=hr.count(), people=hr.approx_distinct("user"))).aggregations["people"].column
    'user'
    """
    return Aggregate(aggregate.keys, {name: _kept(each, speed) for name, each in aggregate.aggregations.items()})


def partial_of(layout: Layout, element: WindowedValue) -> Partial:
    """What an element of such a pipeline says."""
    row, keys = element.value, len(layout.keys)
    accumulators = [value if is_number(fn) else decode(value) for fn, value in zip(layout.fns, row[keys:], strict=True)]
    return Partial(tuple(row[:keys]), *element.window, tuple(accumulators))


def _kept(aggregation: Aggregation, speed: bool) -> Aggregation:
    fn = aggregation.fn
    if speed and isinstance(fn, EitherFn):
        fn = fn.speed
    return aggregation if is_number(fn) else Aggregation(PartialFn(fn), aggregation.column)


def is_number(fn: CombineFn[Any, Any, Any]) -> bool:
    return isinstance(fn, CountFn | SumFn)
