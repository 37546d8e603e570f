"""Combines the aggregations of GroupBy(...).aggregate(...) to one CombineFn for a stream, and makes pairs of rows.

In a batch Catalyst does all of this; see `headrace.engine.catalyst.relational`. The results are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.model.algebra import CombineFn
from headrace.model.algebra.partial import PartialFn
from headrace.model.columns import Aggregate
from headrace.model.schema import Schema


@dataclass(frozen=True)
class ColumnsFn(CombineFn[Any, list[Any], tuple[Any, ...]]):
    """Several aggregations, each of its own part of the values. As in SQL, all but first and last ignore nulls.

    >>> from headrace.model.algebra import CountFn, SumFn
    >>> both = ColumnsFn((CountFn(), SumFn()))
    >>> both.finish(both.add_all(both.zero(), [(1, 5), (1, None)]))
    (2, 5)

    Of an aggregation and its partial one, only one has accumulators: `shared` has, for each, whose it finishes.
    """

    fns: tuple[CombineFn[Any, Any, Any], ...]
    shared: tuple[int, ...] = field(default=(), repr=False)  # checkpoints of the first format have the repr

    @property
    def timed(self) -> bool:  # type: ignore[override]
        return any(fn.timed for fn in self.fns)

    def zero(self) -> list[Any]:
        return [fn.zero() for fn in self.fns]

    def add(self, acc: list[Any], value: Any) -> list[Any]:
        return self.add_all(acc, (value,))

    def add_all(self, acc: list[Any], values: Sequence[Any]) -> list[Any]:
        if not values:  # all were taken back
            return acc
        times, rows = zip(*values, strict=True) if self.timed else ((), values)
        return self.add_columns(acc, times, list(zip(*rows, strict=True)))

    def add_columns(self, acc: list[Any], times: Sequence[int], columns: Sequence[Sequence[Any]]) -> list[Any]:
        """Adds values, of which each aggregation has a column; `times` are those of their elements."""
        parts = []
        for at, (fn, part, column) in enumerate(zip(self.fns, acc, columns, strict=True)):
            if self.shared and self.shared[at] != at:
                parts.append(part)
            elif fn.timed:
                parts.append(fn.add_all(part, list(zip(times, column, strict=True))))
            else:
                parts.append(fn.add_all(part, [value for value in column if value is not None]))
        return parts

    def subtract(self, acc: list[Any], value: Any) -> list[Any]:
        return [
            part if column is None else fn.subtract(part, column)
            for fn, part, column in zip(self.fns, acc, value, strict=True)
        ]

    @property
    def invertible(self) -> bool:
        return all(fn.invertible for fn in self.fns)

    def merge(self, a: list[Any], b: list[Any]) -> list[Any]:
        return [fn.merge(left, right) for fn, left, right in zip(self.fns, a, b, strict=True)]

    def finish(self, acc: list[Any]) -> tuple[Any, ...]:
        parts = [acc[at] for at in self.shared] if self.shared else acc
        return tuple(fn.finish(part) for fn, part in zip(self.fns, parts, strict=True))

    def dump(self, acc: list[Any]) -> object:
        return [fn.dump(part) for fn, part in zip(self.fns, acc, strict=True)]

    def load(self, data: Any) -> list[Any]:
        return [fn.load(part) for fn, part in zip(self.fns, data, strict=True)]


def columns_fn(aggregate: Aggregate) -> ColumnsFn:
    """Makes one CombineFn of an aggregate's aggregations."""
    every = list(aggregate.aggregations.values())
    # Equal ones that are not partial have accumulators each, as they always had: a checkpoint is compared by this.
    whole = [replace(each, fn=each.fn.fn) if isinstance(each.fn, PartialFn) else None for each in every]
    shared = tuple(every.index(each) if each in every else at for at, each in enumerate(whole))
    return ColumnsFn(tuple(each.fn for each in every), shared if shared != tuple(range(len(every))) else ())


@dataclass(frozen=True)
class ToKeyed:
    """Makes a pair of an element with columns: its keys, and the columns that are aggregated."""

    schema: Schema | None
    keys: tuple[str, ...]
    columns: tuple[tuple[str, ...], ...]  # those that each aggregation reads: none, one, or two for pairs

    def __call__(self, element: Any) -> tuple[Any, Any]:
        part = self._part
        keys = tuple([part(element, name) for name in self.keys])
        values = [tuple([part(element, name) for name in names]) for names in self.columns]
        return keys, tuple([value if len(value) > 1 else value[0] if value else 1 for value in values])

    @property
    def _part(self) -> Callable[[Any, str], Any]:
        schema = self.schema
        if schema is not None and schema.kind == "value":
            return lambda element, name: element
        if schema is not None and schema.kind == "tuple":
            return lambda element, name: element[schema.names.index(name)]
        return getattr


def to_keyed(aggregate: Aggregate, schema: Schema | None) -> ToKeyed:
    """Makes the function that makes pairs of elements of this schema; without one they are Rows."""
    return ToKeyed(schema, aggregate.keys, tuple(each.columns for each in aggregate.aggregations.values()))
