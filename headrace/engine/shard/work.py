"""The work of exchanges: it makes the processors of shards, and reads what they emit.

An exchange brings rows of one key together in one shard. `Grouping` is the first kind of work; every kind is a small
picklable object that makes processors, and processors know neither Spark nor a wall clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from headrace.engine.aggregation.accumulators import RowKind
from headrace.engine.columns.keycolumns import decode_key_columns
from headrace.engine.columns.numbercells import read_records
from headrace.engine.shard.clocks import Clocks
from headrace.engine.shard.compiledtriggers import CompiledTrigger
from headrace.engine.shard.identity import Identity, identity_of
from headrace.engine.shard.lateoutput import LateOutputProcessor, late_bundles, split_late
from headrace.engine.shard.processor import ShardProcessor, StepResult
from headrace.engine.worker.bundles import Bundle
from headrace.engine.worker.columnbundles import PANE_COLUMNS, ColumnBundle, split_panes
from headrace.engine.worker.hidden import END, START, TIME
from headrace.engine.worker.shuffle import KEY, SPELLING, VALUE, pair_bundle
from headrace.model.algebra import CombineFn
from headrace.model.columns import Aggregate
from headrace.model.lateoutput import LATE
from headrace.model.panes import Windowing
from headrace.model.schema import row_type


class Processor(Protocol):
    """Processes the rows of a shard: takes rows and clocks, returns a `StepResult`, and has its state as blocks.

    `fractions` are those of the input that its AfterPercentile triggers ask for.
    """

    clocks: Clocks
    fractions: set[float]

    def step(self, rows: pa.RecordBatch | None = None, clocks: Clocks | None = None) -> StepResult: ...

    def dump(self) -> list[bytes]: ...

    def changes(self) -> list[bytes]: ...

    def load(self, blocks: list[bytes]) -> None: ...


@runtime_checkable
class SlicedProcessor(Processor, Protocol):
    """A processor whose state can be written in parts, and that can load deltas on top of the state it has.

    Everything in its state has a hash that stays; all parts, and the deltas since the oldest part, are the state.
    """

    def part(self, low: int, high: int) -> list[bytes]:
        """Encodes the state in a range of hashes; deltas still contain it."""


class Work(Protocol):
    """The work that the shards of an exchange do."""

    @property
    def needs_time(self) -> bool:
        """Whether something happens as processing time passes, also while no data comes."""

    @property
    def retracts(self) -> bool:
        """Whether it emits retractions."""

    def processor(self, shard: int = 0) -> Processor:
        """Makes the processor of a new shard with this number."""

    def bundles(self, emitted: pa.RecordBatch) -> Iterator[tuple[str | None, Bundle | ColumnBundle]]:
        """Reads what a step emitted: bundles with their tags."""

    def identity(self) -> Identity:
        """Returns what must not change while there is state of it; a checkpoint is compared by this."""

    def describe(self) -> str:
        """Describes it for people, in plans and in messages about what has changed."""


@dataclass(frozen=True)
class Grouping:
    """Groups rows of one kind or, with `fn`, combines them, and emits panes; with `late`, also what came too late."""

    windowing: Windowing
    fn: CombineFn[Any, Any, Any] | None = None
    rows: RowKind = RowKind.VALUES
    late: bool = False

    @property
    def needs_time(self) -> bool:
        return CompiledTrigger(self.windowing.trigger).needs_time

    @property
    def retracts(self) -> bool:
        return self.windowing.accumulation == "retracting"

    def processor(self, shard: int = 0) -> ShardProcessor:
        kind = LateOutputProcessor if self.late else ShardProcessor
        return kind(self.windowing, self.fn, self.rows)

    def bundles(self, emitted: pa.RecordBatch) -> Iterator[tuple[str | None, Bundle | ColumnBundle]]:
        if self.late:
            emitted, late = split_late(emitted)
            for bundle in late_bundles(late, global_windows=self.windowing.is_global):
                yield LATE, bundle
        if emitted.num_rows:
            yield from ((None, bundle) for bundle in self._read_panes(emitted))

    def _read_panes(self, panes: pa.RecordBatch) -> Iterator[Bundle | ColumnBundle]:
        return pane_bundles(panes, global_windows=self.windowing.is_global)

    def identity(self) -> Identity:
        windowing = self.windowing
        return {
            "kind": "grouping",
            "window": identity_of(windowing.window),
            "accumulation": windowing.accumulation,
            "timestamps": windowing.timestamp_combiner,
            "trigger_state": CompiledTrigger(windowing.trigger).keeps,
            "combine": identity_of(self.fn),
            "retractable": self.rows is RowKind.SIGNED_VALUES,
        }

    def describe(self) -> str:
        windowing, keeps = self.windowing, CompiledTrigger(self.windowing.trigger).keeps
        parts = [f"{windowing.window!r}, {windowing.accumulation}"]
        if windowing.timestamp_combiner != "end_of_window":
            parts.append(f"timestamps {windowing.timestamp_combiner}")
        parts += [f"state of {', '.join(keeps)}"] if keeps else []
        parts += [f"combined by {self.fn!r}"] if self.fn is not None else []
        parts += ["of input that is taken back"] if self.rows is RowKind.SIGNED_VALUES else []
        return ", ".join(parts)


@dataclass(frozen=True)
class ColumnGrouping(Grouping):
    """Groups rows by columns, and emits rows with the keys and the results of `fn`, by these names."""

    keys: tuple[str, ...] = field(kw_only=True)
    aggregates: tuple[str, ...] = field(kw_only=True)

    def identity(self) -> Identity:
        return {**super().identity(), "kind": "aggregation", "keys": self.keys, "aggregates": self.aggregates}

    def describe(self) -> str:
        return f"{', '.join(self.aggregates)} by {', '.join(self.keys)}, {super().describe()}"

    def _read_panes(self, panes: pa.RecordBatch) -> Iterator[Bundle | ColumnBundle]:
        columns = self._columns(panes)
        if columns is not None:
            yield ColumnBundle(columns, None, panes.select(PANE_COLUMNS))
            return
        row = row_type((*self.keys, *self.aggregates))._make
        for bundle in pane_bundles(panes, global_windows=self.windowing.is_global):
            yield bundle.with_elements([row((*keys, *values)) for keys, values in bundle.elements])

    def _columns(self, panes: pa.RecordBatch) -> pa.RecordBatch | None:
        """Reads panes as columns; returns None if keys or values cannot be arrays."""
        keys = decode_key_columns(panes.column(KEY), panes.column(SPELLING), len(self.keys))
        values = read_records(panes.column(VALUE), len(self.aggregates))
        if keys is None or values is None:
            return None
        columns = dict(zip((*self.keys, *self.aggregates), [*keys, *(each.array() for each in values)], strict=True))
        hidden = (TIME,) if self.windowing.is_global else (TIME, START, END)
        return pa.record_batch(columns | {name: panes.column(name) for name in hidden})


def column_grouping(grouping: Grouping, aggregate: Aggregate) -> ColumnGrouping:
    """Returns the grouping of an aggregate such that it emits the aggregate's rows."""
    return ColumnGrouping(**vars(grouping), keys=aggregate.keys, aggregates=tuple(aggregate.aggregations))


def pane_bundles(panes: pa.RecordBatch, *, global_windows: bool) -> Iterator[Bundle]:
    """Reads panes as bundles of pairs, one for each kind of pane; a retraction comes before what replaces it."""
    for pane, back, rows in split_panes(panes, panes.select(PANE_COLUMNS)):
        yield pair_bundle(rows, pane, global_windows=global_windows, retraction=back)
