"""Attributes of objects as blocks, the form in which a checkpoint stores them: Arrow rows of (attribute, key, value).

A dict is one row for the empty dict and one row for each item; any other attribute is one row. A row without a value
says that the value was removed. Blocks are read in the order in which they were written. They may contain pickles:
read only those of one's own checkpoints.
"""

from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.engine.columns.arrowbytes import arrow_bytes
from headrace.engine.columns.cells import decode_cells, encode_cells
from headrace.engine.columns.hashing import HASHES, Hashes, hash_bytes
from headrace.model.keys import decode_keys, encode_keys
from headrace.model.pickling import dumps

_SCHEMA: Final = pa.schema(
    [
        ("attribute", pa.string()),
        ("kind", pa.int8()),
        ("key", pa.binary()),
        ("spelling", pa.binary()),
        ("value", pa.binary()),
    ]
)
_VALUE, _DICT, _ITEM = range(3)
_KIND: Final = {b"headrace.block": "storm"}
_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="lz4")
_ROWS: Final = 100_000  # of a block at most


class _Removed:
    """A marker in place of a value that was removed."""

    def __repr__(self) -> str:
        return "REMOVED"


REMOVED: Final = _Removed()


@dataclass
class Attributes:
    """State, or changes of state: dicts item by item, and the values of other attributes.

    `dicts` has the empty dict of each attribute that has become one; `removed` has the keys of removed items. A value
    may be REMOVED, and so may items that were read.

    >>> state = Attributes({"total": 3}, {"counts": {}}, {"counts": {"a": 1, "b": 2}})
    >>> later = Attributes({"total": 4}, {}, {"counts": {"c": 5}}, {"counts": ["a"]})
    >>> read = Attributes.read([*state.blocks(), *later.blocks()])
    >>> read.values, {name: dict(items) for name, items in read.items.items()}
    ({'total': 4}, {'counts': {'a': REMOVED, 'b': 2, 'c': 5}})
    """

    values: dict[str, Any] = field(default_factory=dict)
    dicts: dict[str, dict[Any, Any]] = field(default_factory=dict)
    items: dict[str, dict[Any, Any]] = field(default_factory=dict)
    removed: dict[str, list[Any]] = field(default_factory=dict)

    def blocks(self, low: int = 0, high: int = HASHES) -> list[bytes]:
        """Writes it as blocks; or only the part with hashes in a range."""
        tables = [
            *(_rows(name, _VALUE, value=_cell(value)) for name, value in self.values.items()),
            *(_rows(name, _DICT, value=dumps(empty)) for name, empty in self.dicts.items()),
            *(
                _keyed(name, list(keys), pa.nulls(len(keys), pa.binary()))
                for name, keys in self.removed.items()
                if keys
            ),
            *(
                _keyed(name, list(items), encode_cells(list(items.values())))
                for name, items in self.items.items()
                if items
            ),
        ]
        if not tables:
            return []
        rows = pa.concat_tables(tables)
        if high - low < HASHES:
            hashes = _hashes(rows)
            rows = rows.filter(pa.array((hashes >= np.uint64(low)) & (hashes <= np.uint64(high - 1))))
        pieces = [rows.slice(start, _ROWS).combine_chunks() for start in range(0, rows.num_rows, _ROWS)]
        return [arrow_bytes(piece, _KIND, _OPTIONS) for piece in pieces]

    @staticmethod
    def read(blocks: Iterable[bytes]) -> Attributes:
        """Reads blocks, in order, into one state."""
        state = Attributes()
        for block in blocks:
            table = pa.ipc.open_stream(block).read_all()
            if (table.schema.metadata or {}).get(b"headrace.block") != b"storm":
                raise ValueError("not a block of an object's state; load only what dump() or changes() wrote")
            state._add(table)
        return state

    def _add(self, rows: pa.Table) -> None:
        for name in pc.unique(rows.column("attribute")).to_pylist():
            part = rows.filter(pc.equal(rows.column("attribute"), name))
            kinds = part.column("kind").to_pylist()
            if kinds[0] == _VALUE:
                self.values[name] = _value(part.column("value")[0].as_py())
                self.dicts.pop(name, None)
                part = part.slice(1)
            elif kinds[0] == _DICT:
                self.dicts[name] = pickle.loads(part.column("value")[0].as_py())
                self.values.pop(name, None)
                part = part.slice(1)
            if part.num_rows:
                self.items.setdefault(name, {}).update(_items(part.combine_chunks()))

    def applied(self, attribute: str, now: Any) -> Any:
        """Returns the value of an attribute by this state, if it was `now` before; REMOVED if it was removed."""
        items = self.items.get(attribute, {})
        if attribute in self.dicts:
            result = copy.copy(self.dicts[attribute])
        elif attribute in self.values:
            return self.values[attribute]
        else:
            result = now if isinstance(now, dict) else {}
        for key, value in items.items():
            if value is REMOVED:
                result.pop(key, None)
            else:
                result[key] = value
        return result

    def without_removed(self) -> Attributes:
        """Returns the same state without removed items, to be written as a whole."""
        items = {
            name: {key: value for key, value in items.items() if value is not REMOVED}
            for name, items in self.items.items()
        }
        return Attributes(self.values, self.dicts, items)

    def names(self) -> list[str]:
        """Returns the names of all attributes in it."""
        return list(dict.fromkeys([*self.values, *self.dicts, *self.items]))


def _rows(name: str, kind: int, *, value: bytes | None) -> pa.Table:
    return pa.table([[name], [kind], [None], [None], [value]], schema=_SCHEMA)


def _keyed(name: str, keys: Sequence[Any], cells: pa.BinaryArray) -> pa.Table:
    count = len(keys)
    encoded, spelling = encode_keys(keys)
    columns = [
        pa.repeat(pa.scalar(name), count),
        pa.repeat(pa.scalar(_ITEM, pa.int8()), count),
        encoded,
        pa.nulls(count, pa.binary()) if spelling is None else spelling,
        cells,
    ]
    return pa.table(columns, schema=_SCHEMA)


def _items(rows: pa.Table) -> dict[Any, Any]:
    removed = pc.is_null(rows.column("value"))
    items: dict[Any, Any] = {}
    for mask, missing in ((pc.invert(removed), False), (removed, True)):
        part = rows.filter(mask)
        if part.num_rows:
            # Interned, as in tuple columns: an incoming text is then the same object as the key here.
            keys = [
                sys.intern(key) if type(key) is str else key
                for key in decode_keys(_combined(part, "key"), _combined(part, "spelling"))
            ]
            values = [REMOVED] * len(keys) if missing else decode_cells(_combined(part, "value"))
            items.update(zip(keys, values, strict=True))
    return items


def _combined(rows: pa.Table, name: str) -> pa.Array:
    return pa.concat_arrays(rows.column(name).chunks)


def _hashes(rows: pa.Table) -> Hashes:
    names = rows.column("attribute").cast(pa.binary())
    return hash_bytes(pa.concat_arrays(pc.coalesce(rows.column("key"), names).chunks))


def _cell(value: Any) -> bytes | None:
    return None if value is REMOVED else dumps(value)


def _value(cell: bytes | None) -> Any:
    return REMOVED if cell is None else pickle.loads(cell)
