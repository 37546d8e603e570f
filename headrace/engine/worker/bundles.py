"""Bundles: Python elements with their times and windows as arrays, and the forms in which they travel between stages.

A bundle is what user functions work through at a time. Between stages it is either columns, where the elements have
a schema, or one packed block per bundle; never one element at a time.
"""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import is_
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.engine.worker.blame import blame
from headrace.engine.worker.hidden import END, START, TIME
from headrace.model.panes import NO_PANE, PaneInfo
from headrace.model.pickling import dumps
from headrace.model.schema import Schema, rows_schema
from headrace.model.times import MIN_TIME
from headrace.model.windows import GLOBAL_WINDOW

if TYPE_CHECKING:
    from headrace.engine.worker.addedcolumns import AddedColumns
    from headrace.engine.worker.columnbundles import ColumnBundle

Int64Array = npt.NDArray[np.int64]

BLOCK_SCHEMA: Final = pa.schema([("block", pa.binary())])
BATCH_SIZE: Final = 20_000
"""About how many elements an Arrow batch between stages has."""
BUNDLE_SIZE: Final = 2_000
"""About how many elements a bundle has: few enough to stay in the processor's cache from one function to the next."""


@dataclass(slots=True)
class Bundle:
    """Elements with times and windows. Without times all have the same; without windows all are in the global one."""

    elements: list[Any]
    times: Int64Array | None = None
    starts: Int64Array | None = None
    ends: Int64Array | None = None
    pane: PaneInfo = NO_PANE
    time: int = MIN_TIME  # of all elements, where times is None
    retraction: bool = False  # whether it takes back elements of an earlier bundle
    kinds: frozenset[type] | None = None  # the types of the elements, once they were asked for
    origins: tuple[ColumnBundle, ...] = ()  # the columns that elements were made of, one for one, if they were

    def types(self) -> frozenset[type]:
        """Returns the types of the elements."""
        if self.kinds is None:
            self.kinds = frozenset(map(type, self.elements))
        return self.kinds

    def with_elements(self, elements: list[Any]) -> Bundle:
        """Returns a bundle of other elements, one for one, with the same times and windows."""
        placed = self.times, self.starts, self.ends, self.pane, self.time, self.retraction
        return Bundle(elements, *placed, origins=self.origins)

    def take(self, index: Int64Array, elements: list[Any]) -> Bundle:
        """Returns a bundle of `elements`, the i-th with time and window of the index[i]-th of this one."""
        return Bundle(
            elements,
            None if self.times is None else self.times[index],
            None if self.starts is None else self.starts[index],
            None if self.ends is None else self.ends[index],
            self.pane,
            self.time,
            self.retraction,
        )

    def same_pane(self, other: Bundle) -> bool:
        """Returns whether the two may be joined."""
        return self.retraction == other.retraction and (self.pane is other.pane or self.pane == other.pane)

    @property
    def size(self) -> int:
        """The number of elements."""
        return len(self.elements)

    @property
    def bare(self) -> bool:
        """Whether elements may be added and dropped without regard to time and window."""
        return self.times is None and self.starts is None

    @staticmethod
    def joined(bundles: list[Bundle]) -> Bundle:
        """Joins several bundles of one collection."""
        if len(bundles) == 1:
            return bundles[0]
        first = bundles[0]
        elements = [element for bundle in bundles for element in bundle.elements]
        joined = Bundle(elements, pane=first.pane, time=first.time, retraction=first.retraction)
        if any(bundle.times is not None or bundle.time != first.time for bundle in bundles):
            joined.times = np.concatenate([bundle.all_times() for bundle in bundles])
        if first.starts is not None:
            joined.starts = np.concatenate([bundle.starts for bundle in bundles if bundle.starts is not None])
            joined.ends = np.concatenate([bundle.ends for bundle in bundles if bundle.ends is not None])
        if all(bundle.origins for bundle in bundles):
            joined.origins = tuple(origin for bundle in bundles for origin in bundle.origins)
        return joined

    def all_times(self) -> Int64Array:
        """Returns the time of each element."""
        return np.full(len(self.elements), self.time, np.int64) if self.times is None else self.times

    def windows(self) -> list[tuple[int, int]]:
        """Returns the bounds of each element's window."""
        if self.starts is None or self.ends is None:
            return [(GLOBAL_WINDOW.start, GLOBAL_WINDOW.end)] * len(self.elements)
        return list(zip(self.starts.tolist(), self.ends.tolist(), strict=True))


def to_block(bundle: Bundle) -> bytes:
    """Packs a bundle into bytes. Only what this engine packed is ever unpacked again."""
    placed = (bundle.times, bundle.starts, bundle.ends, bundle.pane, bundle.time, bundle.retraction)
    return dumps((bundle.elements, *placed))


def from_block(block: bytes) -> Bundle:
    """Unpacks a bundle."""
    return Bundle(*pickle.loads(block))


@dataclass(frozen=True)
class FromBlocks:
    """Reads packed blocks."""

    def bundles(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Bundle]:
        for batch in batches:
            for block in batch.column(0):
                yield from_block(block.as_py())


@dataclass(frozen=True)
class FromColumns:
    """Reads columns. Without a schema the elements are Rows of whatever columns there are."""

    schema: Schema | None
    pane: PaneInfo

    def bundles(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Bundle]:
        for batch in batches:
            for at in range(0, batch.num_rows, BUNDLE_SIZE):
                yield self.bundle(batch.slice(at, BUNDLE_SIZE))

    def bundle(self, batch: pa.RecordBatch) -> Bundle:
        names = [name for name in batch.schema.names if name not in (TIME, START, END)]
        schema = self.schema or rows_schema(pa.schema([batch.schema.field(name) for name in names]))
        elements = schema.to_elements([batch.column(name) for name in names])
        time = batch.column(TIME)
        times = None if time.null_count == len(time) else np.asarray(time.fill_null(MIN_TIME))
        if START not in batch.schema.names:
            return Bundle(elements, times, pane=self.pane)
        return Bundle(elements, times, np.asarray(batch.column(START)), np.asarray(batch.column(END)), self.pane)


class BufferedOutput:
    """An output that buffers bundles until they make a batch worth sending."""

    _buffer: list[Bundle] | None = None
    _count = 0

    def batch(self, bundle: Bundle) -> pa.RecordBatch:
        raise NotImplementedError

    def add(self, bundle: Bundle) -> Iterator[pa.RecordBatch]:
        if self._buffer and not self._buffer[-1].same_pane(bundle):
            yield from self.finish()
        self._buffer = [*(self._buffer or ()), bundle]
        self._count += len(bundle.elements)
        if self._count >= BATCH_SIZE:
            yield from self.finish()

    def finish(self) -> Iterator[pa.RecordBatch]:
        if self._buffer:
            buffer, self._buffer, self._count = self._buffer, None, 0
            yield self.batch(Bundle.joined(buffer))


@dataclass
class ToBlocks(BufferedOutput):
    """Writes packed blocks."""

    def schema(self) -> pa.Schema:
        return BLOCK_SCHEMA

    def batch(self, bundle: Bundle) -> pa.RecordBatch:
        return pa.record_batch([pa.array([to_block(bundle)], pa.binary())], schema=BLOCK_SCHEMA)


@dataclass
class ToColumns(BufferedOutput):
    """Writes columns by the elements' schema."""

    label: str
    element_schema: Schema | None  # None in a plan, where only Spark knows the columns
    windowed: bool
    added: AddedColumns | None = None

    def schema(self) -> pa.Schema:
        assert self.element_schema is not None
        names = [*self.element_schema.names, TIME] + ([START, END] if self.windowed else [])
        types = [*self.element_schema.types, pa.int64()] + ([pa.int64()] * 2 if self.windowed else [])
        added = self._added()
        return pa.schema([*zip(names, types, strict=True), *(added.fields() if added else ())])

    def _added(self) -> AddedColumns | None:
        assert self.element_schema is not None
        return self.added.besides(self.element_schema.names) if self.added else None

    def add_columns(self, bundle: ColumnBundle) -> Iterator[pa.RecordBatch]:
        """Writes columns as they are."""
        bundle, schema, added = bundle.placed(), self.schema(), self._added()
        own = list(schema)[: len(schema) - len(added.names)] if added else schema
        with blame(self.label):
            columns = [bundle.rows.column(field.name).cast(field.type) for field in own]
        yield pa.record_batch([*columns, *(added.of_columns(bundle) if added else ())], schema=schema)

    def batch(self, bundle: Bundle) -> pa.RecordBatch:
        with blame(self.label):
            columns = self._columns(bundle)
        untimed = bundle.times is None and bundle.time == MIN_TIME
        columns.append(pa.nulls(len(bundle.elements), pa.int64()) if untimed else pa.array(bundle.all_times()))
        if self.windowed:
            columns += [pa.array(bundle.starts), pa.array(bundle.ends)]
        if (added := self._added()) is not None:
            columns += added.of_elements(bundle)
        return pa.record_batch(columns, schema=self.schema())

    def _columns(self, bundle: Bundle) -> list[pa.Array]:
        assert self.element_schema is not None
        try:
            parts = zip(self.element_schema.parts(bundle.elements), self.element_schema.types, strict=True)
            return [_unchanged(bundle.origins, values, kind) or pa.array(values, kind) for values, kind in parts]
        except (pa.ArrowException, ValueError, TypeError, OverflowError, AttributeError) as error:
            declared = ", ".join(map(str, self.element_schema.types))
            raise TypeError(
                f"elements are declared as ({declared}), but not all of them are: {error}; "
                "correct the return type of the function or its with_output_types"
            ) from None


def _unchanged(origins: Sequence[ColumnBundle], values: Sequence[Any], kind: pa.DataType) -> pa.Array | None:
    """Returns the column that these values were decoded from, one for one; None if they were not from one column."""
    if not values or pa.types.is_nested(kind):  # lists may be others by now
        return None
    for name, known in origins[0].decoded.items() if origins else ():
        if known and values[0] is known[0] and all(name in origin.decoded for origin in origins):
            columns = [origin.rows.column(name) for origin in origins]
            decoded = itertools.chain.from_iterable(origin.decoded[name] for origin in origins)
            alike = all(column.type == kind for column in columns) and sum(map(len, columns)) == len(values)
            if alike and all(map(is_, values, decoded)):
                return pa.concat_arrays(columns)
    return None
