"""The parts of a view that `combine(column)` needs: how several rows become one, from columns and accumulators.

Counts, sums, minima and maxima are combined from themselves. A mean needs the number of its values, a variance also
their mean, max_by the greatest rank; all others need their accumulators. These are columns of the view's table that
nobody sees (`hidden`), so that they change with the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import sqlglot
from sqlglot import exp

from headrace.dialects.sql.aggregates import AggregateCall, aggregate_call, is_aggregate
from headrace.dialects.sql.grammar import ContinuousSql
from headrace.dialects.sql.relations import column_named
from headrace.model import agg, algebra
from headrace.model.agg import Aggregation
from headrace.model.algebra import CombineFn
from headrace.model.algebra.partial import PartialFn
from headrace.model.safebytes import decode

MERGED: Final = "merged"
"""The function in a combination that stands for accumulators which are merged in Python."""
HIDDEN: Final = "_hidden"
"""How the names of hidden columns begin."""

_NATIVE: Final[dict[type[CombineFn[Any, Any, Any]], str]] = {
    algebra.CountFn: "sum",
    algebra.SumFn: "sum",
    algebra.SumOrNoneFn: "sum",
    algebra.MinFn: "min",
    algebra.MaxFn: "max",
}
_RANKED: Final[dict[type[CombineFn[Any, Any, Any]], tuple[str, Callable[[str], Aggregation]]]] = {
    algebra.MaxByFn: ("max", agg.max),
    algebra.MinByFn: ("min", agg.min),
}
_NOT_COMBINED: Final = (algebra.CollectFn,)  # which would be stored twice
_OPERATORS: Final = (exp.Paren, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Neg, exp.Literal)
_FUNCTIONS: Final = ("sqrt", "round", "coalesce", "to_json")


@dataclass
class Combinations:
    """The combinations of a grouping's columns, and what they need: hidden columns, by name as expressions.

    `aggregate` adds an aggregation, of a call whose inputs are resolved, and returns the column of its result.
    """

    aggregate: Callable[[AggregateCall, Aggregation | None], exp.Expr]
    texts: dict[str, str] = field(default_factory=dict)
    hidden: dict[str, exp.Expr] = field(default_factory=dict)

    def add(self, name: str, projection: exp.Expr, text: str) -> None:
        """Adds the combination of a column that aggregates; if it has none, `combine` refuses the column."""
        nodes = [each for each in projection.walk(prune=is_aggregate) if is_aggregate(each)]
        others = [each for each in projection.walk(prune=is_aggregate) if not is_aggregate(each)]
        calls = [(node, aggregate_call(node, text)) for node in nodes]
        if not nodes or not all(map(_is_arithmetic, others)):
            return
        if any(type(_fn_of(call)) in _NOT_COMBINED for _, call in calls):
            return
        combined = exp.Paren(this=projection.copy())
        copies = [each for each in combined.walk(prune=is_aggregate) if is_aggregate(each)]
        for copied, (node, call) in zip(copies, calls, strict=True):
            copied.replace(self._combined(node, call, name if node is projection else None))
        self.texts[name] = combined.this.sql("duckdb")

    def _combined(self, node: exp.Expr, call: AggregateCall, shown: str | None) -> exp.Expr:
        """Returns the combination of one aggregate, which may be shown as a column."""
        fn = _fn_of(call)
        plain = call.result(column_named("x")) == column_named("x")
        if type(fn) in _NATIVE:
            column = column_named(shown) if shown is not None and plain else self._hide(self.aggregate(call, None))
            return call.result(_call(_NATIVE[type(fn)], column))
        if isinstance(fn, algebra.MeanOrNoneFn):
            mean = column_named(shown) if shown is not None else self._hide(self.aggregate(call, None))
            number = self._hide(self.aggregate(_number_of(call), None))
            total = _call("sum", exp.Mul(this=mean, expression=number))
            return exp.Paren(this=exp.Div(this=total, expression=_call("nullif", _call("sum", number.copy()), _ZERO)))
        if type(fn) in _RANKED:
            value = column_named(shown) if shown is not None else self._hide(self.aggregate(call, None))
            best, rank = _RANKED[type(fn)]
            return _best(best, value, self._hide(self.aggregate(AggregateCall(rank, call.inputs[1:]), None)))
        if isinstance(fn, algebra.VarianceOrNoneFn):
            mean_of = aggregate_call(_call("avg", *call.inputs), "")
            parts = [self._hide(self.aggregate(each, None)) for each in (_number_of(call), mean_of, call)]
            hidden: exp.Expr = _call("list_value", *parts)
        else:
            made = call.make(*(f"x{number}" for number in range(len(call.inputs))))
            hidden = self._hide(self.aggregate(call, Aggregation(PartialFn(fn), made.column, made.by)))
        return call.result(_call(MERGED, hidden, exp.Literal.string(_signature(node))))

    def _hide(self, column: exp.Expr) -> exp.Expr:
        name = next((known for known, each in self.hidden.items() if each == column), f"{HIDDEN}{len(self.hidden)}")
        self.hidden[name] = column
        return column_named(name)


_ZERO: Final = exp.Literal.number(0)


def merging_fn(signature: str) -> CombineFn[Any, Any, Any]:
    """Returns the aggregation that merges accumulators, by what `merged` has of it.

    >>> merging_fn("approx_top_k(x, 10)")
    HeavyHittersFn(10)
    """
    node = sqlglot.parse_one(signature, dialect=ContinuousSql)
    return _fn_of(aggregate_call(node, signature))


def accumulator_of(fn: CombineFn[Any, Any, Any], stored: Any) -> Any:
    """Returns an accumulator as it was, from its bytes or, of a variance, from count, mean and variance.

    >>> accumulator_of(algebra.VarianceOrNoneFn(), [3.0, 2.0, 1.0])
    (3, 2.0, 2.0)
    """
    if isinstance(stored, bytes):
        return fn.load(decode(stored))
    number, mean, variance = stored
    return (int(number), mean, (variance or 0.0) * (number - 1)) if number else fn.zero()


def _best(function: str, value: exp.Expr, rank: exp.Expr) -> exp.Expr:
    """Returns the value where a rank is best; of several, the best value."""
    absent = exp.Is(this=value.copy(), expression=exp.Null())
    ranked = _call("row", rank, exp.Not(this=absent), value)
    present = exp.Where(this=exp.Not(this=exp.Is(this=rank.copy(), expression=exp.Null())))
    return _call("struct_extract", exp.Filter(this=_call(function, ranked), expression=present), exp.Literal.number(3))


def _fn_of(call: AggregateCall) -> CombineFn[Any, Any, Any]:
    return call.make(*(f"x{number}" for number in range(len(call.inputs)))).fn


def _signature(node: exp.Expr) -> str:
    """Returns a call of an aggregate function with no more than what its accumulators depend on."""
    call = node.this.copy() if isinstance(node, exp.Filter) else node.copy()
    arguments = call.expressions
    if arguments and isinstance(arguments[0], exp.Distinct):
        arguments[0].set("expressions", [exp.column("x") for _ in arguments[0].expressions])
    else:
        call.set("expressions", [each if isinstance(each, exp.Literal) else exp.column("x") for each in arguments])
    return str(call.sql(dialect=ContinuousSql, normalize_functions=False))


def _number_of(call: AggregateCall) -> AggregateCall:
    """Returns the call that counts the values of another one."""
    (value,) = call.inputs
    present = exp.Not(this=exp.Is(this=value.copy(), expression=exp.Null()))
    return aggregate_call(exp.Anonymous(this="count_if", expressions=[present]), "")


def _is_arithmetic(node: exp.Expr) -> bool:
    named = isinstance(node, exp.Anonymous) and node.name.lower() in _FUNCTIONS
    return named or isinstance(node, _OPERATORS)


def _call(name: str, *arguments: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this=name, expressions=list(arguments))
