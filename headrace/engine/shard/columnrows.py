"""The output that groups columns within a task by array operations, before they go to the shards of an aggregate.

It sends the rows that pairs of keys and values would become: accumulators by key and window or, where those are not
possible, a row for each element. Elements that are objects, and columns that are not numbers, become such pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.engine.aggregation.arrayaccumulators import ArrayAccumulators
from headrace.engine.aggregation.columnsfn import ColumnsFn, ToKeyed
from headrace.engine.aggregation.kernels import kernels_of
from headrace.engine.columns.keycolumns import encode_key_columns
from headrace.engine.columns.numbercells import Numbers, is_numbers, write_records
from headrace.engine.shard.placing import COUNT
from headrace.engine.shard.rows import ToPairs, ToPartials, last_instants
from headrace.engine.worker.blame import blame
from headrace.engine.worker.bundles import Bundle
from headrace.engine.worker.columnbundles import RETRACTION, ColumnBundle
from headrace.engine.worker.hidden import END, START, TIME
from headrace.engine.worker.program import Output, Readers
from headrace.engine.worker.shuffle import KEY, SPELLING, VALUE
from headrace.model.times import Int64Array

_BUFFERED_BYTES: Final = 1 << 26
"""How much of its input a task buffers before it groups it."""


@dataclass
class ToGroups:
    """Groups columns and sends accumulators or rows; `pairs` does the same for objects, and its kind decides which."""

    label: str
    fn: ColumnsFn
    keyed: ToKeyed
    pairs: ToPartials | ToPairs
    buffer: list[pa.RecordBatch] = field(default_factory=list)

    def schema(self) -> pa.Schema:
        return self.pairs.schema()

    @property
    def reads(self) -> set[str]:
        """The names of the columns it needs."""
        return {*self.keyed.keys, *(name for name in self.keyed.columns if name is not None), TIME, START, END}

    def add(self, bundle: Bundle) -> Iterator[pa.RecordBatch]:
        with blame(self.label):
            pairs = bundle.with_elements(list(map(self.keyed, bundle.elements)))
        yield from self.pairs.add(pairs)

    def add_columns(self, bundle: ColumnBundle) -> Iterator[pa.RecordBatch]:
        if not self._numeric(bundle.rows):
            yield from self._as_objects(bundle)
        elif isinstance(self.pairs, ToPartials):
            self.buffer.append(bundle.rows.select([name for name in bundle.rows.schema.names if name in self.reads]))
            if sum(rows.nbytes for rows in self.buffer) >= _BUFFERED_BYTES:
                yield from self._group()
        else:
            yield self._row_by_row(bundle)

    def finish(self) -> Iterator[pa.RecordBatch]:
        yield from self._group()
        yield from self.pairs.finish()

    def _numeric(self, rows: pa.RecordBatch) -> bool:
        kinds = [rows.column(name).type for name in self.keyed.columns if name is not None]
        return kernels_of(self.fn) is not None and all(map(is_numbers, kinds))

    def _as_objects(self, bundle: ColumnBundle) -> Iterator[pa.RecordBatch]:
        keyed = replace(self.keyed, schema=None)  # Rows have names, also where only some columns are there
        for part in replace(bundle, schema=None).parts():
            with blame(self.label):
                pairs = part.with_elements(list(map(keyed, part.elements)))
            yield from self.pairs.add(pairs)

    def _values(self, rows: pa.RecordBatch) -> list[Numbers]:
        ones = Numbers.all(np.ones(rows.num_rows, np.int64))
        columns = [None if name is None else Numbers.of_column(rows.column(name)) for name in self.keyed.columns]
        return [ones if column is None else column for column in columns]

    def _keys(self, rows: pa.RecordBatch) -> dict[str, pa.Array]:
        encoded, spelling = encode_key_columns([rows.column(name) for name in self.keyed.keys], rows.num_rows)
        return {KEY: encoded, SPELLING: pa.nulls(rows.num_rows, pa.binary()) if spelling is None else spelling}

    def _row_by_row(self, bundle: ColumnBundle) -> pa.RecordBatch:
        columns = dict(zip(bundle.rows.schema.names, bundle.rows.columns, strict=True)) | self._keys(bundle.rows)
        columns |= {TIME: pa.array(bundle.all_times()), VALUE: write_records(self._values(bundle.rows))}
        names = self.schema().names
        if isinstance(self.pairs, ToPairs) and self.pairs.retractable:
            names, panes = [*names, RETRACTION], bundle.panes
            columns[RETRACTION] = pa.array(np.zeros(bundle.size, np.bool_)) if panes is None else panes[RETRACTION]
        return pa.record_batch({name: columns[name] for name in names})

    def _group(self) -> Iterator[pa.RecordBatch]:
        """Combines the rows buffered into a row for each key and window."""
        if not self.buffer:
            return
        rows, self.buffer = pa.concat_batches(self.buffer), []
        windowed = START in self.schema().names
        by = [rows.column(name) for name in (*self.keyed.keys, *((START, END) if windowed else ()))]
        group, firsts = _groups(by, rows.num_rows)
        accumulators = ArrayAccumulators(self.fn, kernels_of(self.fn) or (), lifted=True)
        accumulators.reserve(len(firsts))
        if not accumulators.add_values(group, self._values(rows)):
            yield from self._as_objects(ColumnBundle(rows, None))
            return
        first = rows.take(pa.array(firsts))
        columns = dict(zip(rows.schema.names, first.columns, strict=True)) | self._keys(first)
        columns[VALUE] = accumulators.dump(np.arange(len(firsts)))
        columns[TIME] = last_instants(first)
        columns[COUNT] = pa.array(np.bincount(group, minlength=len(firsts)))
        yield pa.record_batch({name: columns[name] for name in (*self.schema().names, TIME, COUNT)})


def columns_read(readers: Readers, outputs: Sequence[Output]) -> set[str] | None:
    """Returns the columns that are read, if all readers group by columns; None if one needs whole elements."""
    groups = [getattr(outputs[number], "rows", None) for number in readers.outputs]
    if readers.steps or not all(isinstance(output, ToGroups) for output in groups):
        return None
    return {name for output in groups if isinstance(output, ToGroups) for name in output.reads}


def _groups(columns: list[pa.Array], rows: int) -> tuple[Int64Array, Int64Array]:
    """Returns the group of each row, by the values in these columns, and the first row of each group.

    >>> groups, firsts = _groups([pa.array(["a", "b", "a"]), pa.array([1, 1, 1])], 3)
    >>> groups.tolist(), firsts.tolist()
    ([0, 1, 0], [0, 1])
    """
    group, count = np.zeros(rows, np.int64), 1
    for column in columns:
        encoded = column.dictionary_encode(null_encoding="encode")
        if len(encoded.dictionary) == 1:
            continue
        code = np.asarray(encoded.indices).astype(np.int64)
        if count > 1:
            encoded = pa.array(group * len(encoded.dictionary) + code).dictionary_encode()
            code = np.asarray(encoded.indices).astype(np.int64)
        group, count = code, len(encoded.dictionary)
    firsts = np.empty(count, np.int64)
    firsts[group[::-1]] = np.arange(rows)[::-1]
    return group, firsts
