"""The output that groups columns within a task by array operations, before they go to the shards of an aggregate.

It sends the rows that pairs of keys and values would become: accumulators by key and window or, where those are not
possible, a row for each element. Elements that are objects, and columns that are not numbers, become such pairs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.engine.aggregation.arrayaccumulators import ArrayAccumulators
from headrace.engine.aggregation.columnsfn import ColumnsFn, ToKeyed
from headrace.engine.aggregation.kernels import kernels_of
from headrace.engine.columns.codes import Codes
from headrace.engine.columns.keycolumns import encode_key_columns
from headrace.engine.columns.numbercells import NUMBER_WIDTH, Numbers, is_numbers, write_records
from headrace.engine.shard.localsessions import SESSION_COLUMNS, local_sessions, no_details
from headrace.engine.shard.placing import COUNT
from headrace.engine.shard.rows import ToPairs, ToPartials, last_instants
from headrace.engine.worker.blame import blame
from headrace.engine.worker.bundles import Bundle
from headrace.engine.worker.columnbundles import RETRACTION, ColumnBundle, with_bounds
from headrace.engine.worker.hidden import END, START, TIME
from headrace.engine.worker.operators import WindowOperator
from headrace.engine.worker.program import Output
from headrace.engine.worker.shuffle import KEY, SPELLING, VALUE
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
    def reads(self) -> set[str]:
        """The names of the columns it needs."""
        return {*self.keyed.keys, *(name for names in self.keyed.columns for name in names), TIME, START, END}

    def add(self, bundle: Bundle) -> Iterator[pa.RecordBatch]:
        with blame(self.label):
            pairs = bundle.with_elements(list(map(self.keyed, bundle.elements)))
        yield from self.pairs.add(pairs)

    def add_columns(self, bundle: ColumnBundle) -> Iterator[pa.RecordBatch]:
        if not self._numeric(bundle.rows):
            yield from self._as_objects(bundle)
        elif isinstance(self.pairs, ToPartials):
            if bundle.window != self.window:
                yield from self._group()
            self.window = bundle.window
            self.buffer.append(bundle.rows.select([name for name in bundle.rows.schema.names if name in self.reads]))
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
        kinds = [rows.column(name).type for names in self.keyed.columns for name in names]
        return kernels_of(self.fn) is not None and all(map(is_numbers, kinds))

    def _as_objects(self, bundle: ColumnBundle) -> Iterator[pa.RecordBatch]:
        keyed = replace(self.keyed, schema=None)  # Rows have names, also where only some columns are there
        for part in replace(bundle, schema=None).parts():
            with blame(self.label):
                pairs = part.with_elements(list(map(keyed, part.elements)))
            yield from self.pairs.add(pairs)

    def _values(self, rows: pa.RecordBatch) -> list[Numbers]:
        ones = Numbers.all(np.ones(rows.num_rows, np.int64))
        columns = [Numbers.of_column(rows.column(*names)) if names else ones for names in self.keyed.columns]
        return [column for column in columns if column is not None]

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
        bundle, self.buffer = ColumnBundle(pa.concat_batches(self.buffer), None, window=self.window), []
        groups = self._combined(bundle)
        if groups is None:
            yield from self._as_objects(bundle)
        elif groups.rows.num_rows:
            rows, names = groups.rows, [*self.schema().names, TIME, COUNT]
            columns = dict(zip(rows.schema.names, rows.columns, strict=True)) | self._keys(rows)
            columns[VALUE] = groups.accumulators.dump(np.arange(rows.num_rows))
            columns[TIME] = last_instants(rows)
            columns[COUNT] = pa.array(groups.counts)
            if isinstance(self.pairs, ToPartials) and self.pairs.sessions:
                names += SESSION_COLUMNS.names
                columns |= groups.details or no_details(rows.num_rows)
            yield pa.record_batch({name: columns[name] for name in names})

    def _combined(self, bundle: ColumnBundle) -> _Groups | None:
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
        rows = bundle.placed().rows
        keys = groups = self._key_codes(rows)
        if START in self.schema().names:
            groups = keys.with_codes(Codes.of_column(rows.column(START))).with_codes(Codes.of_column(rows.column(END)))
        return self._folded(rows, keys, groups)

    def _by_window(self, bundle: ColumnBundle, window: FixedWindows) -> _Groups | None:
        _, start, end = window.assign(bundle.all_times())
        keys = self._key_codes(bundle.rows)
        return self._folded(bundle.rows, keys, keys.with_codes(Codes.of_steps(start, window.size)), (start, end))

    def _by_session(self, bundle: ColumnBundle, window: Sessions) -> _Groups | None:
        times, keys = bundle.all_times(), self._key_codes(bundle.rows)
        sessions = local_sessions(keys.numbers, times, window.gap)
        groups = self._folded(bundle.rows, keys, sessions.codes)
        if groups is None:
            return None
        rows = with_bounds(groups.rows, sessions.start, sessions.end)
        return replace(
            groups, rows=rows, details=sessions.details(times, groups.accumulators.lifted(self._values(bundle.rows)))
        )

    def _key_codes(self, rows: pa.RecordBatch) -> Codes:
        return Codes.of_columns([rows.column(name) for name in self.keyed.keys], rows.num_rows)

    def _folded(
        self, rows: pa.RecordBatch, keys: Codes, groups: Codes, bounds: tuple[Int64Array, Int64Array] | None = None
    ) -> _Groups | None:
        """Combines the rows of each group; without bounds, rows have those of their windows already."""
        accumulators = ArrayAccumulators(self.fn, kernels_of(self.fn) or (), lifted=True)
        accumulators.reserve(groups.count)
        if not accumulators.add_values(groups.numbers, self._values(rows)):
            return None
        firsts = groups.first_rows()
        first = rows.take(pa.array(firsts))
        if bounds is not None:
            first = with_bounds(first, *(bound[firsts] for bound in bounds))
        return _Groups(keys.take(firsts), first, accumulators, np.bincount(groups.numbers, minlength=groups.count))


@dataclass(frozen=True)
class _Groups:
    """Groups of rows: of each its key, a row, an accumulator, the number of elements, and of sessions the elements."""

    keys: Codes
    rows: pa.RecordBatch
    accumulators: ArrayAccumulators
    counts: Int64Array
    details: dict[str, pa.Array] | None = None

    def in_windows(self, sliding: SlidingWindows) -> _Groups | None:
        """Returns the groups by window, if these are by slice; None if a number does not fit."""
        if sliding.size % sliding.period:
            return self._in(sliding.assign(np.asarray(self.rows.column(START))), sliding.period)
        # Sixty slices are joined by twos, twos again, threes and fives: in twelve steps a slice, and not sixty.
        groups: _Groups | None = self
        width = sliding.period
        for factor in _prime_factors(sliding.size // sliding.period):
            if groups is not None:
                groups = groups._joined(width, factor, sliding.period)
            width *= factor
        return groups

    def _joined(self, width: int, several: int, period: int) -> _Groups | None:
        """Returns the groups by intervals that are several of these long, one for each period that one begins in."""
        starts = np.asarray(self.rows.column(START))
        start = (starts[:, np.newaxis] - width * np.arange(several)[::-1]).reshape(-1)
        return self._in(Assigned(np.repeat(np.arange(len(starts)), several), start, start + width * several), period)

    def _in(self, assigned: Assigned, step: int) -> _Groups | None:
        """Returns the groups by other intervals, which begin whole steps apart; None if a number does not fit."""
        index, start, end = assigned
        groups = self.keys.take(index).with_codes(Codes.of_steps(start, step))
        accumulators = self.accumulators.regrouped(index, groups.numbers, groups.count)
        if accumulators is None:
            return None
        counts, firsts = np.zeros(groups.count, np.int64), groups.first_rows()
        np.add.at(counts, groups.numbers, self.counts[index])
        first = index[firsts]
        rows = with_bounds(self.rows.take(pa.array(first)), start[firsts], end[firsts])
        return _Groups(self.keys.take(first), rows, accumulators, counts)


def _prime_factors(number: int) -> list[int]:
    """Returns the prime factors of a number, ascending.

    >>> _prime_factors(60), _prime_factors(1)
    ([2, 2, 3, 5], [])
    """
    factors, factor = [], 2
    while number > 1:
        while number % factor == 0:
            factors.append(factor)
            number //= factor
        factor = factor + 1 if factor * factor <= number else number
    return factors


def columns_grouped(output: Output) -> set[str] | None:
    """Returns the columns that an output reads, if it groups by columns; None if it needs whole elements."""
    rows = getattr(output, "rows", None)
    return rows.reads if isinstance(rows, ToGroups) else None
