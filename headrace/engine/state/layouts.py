"""Layouts of shards' blocks: how the state of each kind of work is split by key, and put together again.

Nothing here needs the functions of a pipeline: blocks are columns with encoded keys beside cells that stay encoded. A
manifest says by the identity of a grouping which layout its state has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.engine.columns.joinkeys import encode_join_keys
from headrace.engine.shard.identity import Identity
from headrace.engine.shard.joinprocessor import STORED_SEQ, STORED_SIDES, STORED_UNTIL
from headrace.engine.shard.stateblocks import (
    Removals,
    ShardState,
    blocks_of,
    one_array,
    read_state,
    tables_in,
    write_state,
)
from headrace.engine.sides.sideblocks import StoredSide, StoredSides, read_sides
from headrace.engine.state.shardcounts import ShardCounts
from headrace.engine.worker.shuffle import KEY
from headrace.model.errors import PipelineError
from headrace.model.times import Int64Array
from headrace.model.windows import GLOBAL_WINDOW

Placing = Callable[[pa.BinaryArray], Int64Array]
"""Returns the shards of encoded keys."""

_BOUNDS: Final = 16
"""How many bytes of a record's name are the bounds of its window, behind the key."""


class Layout(Protocol):
    """Splits the blocks of a shard among shards, and puts pieces from several shards together."""

    def split(self, blocks: Sequence[bytes], placing: Placing, targets: range) -> dict[int, list[bytes]]:
        """Returns the piece of each of the targets, the shards that keys of this one go to."""

    def merge(self, pieces: Sequence[Sequence[bytes]], counts: ShardCounts) -> list[bytes]:
        """Returns the blocks of a shard that has the contents of all pieces."""

    def size(self, blocks: Sequence[bytes]) -> StateSize:
        """Returns how much a shard has."""


@dataclass(frozen=True)
class StateSize:
    """The size of a shard's state: rows and different keys, if it has such, and its input and output watermark."""

    rows: int | None = None
    keys: int | None = None
    watermark: int | None = None
    output: int | None = None


class WholeLayout:
    """The layout of tasks: there are as many shards as before, and each stays as it is."""

    def split(self, blocks: Sequence[bytes], placing: Placing, targets: range) -> dict[int, list[bytes]]:
        (target,) = targets
        return {target: list(blocks)}

    def merge(self, pieces: Sequence[Sequence[bytes]], counts: ShardCounts) -> list[bytes]:
        (piece,) = pieces
        return list(piece)

    def size(self, blocks: Sequence[bytes]) -> StateSize:
        return StateSize()


@dataclass(frozen=True)
class RecordLayout:
    """The layout of state with a row for each key and window, or for each record.

    `keys` returns the encoded keys of rows; None if rows have none and may be in any shard, by whose numbers they are
    named.
    """

    keys: Callable[[pa.Table], pa.BinaryArray] | None

    def split(self, blocks: Sequence[bytes], placing: Placing, targets: range) -> dict[int, list[bytes]]:
        state = read_state(blocks)
        windows = _dealt(state.windows, self.keys, placing, targets)
        ordinals = _dealt(_last_counts(state.ordinals), _own_key, placing, targets)
        whole = replace(state, gone=Removals())
        return {
            target: write_state(replace(whole, windows=windows[target], ordinals=ordinals[target]))
            for target in targets
        }

    def merge(self, pieces: Sequence[Sequence[bytes]], counts: ShardCounts) -> list[bytes]:
        states = [read_state(piece) for piece in pieces]
        begins = _begins([state.windows.num_rows for state in states])
        windows = [
            self._numbered(state.windows, _ranks(one_array(state.windows, "seq").to_numpy()) + begin)
            for state, begin in zip(states, begins, strict=False)
            if state.windows.num_rows
        ]
        ordinals = [state.ordinals for state in states if state.ordinals.num_rows]
        return write_state(
            ShardState(
                merged_numbers([state.numbers for state in states], begins[-1]),
                _joined(windows),
                states[0].percentiles,  # the same in all shards
                ordinals=_joined(ordinals),
            )
        )

    def size(self, blocks: Sequence[bytes]) -> StateSize:
        state = read_state(blocks)
        keys = None if self.keys is None else _distinct([self.keys(state.windows)] if state.windows.num_rows else [])
        return StateSize(state.windows.num_rows, keys, state.numbers["input"], state.numbers["output"])

    def _numbered(self, windows: pa.Table, seq: Int64Array) -> pa.Table:
        numbered = windows.set_column(windows.schema.get_field_index("seq"), "seq", pa.array(seq))
        if self.keys is None:
            names = pa.array([number.to_bytes(8, "big") for number in seq.tolist()], pa.binary())
            numbered = numbered.set_column(numbered.schema.get_field_index("name"), "name", names)
        return numbered


@dataclass(frozen=True)
class JoinLayout:
    """The layout of joins: rows of either side that wait, whose `keys` are these columns.

    One pair of columns that is a key already is encoded as it is.
    """

    keys: tuple[tuple[str, ...], tuple[str, ...]]

    def split(self, blocks: Sequence[bytes], placing: Placing, targets: range) -> dict[int, list[bytes]]:
        tables = tables_in(blocks)
        numbers = tables["numbers"][-1].to_pylist()[-1]
        pieces = {target: _numbers_block(numbers) for target in targets}
        for kind, names in zip(STORED_SIDES, self.keys, strict=True):
            for target, rows in _dealt(
                _waiting(tables.get(kind, []), numbers["input"]), _join_keys(names), placing, targets
            ).items():
                pieces[target] += blocks_of(kind, rows)
        return pieces

    def merge(self, pieces: Sequence[Sequence[bytes]], counts: ShardCounts) -> list[bytes]:
        numbers: list[dict[str, int]] = []
        sides: dict[str, list[pa.Table]] = {kind: [] for kind in STORED_SIDES}
        count = 0
        for piece in pieces:
            tables = tables_in(piece)
            numbers.append(tables["numbers"][-1].to_pylist()[-1])
            rows = {kind: pa.concat_tables(tables[kind]) for kind in STORED_SIDES if kind in tables}
            seqs = [one_array(each, STORED_SEQ).to_numpy() for each in rows.values()]
            ranks = _ranks(np.concatenate([np.zeros(0, np.int64), *seqs])) + count
            for (kind, table), begin in zip(rows.items(), _begins(map(len, seqs)), strict=False):
                seq = pa.array(ranks[begin : begin + table.num_rows])
                sides[kind].append(table.set_column(table.schema.get_field_index(STORED_SEQ), STORED_SEQ, seq))
            count += len(ranks)
        blocks = _numbers_block(merged_numbers(numbers, count))
        for side, tables_of_side in sides.items():
            blocks += blocks_of(side, _joined(tables_of_side))
        return blocks

    def size(self, blocks: Sequence[bytes]) -> StateSize:
        tables = tables_in(blocks)
        numbers = tables["numbers"][-1].to_pylist()[-1]
        waiting = [_waiting(tables.get(kind, []), numbers["input"]) for kind in STORED_SIDES]
        keys = [_join_keys(names)(rows) for names, rows in zip(self.keys, waiting, strict=True) if rows.num_rows]
        return StateSize(sum(rows.num_rows for rows in waiting), _distinct(keys), numbers["input"], numbers["output"])


class SidesLayout:
    """The layout of elements that wait for side inputs: they may wait in any shard; side inputs are in all of them."""

    def split(self, blocks: Sequence[bytes], placing: Placing, targets: range) -> dict[int, list[bytes]]:
        stored = read_sides(blocks)
        sides = [
            replace(side, gone=set(), groups=write_state(replace(read_state(side.groups), gone=Removals())))
            for side in stored.sides
        ]
        pieces = {target: replace(stored, sides=sides, waiting={}, released=set()) for target in targets}
        for window, batches in stored.waiting.items():
            rows = pa.concat_batches(batches)
            for number, target in enumerate(targets):
                share = rows.take(pa.array(np.arange(number, rows.num_rows, len(targets))))
                if share.num_rows:
                    pieces[target].waiting[window] = [share]
        return {target: piece.write() for target, piece in pieces.items()}

    def merge(self, pieces: Sequence[Sequence[bytes]], counts: ShardCounts) -> list[bytes]:
        stored = [read_sides(piece) for piece in pieces]
        waiting: dict[tuple[int, int], list[pa.RecordBatch]] = {}
        for each in stored:
            for window, batches in each.waiting.items():
                waiting.setdefault(window, []).extend(batches)
        sides = [
            # What a side input shows is removed when no element of the shard waits for it, so some may have more.
            StoredSide(
                counts.upstream(of_side[0].upstream),
                {window: cell for side in of_side for window, cell in side.shown.items()},
                groups=of_side[0].groups,
            )
            for of_side in zip(*(each.sides for each in stored), strict=True)
        ]
        low, output = min(each.watermark for each in stored), min(each.output for each in stored)
        return StoredSides(low, max(each.now for each in stored), output, sides, waiting).write()

    def size(self, blocks: Sequence[bytes]) -> StateSize:
        stored = read_sides(blocks)
        rows = sum(batch.num_rows for batches in stored.waiting.values() for batch in batches)
        return StateSize(rows, None, stored.watermark, stored.output)


def layout_of(label: str, identity: Identity) -> Layout:
    """Returns the layout of a grouping's state, by its identity in a manifest.

    >>> layout_of("count", {"kind": "tasks", "tasks": 3})  # doctest: +ELLIPSIS
    <headrace.engine.state.layouts.WholeLayout object at ...>
    """
    if identity is None:
        raise PipelineError(
            f"the state of {label!r} is of an early version, whose manifest does not say how it is laid out; run its "
            "pipeline once with this version, and stop it: that writes the manifest anew"
        )
    match identity["kind"]:
        case "grouping" | "aggregation" | "top rows":
            return RecordLayout(_own_key)
        case "stateful":
            return RecordLayout(_key_of_record)
        case "beam driver":
            return RecordLayout(_own_name)
        case "beam stage":
            return RecordLayout(_key_of_name)
        case "beam splittable":
            return RecordLayout(None)
        case "join" | "as-of join":
            left, right = zip(*identity["on"], strict=True)
            return JoinLayout((left, right))
        case "interval join":
            return JoinLayout(((KEY,), (KEY,)))
        case "side inputs":
            return SidesLayout()
        case "tasks":
            return WholeLayout()
    raise PipelineError(
        f"the state of {label!r} is of a kind, {identity['kind']!r}, that cannot be moved to other shards; go on with "
        "the number of shards it has"
    )


def merged_numbers(numbers: Sequence[Mapping[str, int]], next_seq: int) -> dict[str, int]:
    """Returns clocks and counters of a shard made of several: it promises no more than each of them did.

    >>> merged_numbers([{"input": 5, "output": 3, "now": 9, "next_seq": 4}], 2)
    {'input': 5, 'output': 3, 'now': 9, 'next_seq': 2}
    """
    least = {name: min(each[name] for each in numbers) for name in ("input", "output")}
    return {**least, "now": max(each["now"] for each in numbers), "next_seq": next_seq}


def _dealt(
    table: pa.Table, keys: Callable[[pa.Table], pa.BinaryArray] | None, placing: Placing, targets: range
) -> dict[int, pa.Table]:
    """Deals the rows of a table out to the shards of their keys, in order."""
    if not table.num_rows:
        return dict.fromkeys(targets, table)
    anywhere = np.arange(table.num_rows) % len(targets) + targets.start
    shards = anywhere if keys is None else placing(keys(table))
    order = np.argsort(shards, kind="stable")
    edges = np.searchsorted(shards[order], [*targets, targets.stop])
    if int(edges[-1] - edges[0]) != table.num_rows:
        raise ValueError("rows of a shard have keys of another; the state is not what its manifest says")
    rows = table.take(pa.array(order))
    return {
        target: rows.slice(edges[number], edges[number + 1] - edges[number]) for number, target in enumerate(targets)
    }


def _own_key(rows: pa.Table) -> pa.BinaryArray:
    return one_array(rows, "key")


def _own_name(rows: pa.Table) -> pa.BinaryArray:
    return one_array(rows, "name")


def _key_of_name(rows: pa.Table) -> pa.BinaryArray:
    return pc.binary_slice(one_array(rows, "name"), 0, -_BOUNDS)


def _key_of_record(rows: pa.Table) -> pa.BinaryArray:
    """Returns the keys of records of stateful DoFns, whose names have bounds unless windows are global."""
    return _own_name(rows) if one_array(rows, "start")[0].as_py() == GLOBAL_WINDOW.start else _key_of_name(rows)


def _join_keys(names: tuple[str, ...]) -> Callable[[pa.Table], pa.BinaryArray]:
    def keys(rows: pa.Table) -> pa.BinaryArray:
        return encode_join_keys([one_array(rows, name) for name in names])

    return keys


def _waiting(pieces: list[pa.Table], watermark: int) -> pa.Table:
    """Returns the rows of one side that still wait, each once, in order of arrival."""
    if not pieces:
        return pa.table({})
    rows = pa.concat_tables(pieces)
    _, first = np.unique(one_array(rows, STORED_SEQ).to_numpy(), return_index=True)
    rows = rows.take(pa.array(first))
    return rows.filter(pc.greater(rows.column(STORED_UNTIL), watermark))


def _last_counts(ordinals: pa.Table) -> pa.Table:
    """Returns the last count of each key."""
    if not ordinals.num_rows:
        return ordinals
    keys = one_array(ordinals, "key").dictionary_encode()
    last = np.zeros(len(keys.dictionary), np.int64)
    last[np.asarray(keys.indices)] = np.arange(ordinals.num_rows)
    return ordinals.take(pa.array(last))


def _numbers_block(numbers: Mapping[str, Any]) -> list[bytes]:
    return blocks_of("numbers", pa.table({name: pa.array([number], pa.int64()) for name, number in numbers.items()}))


def _distinct(keys: Sequence[pa.BinaryArray]) -> int:
    return len(pa.chunked_array(keys, pa.binary()).unique())


def _ranks(numbers: Int64Array) -> Int64Array:
    ranks = np.empty(len(numbers), np.int64)
    ranks[np.argsort(numbers, kind="stable")] = np.arange(len(numbers))
    return ranks


def _begins(counts: Iterable[int]) -> list[int]:
    return [0, *np.cumsum(list(counts)).tolist()]


def _joined(tables: list[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables) if tables else pa.table({})
