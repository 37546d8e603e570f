"""Conditions that are joined by AND."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp


def conjuncts(condition: exp.Expr) -> Iterator[exp.Expr]:
    """Yields the conditions that AND joins, without their parentheses.

    >>> from sqlglot import parse_one
    >>> [each.sql() for each in conjuncts(parse_one("a = 1 AND (b = 2 AND (c OR d))"))]
    ['a = 1', 'b = 2', 'c OR d']
    """
    condition = condition.unnest()
    if isinstance(condition, exp.And):
        yield from conjuncts(condition.this)
        yield from conjuncts(condition.expression)
    else:
        yield condition
