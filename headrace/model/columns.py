"""Transforms of collections with columns: Select, Where, GroupBy(...).aggregate(...) and GroupBy(...).top(...).

Expressions are SQL text or Spark Columns; the model only passes them on. The aggregations are in `agg`.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Final, Self

from headrace.model.agg import Aggregation
from headrace.model.algebra.protocol import check_size
from headrace.model.errors import PipelineError
from headrace.model.lateoutput import LateOutput
from headrace.model.pipeline import PCollection, Primitive
from headrace.model.schema import ROWS
from headrace.model.sortorder import SortOrder, sort_orders

EVENT_TIME: Final = "timestamp_micros(__time)"
"""SQL text for an element's event time, for Select and Where."""
WINDOW_START: Final = "timestamp_micros(__start)"
"""SQL text for the start of an element's window."""
WINDOW_END: Final = "timestamp_micros(__end)"
"""SQL text for the end of an element's window."""


class Columnwise(Primitive):
    """A primitive over columns: its input and its output have a schema."""

    output_type: object = ROWS


class Expressions(Columnwise):
    """Computes expressions, on some rows of which they may fail: a division by zero, text that is no number."""

    skips_failures = False

    def skipping_failures(self) -> Self:
        """Returns this transform without the rows on which an expression fails: a stream counts and omits them.

        They are among the bad records of its status, under the label of the transform, with the last one. A batch fails
        as ever, since somebody waits for it.

        >>> import headrace as hr
        >>> hr.Select(mean="total / n").skipping_failures().skips_failures
        True
        """
        skipping = copy.copy(self)
        skipping.skips_failures = True
        return skipping


class Select(Expressions):
    """Selects columns by name, and computes new ones from expressions: SQL text or Spark Columns.

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


class Where(Expressions):
    """Filters rows by a condition: SQL text or a Spark Column.

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


class Aggregate(LateOutput, Columnwise):
    """Computes one row per group and window, with the keys and the aggregates; made by `GroupBy(...).aggregate`."""

    def __init__(self, keys: tuple[str, ...], aggregations: dict[str, Aggregation]) -> None:
        self.keys, self.aggregations = keys, aggregations

    def reads(self) -> tuple[str, ...]:
        """Returns the names of the columns that it reads."""
        return *self.keys, *(name for each in self.aggregations.values() for name in each.columns)

    def default_label(self) -> str:
        return f"GroupBy({', '.join(self.keys)})"


class TopRows(Columnwise):
    """Finds the first rows of each group and window by an order of columns; made by `GroupBy(...).top`."""

    def __init__(self, keys: tuple[str, ...], n: int, by: tuple[SortOrder, ...], rank: str | None) -> None:
        self.keys, self.n, self.by, self.rank = keys, n, by, rank

    def reads(self) -> tuple[str, ...]:
        """Returns the names of the columns that it groups and orders by."""
        return *self.keys, *(order.column for order in self.by)

    def columns(self, names: Sequence[str]) -> list[str]:
        """Returns the names of the result's columns, given those of its input."""
        if self.rank is None:
            return list(names)
        if self.rank.lower() in {name.lower() for name in names}:  # Spark does not tell them apart by case
            raise PipelineError(f"there is a column {self.rank!r} already; choose another name for rank")
        return [*names, self.rank]

    def default_label(self) -> str:
        return f"Top({self.n} of {', '.join(self.keys) or 'all'} by {', '.join(order.column for order in self.by)})"


class GroupBy:
    """Groups rows by columns, to aggregate each group: `GroupBy("user").aggregate(n=hr.count())`.

    Without columns, all rows are one group. `top` finds the first rows of each group.

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
        """Returns the transform that computes these aggregations for each group and window."""
        if not aggregations:
            raise PipelineError("aggregate needs at least one aggregation, e.g. aggregate(n=hr.count())")
        for name, aggregation in aggregations.items():
            if not isinstance(aggregation, Aggregation):
                raise PipelineError(
                    f"aggregate: {name}={aggregation!r} is not an aggregation; use hr.agg.count(), hr.agg.sum('x'), ..."
                )
            if name in self.keys:
                raise PipelineError(f"aggregate: {name!r} is already the name of a key; choose another")
        return Aggregate(self.keys, aggregations)

    def top(self, n: int, by: str | Sequence[str], *, rank: str | None = None) -> TopRows:
        """Returns the transform that finds the first n rows of each group and window, by an order of columns.

        `by` is what SQL writes after ORDER BY, as one text or several: columns with ASC or DESC, and NULLS FIRST or
        LAST; by default nulls are the least, and NaN is the greatest number. Rows that are alike in `by` are in the
        order of all their columns, from left to right, without lists, structs and maps. The result has all columns of
        the rows and, with `rank`, their places from 1, under this name.

        As with aggregations, the time of a row is that of its window's pane. Where panes are retracted, a row is
        retracted when it leaves the first n, or its place with `rank`; what stays is not emitted again.

        >>> import headrace as hr
        >>> bids = [("car", 5, "amy"), ("car", 7, "bob"), ("car", 6, "eve"), ("pen", 1, "bob")]
        >>> with hr.Pipeline() as p:
        ...     rows = p | hr.Create(bids, schema="item string, price long, name string")
        ...     best = rows | hr.GroupBy("item").top(2, by="price DESC", rank="place") | hr.Collect()
        >>> sorted(best, key=lambda row: (row.item, row.place))
        [Row(item='car', price=7, name='bob', place=1), Row(item='car', price=6, name='eve', place=2), \
Row(item='pen', price=1, name='bob', place=1)]
        """
        try:
            check_size(self, n)
            orders = sort_orders(by)
        except (PipelineError, ValueError) as error:
            raise PipelineError(f"top: {error}") from None
        if rank is not None and not (isinstance(rank, str) and rank):
            raise PipelineError(f"top: rank is the name of a column, got {rank!r}; write for instance rank='place'")
        return TopRows(self.keys, n, orders, rank)
