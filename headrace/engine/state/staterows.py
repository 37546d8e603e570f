"""The state of a grouping as rows that people read and mend: keys, windows and values as Python objects.

Values are as they are stored: lists of elements or accumulators, as `CombineFn.dump` gives them; of aggregations that
are numbers, the number, or a tuple of those that it is computed from.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace.engine.columns.cells import decode_cells, encode_cells
from headrace.engine.columns.numbercells import Numbers, Record, write_records
from headrace.engine.shard.identity import Identity
from headrace.engine.shard.joinprocessor import STORED_SEQ, STORED_SIDES, STORED_UNTIL
from headrace.engine.shard.stateblocks import Removals, one_array, read_state, tables_in, write_state
from headrace.engine.shard.windowbounds import window_names
from headrace.engine.state.resharding import ShardPiece
from headrace.engine.stateful.timers import NEVER
from headrace.engine.worker.hidden import END, START, TIME
from headrace.engine.worker.shuffle import KEY, SPELLING, VALUE
from headrace.model.errors import PipelineError
from headrace.model.keys import decode_keys, encode_keys
from headrace.model.windows import GLOBAL_WINDOW

StateRow = dict[str, Any]
"""A row of state, by the names of its columns."""

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_WINDOW: Final = ("window_start", "window_end")
_READ_ONLY: Final = {"join", "as-of join", "interval join"}
_FOR_ALL_KEYS: Final = {"GlobalWindows", "FixedWindows", "SlidingWindows", "CalendarWindows"}
"""Windows that are the same for all keys, whatever elements these have."""
_RECORDS: Final = {"grouping", "aggregation", "top rows", "stateful"}


@dataclass(frozen=True)
class StateRows:
    """Reads and changes the state of one grouping, whose identity says how it is laid out."""

    label: str
    identity: Identity

    def __post_init__(self) -> None:
        kind = None if self.identity is None else self.identity["kind"]
        if kind not in _RECORDS | _READ_ONLY:
            raise PipelineError(
                f"the state of {self.label!r} is of the kind {kind!r}, which has no rows to read; it can be copied, "
                "moved to other shards, and continued"
            )

    @property
    def has_keys(self) -> bool:
        """Whether rows are found by one key."""
        return self.identity["kind"] in _RECORDS

    @property
    def _counted(self) -> bool:
        window = self.identity.get("window")
        return isinstance(window, dict) and window.get("type") == "CountWindows"

    def read(self, piece: ShardPiece, key: bytes | None = None) -> list[StateRow]:
        """Returns the rows of a shard; with `key`, those of that encoded key."""
        if not self.has_keys:
            return list(_waiting_rows(piece))
        state = read_state(piece.blocks)
        if key is not None and state.windows.num_rows:
            state = replace(state, windows=state.windows.filter(pc.equal(self._keys(state.windows), key)))
        return self._rows(state.windows) if state.windows.num_rows else []

    def change(self, piece: ShardPiece, function: Callable[[StateRow], StateRow | None]) -> ShardPiece:
        """Returns a shard in which each row is what the function makes of it; rows of which it makes None are gone."""
        if not self.has_keys:
            raise PipelineError(f"the state of {self.label!r} is rows that wait for a join; they cannot be changed")
        state = read_state(piece.blocks)
        if not state.windows.num_rows:
            return piece
        windows = self._changed(state.windows, function)
        return ShardPiece(piece.header, write_state(replace(state, windows=windows, gone=Removals())))

    # Rows

    @property
    def _stateful(self) -> bool:
        return bool(self.identity["kind"] == "stateful")

    def _keys(self, windows: pa.Table) -> pa.BinaryArray:
        if not self._stateful:
            return one_array(windows, "key")
        names = one_array(windows, "name")
        return names if _is_global(windows) else pc.binary_slice(names, 0, -16)

    def _rows(self, windows: pa.Table) -> list[StateRow]:
        columns: dict[str, list[Any]] = {"key": decode_keys(self._keys(windows), one_array(windows, "spelling"))}
        bounds = [one_array(windows, name).to_pylist() for name in ("start", "end")]
        if self._counted:
            columns |= {"first_element": bounds[0], "end_element": bounds[1]}
        else:
            columns |= {name: list(map(_time, times)) for name, times in zip(_WINDOW, bounds, strict=True)}
        if self._stateful:
            for name in windows.column_names:
                if name.startswith("state "):
                    columns[_shown_name(name)] = _decoded(one_array(windows, name))
                elif name.startswith("time ") and "." not in name:  # the others are those of holds and of expiry
                    timer = f"timer_{name.removeprefix('time ')}"
                    columns[timer] = list(map(_due, one_array(windows, name).to_pylist()))
        else:
            columns["elements"] = one_array(windows, "count").to_pylist()
            columns["value"] = [_shown(value) for value in _decoded(one_array(windows, "value"))]
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def _changed(self, windows: pa.Table, function: Callable[[StateRow], StateRow | None]) -> pa.Table:
        values = [name for name in windows.column_names if name == "value" or name.startswith("state ")]
        cells = {name: one_array(windows, name).to_pylist() for name in values}
        keys, spelling = self._keys(windows).to_pylist(), one_array(windows, "spelling").to_pylist()
        stay: list[int] = []
        for at, row in enumerate(self._rows(windows)):
            before, columns = {name: _encoded(row[_shown_name(name)]) for name in values}, set(row)
            key = row["key"]
            after = function(row)
            if after is None:
                continue
            stay.append(at)
            if other := set(after) ^ columns:
                raise PipelineError(
                    f"the function for {self.label!r} returns other columns than it got: {sorted(other)}; change "
                    "values, and neither add nor drop columns"
                )
            if type(after["key"]) is not type(key) or after["key"] != key:
                keys[at], spelling[at] = self._new_key(key, after["key"])
            for name in values:
                if (new := _encoded(after[_shown_name(name)])) != before[name]:
                    cells[name][at] = self._cell(cells[name][at], after[_shown_name(name)], new)
        changed = _replaced(windows, "spelling", spelling)
        for name in values:
            changed = _replaced(changed, name, cells[name])
        if not self._stateful:
            changed = _replaced(changed, "key", keys)
        else:
            names = pa.array(keys, pa.binary())
            if not _is_global(windows):
                start, end = (one_array(windows, name).to_numpy() for name in ("start", "end"))
                names = window_names(names, start, end)
            changed = _replaced(changed, "name", names.to_pylist())
        return changed.take(pa.array(stay, pa.int64()))

    def _new_key(self, before: Any, after: Any) -> tuple[bytes, bytes | None]:
        window = self.identity["window"]
        if not isinstance(window, dict) or window.get("type") not in _FOR_ALL_KEYS:
            raise PipelineError(
                f"the function for {self.label!r} makes the key {after!r} of {before!r}, but the windows of a key "
                "depend on its elements there; drop the row, or leave its key"
            )
        encoded, spelled = encode_keys([after])
        return bytes(encoded[0].as_py()), None if spelled is None else spelled[0].as_py()

    def check_once(self, piece: ShardPiece) -> None:
        """Refuses a shard with two rows of one key and window: a function has given one the key of another."""
        rows = read_state(piece.blocks).windows
        if (
            rows.num_rows
            and rows.group_by(["name" if self._stateful else "key", "start", "end"]).aggregate([]).num_rows
            != rows.num_rows
        ):
            raise PipelineError(
                f"the function for {self.label!r} gives two rows the same key and window; drop one of them"
            )

    def _cell(self, before: bytes | None, value: Any, encoded: bytes | None) -> bytes | None:
        """Encodes a changed value in the form that the one before had."""
        if before is None or not isinstance(decode_cells(pa.array([before], pa.binary()))[0], Record):
            return encoded
        parts = [Numbers.of([part]) for part in (value if isinstance(value, tuple | list) else (value,))]
        if any(part is None for part in parts):
            raise PipelineError(
                f"a value of {self.label!r} is made of numbers, and would be {value!r}; give numbers, as many as there "
                "were"
            )
        return bytes(write_records(parts)[0].as_py())  # type: ignore[arg-type]


def _waiting_rows(piece: ShardPiece) -> Iterator[StateRow]:
    """Yields the rows of both sides of a join that wait."""
    tables = tables_in(piece.blocks)
    watermark = tables["numbers"][-1].to_pylist()[-1]["input"]
    for side in STORED_SIDES:
        seen: set[int] = set()
        for table in tables.get(side, []):
            for row in table.to_pylist():
                if row[STORED_SEQ] in seen or row[STORED_UNTIL] <= watermark:
                    continue
                seen.add(row[STORED_SEQ])
                yield {"side": side, **dict(_join_columns(row))}


def _join_columns(row: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    if SPELLING in row and KEY in row and VALUE in row:  # of an IntervalJoin
        keys, spelling = (pa.array([row[name]], pa.binary()) for name in (KEY, SPELLING))
        yield "key", decode_keys(keys, spelling)[0]
        yield "value", decode_cells(pa.array([row[VALUE]], pa.binary()))[0]
        row = {name: row[name] for name in row if name not in (KEY, SPELLING, VALUE)}
    yield from ((name, value) for name, value in row.items() if not name.startswith("__"))
    yield "event_time", _time(row[TIME])
    if START in row:
        yield from zip(_WINDOW, (_time(row[START]), _time(row[END])), strict=True)


def _is_global(windows: pa.Table) -> bool:
    return bool(one_array(windows, "start")[0].as_py() == GLOBAL_WINDOW.start)


def _shown_name(name: str) -> str:
    """Returns the name of a column of values as people see it."""
    plain = name.removeprefix("state ")
    return f"state_{plain}" if plain in ("key", *_WINDOW) else plain


def _time(micros: int | None) -> dt.datetime | None:
    """Returns a time; None for the bounds of the global window, and times that no calendar has."""
    if micros is None or micros in (GLOBAL_WINDOW.start, GLOBAL_WINDOW.end):
        return None
    try:
        return _EPOCH + dt.timedelta(microseconds=micros)
    except OverflowError:
        return None


def _due(micros: int) -> dt.datetime | None:
    return None if micros == NEVER else _time(micros)


def _decoded(cells: pa.BinaryArray) -> list[Any]:
    filled = iter(decode_cells(cells.drop_null()))
    return [next(filled) if there else None for there in cells.is_valid().to_pylist()]


def _shown(value: Any) -> Any:
    """Returns a value as people see it: a record of one number is that number."""
    if not isinstance(value, Record):
        return value
    return value[0] if len(value) == 1 else tuple(value)


def _encoded(value: Any) -> bytes | None:
    return None if value is None else bytes(encode_cells([value])[0].as_py())


def _replaced(table: pa.Table, name: str, values: Sequence[bytes | None]) -> pa.Table:
    at = table.schema.get_field_index(name)
    return table.set_column(at, table.schema.field(at), pa.array(values, table.schema.field(at).type))
