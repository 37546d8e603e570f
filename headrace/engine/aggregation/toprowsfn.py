"""The aggregation of GroupBy(...).top(...) for a stream: the first rows of a group, each a tuple of its columns.

In a batch Catalyst does this; see `headrace.engine.catalyst.relational`. The results are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from headrace.model.algebra import CombineFn
from headrace.model.schema import Schema
from headrace.model.sortorder import SortOrder, is_sortable

Rows = list[tuple[Any, ...]]


@dataclass(frozen=True)
class TopRowsFn(CombineFn[Any, Rows, Rows]):
    """Finds the first n rows by an order of columns; of rows alike in these, those first by all columns that have one.

    `columns`, with their types, are known when the stream starts. An accumulator is a list with some rows more, until
    it is stored or read.

    >>> columns = pa.schema({"id": pa.string(), "price": pa.int64()})
    >>> fn = TopRowsFn(2, (SortOrder("price", descending=True, nulls_first=False),), columns)
    >>> fn.finish(fn.add_all(fn.zero(), [("a", 3), ("c", 7), ("b", 7), ("d", None)]))
    [('b', 7), ('c', 7)]
    """

    n: int
    by: tuple[SortOrder, ...]
    columns: pa.Schema = field(default=pa.schema([]), compare=False)

    def __repr__(self) -> str:
        return f"TopRowsFn({self.n}, by={', '.join(map(str, self.by))})"

    def bind(self, columns: pa.Schema) -> TopRowsFn:
        """Returns the aggregation of rows with these columns."""
        return replace(self, columns=columns)

    def zero(self) -> Rows:
        return []

    def add(self, acc: Rows, value: Any) -> Rows:
        acc.append(value)
        return self._cut(acc)

    def add_all(self, acc: Rows, values: Sequence[Any]) -> Rows:
        return self._cut([*acc, *values])

    def merge(self, a: Rows, b: Rows) -> Rows:
        return self._cut([*a, *b])

    def finish(self, acc: Rows) -> Rows:
        return self._first(acc)

    def dump(self, acc: Rows) -> object:
        return self._first(acc)

    def load(self, data: Any) -> Rows:
        if any(len(row) != len(self.columns) for row in data[:1]):
            raise ValueError(
                f"rows in the checkpoint have {len(data[0])} columns, and now they would have {len(self.columns)} "
                f"({', '.join(self.columns.names)}); go on with the columns as they were, or begin with an empty "
                "checkpoint"
            )
        return list(data)

    def _cut(self, rows: Rows) -> Rows:
        """Leaves rows out that cannot be among the first, now and then."""
        return rows if len(rows) <= 2 * self.n + 32 else self._first(rows)

    def _first(self, rows: Rows) -> Rows:
        if len(rows) > 1:
            names, kinds = self.columns.names, self.columns.types
            ties = [position for position, kind in enumerate(kinds) if is_sortable(kind)]
            rows = sorted(rows, key=lambda row: [_rank(row[position]) for position in ties])
            for order in reversed(self.by):
                rows.sort(key=_ranker(names.index(order.column), order), reverse=order.descending)
        return rows[: self.n]


def _ranker(position: int, order: SortOrder) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    null = (0,) if order.nulls_first is not order.descending else (2,)
    return lambda row: null if row[position] is None else _rank(row[position])


def _rank(value: Any) -> tuple[Any, ...]:
    """Returns what a value is ordered by: null first, and NaN last."""
    if value is None:
        return (0,)
    return (1, False, value) if value == value else (1, True)


@dataclass(frozen=True)
class ToRowPairs:
    """Makes a pair of an element with columns: its keys, and the tuple of its columns.

    >>> ToRowPairs(None, ("user",), ("user", "n"))(type("Row", (), {"user": "amy", "n": 3}))
    (('amy',), ('amy', 3))
    """

    schema: Schema | None
    keys: tuple[str, ...]
    names: tuple[str, ...] = ()

    def __call__(self, element: Any) -> tuple[Any, Any]:
        schema = self.schema
        if schema is not None and schema.kind == "value":
            row: tuple[Any, ...] = (element,)
        elif schema is not None and schema.kind == "tuple":
            row = tuple(element)
        else:
            row = tuple([getattr(element, name) for name in self.names])
        return tuple([row[self.names.index(key)] for key in self.keys]), row
