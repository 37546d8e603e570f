"""The work of joins of two streams by columns, and the outputs that send rows of either side to their shards."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

import pyarrow as pa

from headrace.engine.columns.joinkeys import encode_join_keys, is_joinable
from headrace.engine.shard.asofprocessor import AsOfProcessor
from headrace.engine.shard.identity import Identity, identity_of
from headrace.engine.shard.joinprocessor import LEFT, RIGHT, JoinProcessor, JoinSide, JoinSpec, arrivals
from headrace.engine.shard.reports import ClockReport
from headrace.engine.shard.senders import ToShards
from headrace.engine.shard.slots import shards_of
from headrace.engine.worker.bundles import Bundle, ToColumns
from headrace.engine.worker.columnbundles import ColumnBundle
from headrace.engine.worker.hidden import END, START, TIME
from headrace.model.columnjoins import How, Join
from headrace.model.errors import PipelineError
from headrace.model.panes import Windowing
from headrace.model.times import MIN_TIME, Int64Array, format_duration

_HIDDEN: Final = (TIME, START, END)
_KEY: Final = "__key"
"""The column of encoded keys, until rows are dealt out to shards; rows may have a column `key` of their own."""


@dataclass
class JoinRows:
    """Lays rows of one side out as columns, with their keys; those that can neither match nor stay are left out."""

    columns: ToColumns
    keys: tuple[str, ...]
    keeps: bool

    def schema(self) -> pa.Schema:
        return self.columns.schema().append(pa.field(_KEY, pa.binary()))

    def add(self, bundle: Bundle) -> Iterator[pa.RecordBatch]:
        return map(self._keyed, self.columns.add(bundle))

    def add_columns(self, bundle: ColumnBundle) -> Iterator[pa.RecordBatch]:
        """Sends columns as they are."""
        return map(self._keyed, self.columns.add_columns(bundle))

    def finish(self) -> Iterator[pa.RecordBatch]:
        return map(self._keyed, self.columns.finish())

    def _keyed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        at = rows.schema.get_field_index(TIME)
        if rows.column(at).null_count:
            rows = rows.set_column(at, rows.schema.field(at), rows.column(at).fill_null(MIN_TIME))
        keys = encode_join_keys([rows.column(name) for name in self.keys])
        rows = rows.append_column(_KEY, keys)
        return rows.filter(keys.is_valid()) if keys.null_count and not self.keeps else rows


@dataclass
class ToJoin(ToShards):
    """Sends the rows of one side to the shards of a join, the exchange with this number."""

    rows: JoinRows
    join: int = field(kw_only=True)
    side: int = field(kw_only=True)

    def _shards(self, rows: pa.RecordBatch) -> Int64Array:
        return shards_of(rows.column(_KEY), len(self.dests), by_slot=self.by_slot)

    def _body(self, rows: pa.RecordBatch | None, report: ClockReport = ClockReport()) -> bytes:
        return super()._body(None if rows is None else arrivals(self.side, rows.drop_columns([_KEY])), report)


@dataclass(frozen=True)
class JoinWork:
    """Joins rows of two streams that have the same values in pairs of columns, in the same windows or by time.

    `sides` and `names`, of the result's columns, are known when the stream starts.
    """

    windowing: Windowing
    pairs: tuple[tuple[str, str], ...]
    how: How
    within: tuple[int, int] | None = None
    sides: tuple[pa.Schema, ...] = field(default=(), repr=False)
    names: tuple[str, ...] = field(default=(), repr=False)

    needs_time: ClassVar[bool] = False
    retracts: ClassVar[bool] = False

    def bind(self, left: pa.Schema, right: pa.Schema, join: Join) -> JoinWork:
        """Returns the work with the columns of both sides, with hidden ones; refuses those that cannot be joined on."""
        own, others = ([name for name in side.names if name not in _HIDDEN] for side in (left, right))
        names = join.columns(own, others)
        for ours, theirs in self.pairs:
            kind, other = left.field(ours).type, right.field(theirs).type
            if kind != other:
                raise PipelineError(
                    f"{ours!r} on the left is {kind}, and {theirs!r} on the right {other}; two streams are joined on "
                    f"columns of one type: convert one first, e.g. Select({ours}='cast({ours} as ...)')"
                )
            if not is_joinable(kind):
                raise PipelineError(
                    f"{ours!r} is {kind}; streams are joined on numbers, text, bytes, booleans, dates and timestamps: "
                    "make columns of its parts with Select"
                )
        return replace(self, sides=(left, right), names=tuple(names))

    def processor(self, shard: int = 0) -> JoinProcessor:
        return JoinProcessor(self._spec())

    def bundles(self, emitted: pa.RecordBatch) -> Iterator[tuple[None, ColumnBundle]]:
        if emitted.num_rows:
            yield None, ColumnBundle(emitted, None)

    def identity(self) -> Identity:
        identity = {
            "kind": "join",
            "window": identity_of(self.windowing.window),
            "on": identity_of(self.pairs),
            "how": self.how,
        }
        return identity if self.within is None else identity | {"within": list(self.within)}

    def describe(self) -> str:
        on = ", ".join(left if left == right else f"{left} = {right}" for left, right in self.pairs)
        if self.within is None:
            return f"{self.how} join on {on}, {self.windowing.window!r}"
        return f"{self.how} join on {on}, {' to '.join(map(format_duration, self.within))}"

    def _spec(self) -> JoinSpec:
        left, right = self.sides
        keys = tuple(zip(*self.pairs, strict=True))
        sides = (
            JoinSide(left, keys[LEFT], self.how in ("left", "outer")),
            JoinSide(right, keys[RIGHT], self.how in ("right", "outer")),
        )
        columns = tuple((name, LEFT if name in left.names else RIGHT, name) for name in self.names)
        lateness = self.windowing.allowed_lateness
        return JoinSpec(sides, columns, lateness, self.within, late_by_time=self.within is not None)


@dataclass(frozen=True)
class AsOfJoinWork(JoinWork):
    """Joins rows of a stream with the rows of another that were the latest of their key at the time."""

    def processor(self, shard: int = 0) -> AsOfProcessor:
        return AsOfProcessor(replace(self._spec(), late_by_time=True))

    def identity(self) -> Identity:
        return {"kind": "as-of join", "on": identity_of(self.pairs), "how": self.how}

    def describe(self) -> str:
        on = ", ".join(left if left == right else f"{left} = {right}" for left, right in self.pairs)
        return f"{self.how} as-of join on {on}"
