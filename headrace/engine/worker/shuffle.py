"""Writes pairs to a shuffle: as rows of key, window and value, or of accumulators combined before they travel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.engine.columns.cells import decode_cells, encode_cells
from headrace.engine.worker.blame import blame
from headrace.engine.worker.bundles import BufferedOutput, Bundle
from headrace.engine.worker.hidden import END, START, TIME
from headrace.engine.worker.operators import check_pairs, parts_of
from headrace.model.algebra import CombineFn, tie_break
from headrace.model.keys import decode_keys, encode_keys
from headrace.model.panes import PaneInfo

KEY, SPELLING, VALUE, ORDER = "key", "spelling", "value", "order"

MAX_ACCUMULATORS: Final = 200_000
"""The number of accumulators in a task from which on it sends them."""


def shuffle_schema(*, keyed: bool = True, windowed: bool, timed: bool, ordered: bool = False) -> pa.Schema:
    """Returns the columns of shuffled rows: only what the other side needs.

    `ordered` rows have one more column to be sorted by, for elements of one key and time: it depends on nothing but the
    value, so that every run sees them in the same order.
    """
    fields = [(KEY, pa.binary()), (SPELLING, pa.binary())] if keyed else []
    fields += [(START, pa.int64()), (END, pa.int64())] if windowed else []
    fields += [(TIME, pa.int64())] if timed else []
    fields += [(ORDER, pa.binary())] if ordered else []
    return pa.schema([*fields, (VALUE, pa.binary())])


@dataclass
class ToRows(BufferedOutput):
    """Writes each pair as a row; without keys, each element as one."""

    label: str
    out: pa.Schema

    def schema(self) -> pa.Schema:
        return self.out

    def batch(self, bundle: Bundle) -> pa.RecordBatch:
        keys: Sequence[Any] | None = None
        values: Sequence[Any] = bundle.elements
        with blame(self.label):
            if KEY in self.out.names:
                keys, values = parts_of(bundle)
            return row_batch(self.out, keys, values, bundle)


def row_batch(
    out: pa.Schema, keys: Sequence[Any] | None, values: Sequence[Any] | pa.BinaryArray, bundle: Bundle
) -> pa.RecordBatch:
    """Makes rows of these keys and values, or cells of values, with times and windows of the bundle."""
    columns: dict[str, pa.Array] = {VALUE: values if isinstance(values, pa.Array) else encode_cells(values)}
    if keys is not None:
        columns[KEY], spelling = encode_keys(keys)
        columns[SPELLING] = pa.nulls(len(keys), pa.binary()) if spelling is None else spelling
    if START in out.names:
        columns[START], columns[END] = pa.array(bundle.starts), pa.array(bundle.ends)
    if TIME in out.names:
        columns[TIME] = pa.array(bundle.all_times())
    if ORDER in out.names:
        columns[ORDER] = pa.array([repr(tie_break(value)).encode() for value in values], pa.binary())
    return pa.record_batch([columns[name] for name in out.names], schema=out)


@dataclass
class ToAccumulators:
    """Combines pairs within the task, by key and window; writes accumulators when there are many, and at the end."""

    label: str
    fn: CombineFn[Any, Any, Any]
    out: pa.Schema
    by_key: dict[Any, Any] = field(default_factory=dict)

    def schema(self) -> pa.Schema:
        return self.out

    def add(self, bundle: Bundle) -> Iterator[pa.RecordBatch]:
        with blame(self.label):
            check_pairs(bundle)
            try:
                self._combine(bundle)
            except (TypeError, ValueError):
                encode_keys(parts_of(bundle)[0])  # refuses what is no pair or no key, if that is the reason
                raise
        if len(self.by_key) >= MAX_ACCUMULATORS:
            yield from self.finish()

    def _combine(self, bundle: Bundle) -> None:
        pairs: Iterable[Any] = bundle.elements
        if self.fn.timed:
            timed = zip(pairs, bundle.all_times().tolist(), strict=True)
            pairs = [(key, (time, value)) for (key, value), time in timed]
        if bundle.starts is not None:
            pairs = (((pair[0], *window), pair[1]) for pair, window in zip(pairs, bundle.windows(), strict=True))
        self.fn.add_by_key(self.by_key, pairs)

    def finish(self) -> Iterator[pa.RecordBatch]:
        if not self.by_key:
            return
        with blame(self.label):
            keys: list[Any] = list(self.by_key)
            starts, ends = None, None
            if START in self.out.names:
                keys, starts, ends = zip(*keys, strict=True)  # type: ignore[assignment]
            values = self.encode(list(self.by_key.values()))
            self.by_key.clear()
            yield row_batch(self.out, keys, values, Bundle([], None, starts, ends))  # type: ignore[arg-type]

    def encode(self, accs: list[Any]) -> list[Any] | pa.BinaryArray:
        """Encodes accumulators for the shuffle."""
        return list(map(self.fn.dump, accs))


@dataclass
class FromRows:
    """Reads the elements of rows without keys."""

    pane: PaneInfo

    def bundles(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Bundle]:
        for batch in batches:
            if batch.num_rows:
                columns = {name: np.asarray(batch.column(name)) for name in batch.schema.names if name != VALUE}
                elements = decode_cells(batch.column(VALUE))
                yield Bundle(elements, columns.get(TIME), columns.get(START), columns.get(END), self.pane)


def pair_bundle(rows: pa.RecordBatch, pane: PaneInfo, *, global_windows: bool, retraction: bool) -> Bundle:
    """Makes a bundle of pairs from rows of keys and values that came out of a grouping."""
    keys = decode_keys(rows.column(KEY), rows.column(SPELLING))
    return Bundle(
        list(zip(keys, decode_cells(rows.column(VALUE)), strict=True)),
        np.asarray(rows.column(TIME)),
        None if global_windows else np.asarray(rows.column(START)),
        None if global_windows else np.asarray(rows.column(END)),
        pane,
        retraction=retraction,
    )
