"""The order of rows by columns, as SQL's ORDER BY writes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.model.errors import PipelineError


@dataclass(frozen=True)
class SortOrder:
    """A column by which rows are in order. As in Spark, NaN is greater than any number.

    >>> sort_orders("price DESC, `date time`")
    (SortOrder('price DESC NULLS LAST'), SortOrder('date time ASC NULLS FIRST'))
    """

    column: str
    descending: bool = False
    nulls_first: bool = True

    def __repr__(self) -> str:
        return f"SortOrder({str(self)!r})"

    def __str__(self) -> str:
        way, nulls = "DESC" if self.descending else "ASC", "FIRST" if self.nulls_first else "LAST"
        return f"{self.column} {way} NULLS {nulls}"


def sort_orders(by: Any) -> tuple[SortOrder, ...]:
    """Parses what ORDER BY would be followed by: text, or several of them. Nulls are the least, unless it says where.

    >>> sort_orders(["price DESC NULLS FIRST"])
    (SortOrder('price DESC NULLS FIRST'),)
    >>> sort_orders("price + 1")
    Traceback (most recent call last):
        ...
    headrace.model.errors.PipelineError: 'price + 1' is no column with ASC or DESC; write for instance \
by=['price DESC', 'at'], and compute columns with Select first
    """
    texts = [by] if isinstance(by, str) else by
    if not isinstance(texts, Sequence) or not texts:
        raise PipelineError(f"by names at least one column, got {by!r}; write for instance by=['price DESC', 'at']")
    orders = tuple(order for text in texts for order in _parsed(text))
    names = [order.column for order in orders]
    if twice := [name for name in names if names.count(name) > 1]:
        raise PipelineError(f"by has the column {twice[0]!r} twice")
    return orders


def _parsed(text: Any) -> list[SortOrder]:
    import sqlglot  # here, since only pipelines with an order need it
    from sqlglot import exp

    wrong = (
        f"{text!r} is no column with ASC or DESC; write for instance by=['price DESC', 'at'], and compute columns with "
        "Select first"
    )
    try:
        query = sqlglot.parse_one(f"SELECT * ORDER BY {text}", dialect="spark") if isinstance(text, str) else None
    except sqlglot.errors.SqlglotError:
        query = None
    if not isinstance(query, exp.Select) or {name for name, part in query.args.items() if part} != {
        "expressions",
        "order",
    }:
        raise PipelineError(wrong)
    orders = []
    for each in query.args["order"].expressions:
        column = each.this if isinstance(each, exp.Ordered) else each
        if not isinstance(column, exp.Column) or len(column.parts) != 1 or column.find(exp.Star):
            raise PipelineError(wrong)
        descending = bool(isinstance(each, exp.Ordered) and each.args.get("desc"))
        nulls_first = bool(each.args.get("nulls_first")) if isinstance(each, exp.Ordered) else True
        orders.append(SortOrder(column.name, descending, nulls_first))
    return orders


def is_sortable(kind: pa.DataType) -> bool:
    """Returns whether values of a type have an order: numbers, text, bytes, booleans, dates and times.

    >>> is_sortable(pa.int32()), is_sortable(pa.list_(pa.int32()))
    (True, False)
    """
    types = pa.types
    numbers = (types.is_integer, types.is_boolean, types.is_floating, types.is_decimal)
    others = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary, types.is_temporal)
    return any(test(kind) for test in (*numbers, *others)) and not types.is_interval(kind)
