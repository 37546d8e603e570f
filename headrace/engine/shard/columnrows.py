"""The output that groups columns within a task by array operations, before they go to the shards of an aggregate.

It sends the rows that pairs of keys and values would become: accumulators by key and window or, where those are not
possible, a row for each element. Numbers and times stay arrays; other values become Python objects, a column at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.engine.aggregation.arrayaccumulators import ArrayAccumulators, encode_accumulators
from headrace.engine.aggregation.columnsfn import ColumnsFn, ToKeyed
from headrace.engine.aggregation.kernels import kernels_of
from headrace.engine.columns.arrays import stable_order
from headrace.engine.columns.cells import encode_cells
from headrace.engine.columns.codes import Codes
from headrace.engine.columns.keycolumns import encode_key_columns
from headrace.engine.columns.numbercells import NUMBER_WIDTH, Numbers, is_numbers, write_records
from headrace.engine.shard.localsessions import SESSION_COLUMNS, local_sessions, no_details
from headrace.engine.shard.placing import COUNT
from headrace.engine.shard.rows import ELEMENT, ToPairs, ToPartials, last_instants
from headrace.engine.shard.taskgroups import Details, TaskGroups
from headrace.engine.worker.blame import blame
from headrace.engine.worker.bundles import Bundle
from headrace.engine.worker.columnbundles import RETRACTION, ColumnBundle, with_bounds
from headrace.engine.worker.hidden import END, START, TIME
from headrace.engine.worker.operators import WindowOperator
from headrace.engine.worker.program import Output
from headrace.engine.worker.shuffle import KEY, SPELLING, VALUE
from headrace.model.schema import column_values
from headrace.model.times import Int64Array
from headrace.model.windows import Assigned, FixedWindows, Sessions, SlidingWindows

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
    window: WindowOperator | None = None  # of the rows buffered, if it is still to be applied

    def schema(self) -> pa.Schema:
        return self.pairs.schema()

    @property
    def reads(self) -> set[str] | None:
        """The names of the columns it needs; None if it needs all."""
        return {*self.keyed.keys, *(name for names in self.keyed.columns for name in names), TIME, START, END}

    def add(self, bundle: Bundle) -> Iterator[pa.RecordBatch]:
        yield from self._add_pairs(bundle, self.keyed)

    def _add_pairs(self, bundle: Bundle, keyed: ToKeyed) -> Iterator[pa.RecordBatch]:
        with blame(self.label):
            pairs = list(map(keyed, bundle.elements))
            if self.whole:
                pairs = [(key, (value, each)) for (key, value), each in zip(pairs, bundle.elements, strict=True)]
        yield from self.pairs.add(bundle.with_elements(pairs))

    @property
    def whole(self) -> bool:
        """Whether rows have the whole elements they are made of."""
        return isinstance(self.pairs, ToPairs) and self.pairs.elements

    def add_columns(self, bundle: ColumnBundle) -> Iterator[pa.RecordBatch]:
        if any(pa.types.is_nested(bundle.rows.column(name).type) for name in self.keyed.keys):
            # Arrow compares no such values. Rows have names, also where only some columns are there.
            schema = bundle.schema if self.whole else None
            for part in replace(bundle, schema=schema).parts():
                yield from self._add_pairs(part, replace(self.keyed, schema=schema))
        elif isinstance(self.pairs, ToPartials):
            rows = bundle.rows
            if (reads := self.reads) is not None:
                rows = rows.select([name for name in rows.schema.names if name in reads])
            if bundle.window != self.window or (self.buffer and rows.schema != self.buffer[0].schema):
                yield from self._group()
            self.window = bundle.window
            self.buffer.append(rows)
            if self._buffered_bytes() >= _BUFFERED_BYTES:
                yield from self._group()
        else:
            yield self._row_by_row(bundle.placed())

    def finish(self) -> Iterator[pa.RecordBatch]:
        yield from self._group()
        yield from self.pairs.finish()

    def _buffered_bytes(self) -> int:
        """Returns about how many bytes are buffered, or would be sent if each row was a group of its own."""
        numbers = sum(len(kernel.ufuncs) for kernel in kernels_of(self.fn) or ())
        as_sent = sum(rows.num_rows for rows in self.buffer) * numbers * NUMBER_WIDTH
        return int(max(as_sent, sum(rows.nbytes for rows in self.buffer)))

    def _numeric(self, rows: pa.RecordBatch) -> bool:
        """Returns whether all that is aggregated is numbers, or times where kernels take them."""
        kernels = kernels_of(self.fn)
        return kernels is not None and all(
            is_numbers(column.type) or (kernel.of_times and Numbers.of_column(column) is not None)
            for kernel, names in zip(kernels, self.keyed.columns, strict=True)
            for column in map(rows.column, names)
        )

    def _objects(self, rows: pa.RecordBatch) -> list[list[Any]]:
        """Returns the values of each aggregation, as Python objects."""
        columns = [[column_values(rows.column(name)) for name in names] for names in self.keyed.columns]
        return [
            [1] * rows.num_rows if not lists else lists[0] if len(lists) == 1 else list(zip(*lists, strict=True))
            for lists in columns
        ]

    def _values(self, rows: pa.RecordBatch) -> list[list[Numbers]]:
        """Returns the values of each aggregation, if all are numbers."""
        ones = Numbers.all(np.ones(rows.num_rows, np.int64))
        columns = [[Numbers.of_column(rows.column(name)) for name in names] for names in self.keyed.columns]
        return [[each for each in numbers if each is not None] or [ones] for numbers in columns]

    def _timed_values(self, rows: pa.RecordBatch, times: Int64Array) -> list[list[Numbers]]:
        """Returns the values of each aggregation, with the times of their elements where it asks for them."""
        values = zip(kernels_of(self.fn) or (), self._values(rows), strict=True)
        return [[*numbers, Numbers.all(times)] if kernel.timed else numbers for kernel, numbers in values]

    def _cells(self, rows: pa.RecordBatch) -> pa.BinaryArray:
        if self._numeric(rows) and all(len(names) <= 1 for names in self.keyed.columns):
            return write_records([column for (column,) in self._values(rows)])
        return encode_cells(list(zip(*self._objects(rows), strict=True)))

    def _keys(self, rows: pa.RecordBatch) -> dict[str, pa.Array]:
        encoded, spelling = encode_key_columns([rows.column(name) for name in self.keyed.keys], rows.num_rows)
        return {KEY: encoded, SPELLING: pa.nulls(rows.num_rows, pa.binary()) if spelling is None else spelling}

    def _row_by_row(self, bundle: ColumnBundle) -> pa.RecordBatch:
        columns = dict(zip(bundle.rows.schema.names, bundle.rows.columns, strict=True)) | self._keys(bundle.rows)
        columns |= {TIME: pa.array(bundle.all_times()), VALUE: self._cells(bundle.rows)}
        names = self.schema().names
        if isinstance(self.pairs, ToPairs) and self.pairs.retractable:
            names, panes = [*names, RETRACTION], bundle.panes
            columns[RETRACTION] = pa.array(np.zeros(bundle.size, np.bool_)) if panes is None else panes[RETRACTION]
        if self.whole:
            names = [*names, ELEMENT]
            columns[ELEMENT] = encode_cells(bundle.elements)
        return pa.record_batch({name: columns[name] for name in names})

    def _group(self) -> Iterator[pa.RecordBatch]:
        """Combines the rows buffered into a row for each key and window."""
        if not self.buffer:
            return
        bundle, self.buffer = ColumnBundle(pa.concat_batches(self.buffer), None, window=self.window), []
        groups = self._combined(bundle) if self._numeric(bundle.rows) else None
        if groups is None:
            sent = self._combined_objects(bundle)
        else:
            cells = groups.accumulators.dump(np.arange(groups.rows.num_rows))
            sent = self._sent(groups.rows, cells, groups.counts, groups.details)
        if sent.num_rows:
            yield sent

    def _sent(
        self, rows: pa.RecordBatch, cells: pa.BinaryArray, counts: Int64Array, details: Details | None = None
    ) -> pa.RecordBatch:
        """Makes rows of accumulators, given a row of each group."""
        columns = dict(zip(rows.schema.names, rows.columns, strict=True)) | self._keys(rows)
        columns |= {VALUE: cells, TIME: last_instants(rows), COUNT: pa.array(counts)}
        names = [*self.schema().names, TIME, COUNT]
        if isinstance(self.pairs, ToPartials) and self.pairs.sessions:
            names += SESSION_COLUMNS.names
            columns |= details or no_details(rows.num_rows)
        return pa.record_batch({name: columns[name] for name in names})

    def _combined(self, bundle: ColumnBundle) -> TaskGroups | None:
        """Combines rows by key and window; None if a number does not fit.

        Rows of a slice of sliding windows have the same windows, so they are combined before they are repeated; rows of
        a session are merged here, and those of several tasks in the shard.
        """
        window = None if bundle.window is None else bundle.window.window
        if isinstance(window, SlidingWindows):
            slices = self._by_window(bundle, window.slices())
            return None if slices is None else slices.in_windows(window)
        if isinstance(window, FixedWindows):
            return self._by_window(bundle, window)
        if isinstance(window, Sessions):
            return self._by_session(bundle, window)
        bundle = bundle.placed()
        keys, groups = self._group_codes(bundle.rows)
        return self._folded(bundle, keys, groups)

    def _combined_objects(self, bundle: ColumnBundle) -> pa.RecordBatch:
        """Combines rows by key and window, whatever their values are: these become Python objects by the column."""
        bundle = bundle.placed()
        rows, (_, groups) = bundle.rows, self._group_codes(bundle.rows)
        order, counts = stable_order(groups.numbers), np.bincount(groups.numbers, minlength=groups.count)
        ordered = rows.take(pa.array(order))
        columns, times = self._objects(ordered), bundle.all_times()[order].tolist() if self.fn.timed else []
        edges = [0, *np.cumsum(counts).tolist()]
        with blame(self.label):
            accs = [
                self.fn.add_columns(self.fn.zero(), times[first:last], [column[first:last] for column in columns])
                for first, last in pairwise(edges)
            ]
            cells = encode_accumulators(self.fn, accs)
        return self._sent(rows.take(pa.array(groups.first_rows())), cells, counts)

    def _group_codes(self, rows: pa.RecordBatch) -> tuple[Codes, Codes]:
        """Returns the codes of rows by key, and by key and window."""
        keys = groups = self._key_codes(rows)
        if START in self.schema().names:
            groups = keys.with_codes(Codes.of_column(rows.column(START))).with_codes(Codes.of_column(rows.column(END)))
        return keys, groups

    def _by_window(self, bundle: ColumnBundle, window: FixedWindows) -> TaskGroups | None:
        times, keys = bundle.all_times(), self._key_codes(bundle.rows)
        windows = Codes.of_steps(times, window.size, window.offset)
        groups = keys if windows.count == 1 else keys.with_codes(windows)
        return self._folded(bundle, keys, groups, lambda firsts: window.assign(times[firsts]))

    def _by_session(self, bundle: ColumnBundle, window: Sessions) -> TaskGroups | None:
        times, keys = bundle.all_times(), self._key_codes(bundle.rows)
        sessions = local_sessions(keys.numbers, times, window.gap)
        groups = self._folded(bundle, keys, sessions.codes)
        if groups is None:
            return None
        rows = with_bounds(groups.rows, sessions.start, sessions.end)
        cells = groups.accumulators.lifted(self._timed_values(bundle.rows, times))
        return replace(groups, rows=rows, details=sessions.details(times, cells))

    def _key_codes(self, rows: pa.RecordBatch) -> Codes:
        return Codes.of_columns([rows.column(name) for name in self.keyed.keys], rows.num_rows)

    def _folded(
        self,
        bundle: ColumnBundle,
        keys: Codes,
        groups: Codes,
        assign: Callable[[Int64Array], Assigned] | None = None,
    ) -> TaskGroups | None:
        """Combines the rows of each group; None if a number does not fit.

        `assign` gives the windows of the rows at some positions; without it, rows have the bounds of theirs already.
        """
        accumulators = ArrayAccumulators(self.fn, kernels_of(self.fn) or (), lifted=True)
        accumulators.reserve(groups.count)
        rows, times = bundle.rows, bundle.all_times() if self.fn.timed else np.zeros(0, np.int64)
        if not accumulators.add_values(groups.numbers, self._timed_values(rows, times)):
            return None
        firsts = groups.first_rows()
        first = rows.take(pa.array(firsts))
        if assign is not None:
            _, start, end = assign(firsts)
            first = with_bounds(first, start, end)
        return TaskGroups(keys.take(firsts), first, accumulators, np.bincount(groups.numbers, minlength=groups.count))


def columns_grouped(output: Output) -> set[str] | None:
    """Returns the columns that an output reads, if it groups by columns; None if it needs whole elements."""
    rows = getattr(output, "rows", None)
    return rows.reads if isinstance(rows, ToGroups) and not rows.whole else None
