"""Aggregate functions of SQL as aggregations of columns.

Each becomes an aggregation, the expressions of the columns that it reads, and what is to be computed from its result:
`stddev(x)` is the root of a variance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from sqlglot import exp

from headrace.dialects.sql.literals import literal_value
from headrace.dialects.sql.sqlerrors import error_at
from headrace.model import agg
from headrace.model.agg import Aggregation
from headrace.model.algebra import MeanOrNoneFn, SumOrNoneFn, VarianceOrNoneFn
from headrace.model.errors import PipelineError

Result = Callable[[exp.Expr], exp.Expr]


@dataclass(frozen=True)
class AggregateCall:
    """A call of an aggregate function: `make` takes the names of the columns that the `inputs` are computed in.

    `result` gives the value of the call from the column with the aggregate.
    """

    make: Callable[..., Aggregation]
    inputs: tuple[exp.Expr, ...]
    result: Result = lambda column: column


def _variance(column: str) -> Aggregation:
    return Aggregation(VarianceOrNoneFn(), column)


_ONE_COLUMN: Final[dict[str, Callable[[str], Aggregation]]] = {
    "sum": lambda column: Aggregation(SumOrNoneFn(), column),
    "min": agg.min,
    "max": agg.max,
    "avg": lambda column: Aggregation(MeanOrNoneFn(), column),
    "mean": lambda column: Aggregation(MeanOrNoneFn(), column),
    "variance": _variance,
    "var_samp": _variance,
    "any_value": agg.min,
    "collect_list": agg.collect,
    "array_agg": agg.collect,
    "first": agg.first,
    "first_value": agg.first,
    "last": agg.last,
    "last_value": agg.last,
    "approx_count_distinct": agg.approx_distinct,
    "theta": agg.theta,
    "count_min": agg.count_min,
    "second_moment": agg.second_moment,
}
_TWO_COLUMNS: Final = {"max_by": agg.max_by, "min_by": agg.min_by}
_WITH_CONSTANT: Final[dict[str, Callable[[str, Any], Aggregation]]] = {
    "approx_top_k": agg.heavy_hitters,
    "frequency": agg.frequency,
    "approx_rank": agg.rank,
    "histogram": agg.histogram,
    "quantiles": agg.quantiles,
    "sample": agg.sample,
    "bloom": lambda column, items: agg.bloom(column, items=items),
}
_ROOTS: Final = ("stddev", "stddev_samp", "std")
_TRUTHS: Final = {
    **dict.fromkeys(("bool_and", "every"), agg.min),
    **dict.fromkeys(("bool_or", "some", "any"), agg.max),
}

NAMES: Final = frozenset({"count", "count_if", *_ONE_COLUMN, *_TWO_COLUMNS, *_WITH_CONSTANT, *_ROOTS, *_TRUTHS})
"""The names of all aggregate functions."""


def is_aggregate(node: exp.Expr) -> bool:
    """Returns whether a part of an expression is a call of an aggregate function, with its FILTER if it has one."""
    if isinstance(node, exp.Filter):
        return is_aggregate(node.this)
    return isinstance(node, exp.Anonymous) and node.name.lower() in NAMES


def aggregate_call(node: exp.Expr, text: str) -> AggregateCall:
    """Returns what a call of an aggregate function is computed from."""
    condition = None
    if isinstance(node, exp.Filter):
        condition, node = node.expression.this, node.this
    name, arguments = node.name.lower(), list(node.expressions)
    distinct = bool(arguments) and isinstance(arguments[0], exp.Distinct)
    if distinct:
        arguments = list(arguments[0].expressions)
    if distinct and name not in ("count", "min", "max"):
        raise error_at(node, text, f"{name}(DISTINCT ...) is not supported; count(DISTINCT ...), min and max are")
    if name == "count":
        return _count(node, arguments, condition, text, distinct=distinct)
    if name == "count_if":
        _check_number(node, arguments, 1, text)
        return _counted(_both(arguments[0], condition))
    if name in _WITH_CONSTANT:
        _check_number(node, arguments, 2, text)
        return _with_constant(_WITH_CONSTANT[name], arguments, condition, text)
    if name in _TWO_COLUMNS:
        _check_number(node, arguments, 2, text)
        value, by = arguments
        return AggregateCall(_TWO_COLUMNS[name], (value, _only(by, condition)))
    _check_number(node, arguments, 1, text)
    only = _only(arguments[0], condition)
    if name in _ROOTS:
        return AggregateCall(_variance, (only,), lambda column: exp.Anonymous(this="sqrt", expressions=[column]))
    if name in _TRUTHS:
        return AggregateCall(
            _TRUTHS[name], (_cast(only, "INT"),), lambda column: exp.EQ(this=column, expression=exp.Literal.number(1))
        )
    return AggregateCall(_ONE_COLUMN[name], (only,))


def _count(
    node: exp.Expr, arguments: list[exp.Expr], condition: exp.Expr | None, text: str, *, distinct: bool
) -> AggregateCall:
    if distinct:
        _check_number(node, arguments, 1, text)
        return AggregateCall(agg.count_distinct, (_only(arguments[0], condition),))
    if not arguments or (len(arguments) == 1 and isinstance(arguments[0], exp.Star)):
        return AggregateCall(agg.count, ()) if condition is None else _counted(condition)
    present: exp.Expr | None = None
    for argument in arguments:
        if not isinstance(argument, exp.Literal):
            present = _both(exp.Not(this=exp.Is(this=argument, expression=exp.Null())), present)
    counted = present if condition is None else _both(condition, present)
    return AggregateCall(agg.count, ()) if counted is None else _counted(counted)


def _counted(condition: exp.Expr) -> AggregateCall:
    """Returns the call that counts the rows for which a condition holds."""
    one, zero = exp.Literal.number(1), exp.Literal.number(0)
    return AggregateCall(agg.sum, (_cast(exp.If(this=condition, true=one, false=zero), "BIGINT"),))


def _with_constant(
    make: Callable[[str, Any], Aggregation], arguments: list[exp.Expr], condition: exp.Expr | None, text: str
) -> AggregateCall:
    value, second = arguments
    constant = literal_value(second, text)

    def made(column: str) -> Aggregation:
        try:
            return make(column, constant)
        except (TypeError, ValueError, PipelineError) as error:
            raise error_at(second, text, str(error)) from None

    return AggregateCall(made, (_only(value, condition),))


def _only(value: exp.Expr, condition: exp.Expr | None) -> exp.Expr:
    """Returns a value where a condition holds, and null elsewhere."""
    if condition is None:
        return value
    return exp.If(this=condition.copy(), true=value, false=exp.Null())


def _both(condition: exp.Expr, other: exp.Expr | None) -> exp.Expr:
    return condition if other is None else exp.and_(condition, other)


def _cast(value: exp.Expr, kind: str) -> exp.Expr:
    return exp.Cast(this=value, to=exp.DataType.build(kind, dialect="spark"))


def _check_number(node: exp.Expr, arguments: list[Any], number: int, text: str) -> None:
    if len(arguments) != number:
        raise error_at(node, text, f"{node.name} takes {number} argument{'s'[: number > 1]}, got {len(arguments)}")
