"""Combines values before the shuffle, for aggregations that Catalyst cannot compute.

Rows pass through, and one row of each group carries the accumulators of those that a task has read. So at most a few
accumulators of a group meet in one place, and not all of its values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, StructField, StructType

from headrace.model.agg import Aggregation
from headrace.model.algebra import CombineFn
from headrace.model.safebytes import encode

ACCUMULATORS: Final = "__accumulator"
"""Columns that begin with this hold the accumulators, as bytes; most rows have none."""
GROUPS: Final = 1000
"""Groups whose accumulators a task has at once; then it lets their rows go."""


def precombine(data: DataFrame, groups: Sequence[str], aggregations: Sequence[Aggregation]) -> DataFrame:
    """Adds a column of accumulators for each of these aggregations; the columns `groups` tell groups apart."""
    combining = Combining(
        tuple(groups), tuple(each.fn for each in aggregations), tuple(each.column or "" for each in aggregations)
    )
    added = [StructField(name, BinaryType()) for name in combining.names]
    return data.mapInArrow(combining, StructType([*data.schema.fields, *added]))


@dataclass(frozen=True)
class Combining:
    """Combines the rows of a task: each aggregation has a column, and columns that tell the groups apart.

    >>> from headrace.model.sketches import FrequencyFn
    >>> batch = pa.record_batch({"page": ["a", "b", "a"], "user": ["ann", "bob", "ann"]})
    >>> for rows in Combining(("page",), (FrequencyFn("ann"),), ("user",))(iter([batch])):
    ...     print(rows["page"].to_pylist(), rows["__accumulator0"].to_pylist())
    ['a'] [None]
    ['a', 'b'] [b'j{"m":[["ann",2]]}', b'j{"m":[["bob",1]]}']
    """

    groups: tuple[str, ...]
    fns: tuple[CombineFn[Any, Any, Any], ...]
    columns: tuple[str, ...]
    most: int = GROUPS

    @property
    def names(self) -> list[str]:
        """The names of the columns of accumulators."""
        return [f"{ACCUMULATORS}{number}" for number in range(len(self.fns))]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        waiting = _Waiting()
        for batch in batches:
            first: list[int] = []  # rows of this batch that wait for the accumulators of their groups
            others = np.ones(batch.num_rows, np.bool_)
            for group, row, values in self._grouped(batch):
                if group not in waiting.accumulators:
                    if len(waiting.accumulators) == self.most:
                        yield self._released(waiting, batch, first)
                        waiting, first = _Waiting(), []
                    waiting.accumulators[group] = [fn.zero() for fn in self.fns]
                    first.append(row)
                    others[row] = False
                accs = waiting.accumulators[group]
                for at, (fn, column) in enumerate(zip(self.fns, values, strict=True)):
                    accs[at] = fn.add_all(accs[at], [value for value in column if value is not None])
            waiting.rows.append(_take(batch, first))
            if others.any():
                rows = _take(batch, np.flatnonzero(others))
                yield self._with(rows, [[None] * rows.num_rows] * len(self.fns))
        if waiting.accumulators:
            yield self._released(waiting)

    def _grouped(self, batch: pa.RecordBatch) -> Iterator[tuple[tuple[Any, ...], int, list[list[Any]]]]:
        """Yields the groups of a batch: what tells them apart, the first row, and a list of values of each column."""
        keys = {f"key{number}": _comparable(batch.column(name)) for number, name in enumerate(self.groups)}
        keys["all"] = pa.repeat(0, batch.num_rows)  # also where nothing tells groups apart
        values = {f"value{number}": batch.column(name) for number, name in enumerate(self.columns)}
        rows = pa.table({**keys, **values, "row": np.arange(batch.num_rows)})
        wanted = [("row", "min"), *((name, "list") for name in values)]
        grouped = rows.group_by([*keys], use_threads=False).aggregate(wanted)
        lists = [grouped[f"{name}_list"].to_pylist() for name in values]
        places = list(zip(*(grouped[name].to_pylist() for name in keys), strict=True))
        for number, row in enumerate(grouped["row_min"].to_pylist()):
            yield places[number], row, [each[number] for each in lists]

    def _released(
        self, waiting: _Waiting, batch: pa.RecordBatch | None = None, first: Sequence[int] = ()
    ) -> pa.RecordBatch:
        """Returns the rows that waited, the last of which are in this batch, with their accumulators."""
        rows = waiting.rows if batch is None else [*waiting.rows, _take(batch, first)]
        (whole,) = pa.Table.from_batches(rows).combine_chunks().to_batches()
        groups = waiting.accumulators.values()
        return self._with(whole, [[encode(fn.dump(accs[at])) for accs in groups] for at, fn in enumerate(self.fns)])

    def _with(self, rows: pa.RecordBatch, columns: list[list[bytes | None]]) -> pa.RecordBatch:
        for name, column in zip(self.names, columns, strict=True):
            rows = rows.append_column(name, pa.array(column, pa.binary()))
        return rows


@dataclass
class _Waiting:
    """Groups in the order of their rows, with their accumulators, one for each aggregation."""

    rows: list[pa.RecordBatch] = field(default_factory=list)
    accumulators: dict[tuple[Any, ...], list[Any]] = field(default_factory=dict)


def _take(batch: pa.RecordBatch, rows: Any) -> pa.RecordBatch:
    return batch.take(pa.array(rows, pa.int64()))


def _comparable(column: pa.Array) -> pa.Array:
    """Returns a column that Arrow can group by, which tells apart at least what the column does."""
    return pa.array(map(repr, column.to_pylist()), pa.string()) if pa.types.is_nested(column.type) else column
