"""Values of tuples as Arrow columns, in batches between tasks.

A field whose values are all of type str, int, float, bool or bytes (or None) is a column of that type; any other field
is a column of pickles, marked as such. Only pickles that the topology itself wrote are read.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.engine.columns.hashing import Hashes, hash_bytes
from headrace.model.keys import encode_ints, encode_keys, encode_tuples, tag_cells
from headrace.model.pickling import dumps

_PICKLED: Final = {b"headrace.pickled": b"1"}
_MIN_ROWS: Final = 2_000  # rows
_TYPES: Final[dict[type, pa.DataType]] = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    bytes: pa.binary(),
}


def encode_column(name: str, values: Sequence[Any]) -> tuple[pa.Field, pa.Array]:
    """Encodes the values of one field as a column.

    >>> encode_column("word", ["a", None])[0].type, encode_column("any", ["a", 1])[0].type
    (DataType(string), DataType(binary))
    """
    kinds = set(map(type, values)) - {type(None)}
    if len(kinds) == 1 and (kind := _TYPES.get(kinds.pop())) is not None:
        try:
            return pa.field(name, kind), pa.array(values, kind)
        except (OverflowError, UnicodeEncodeError, pa.ArrowInvalid):
            pass  # an int beyond 64 bits or a lone surrogate: pickle has no such limits
    cells = pa.array([dumps(value) for value in values], pa.binary())
    return pa.field(name, pa.binary(), metadata=_PICKLED), cells


def decode_column(field: pa.Field, column: pa.Array) -> list[Any]:
    """Decodes the values that `encode_column` encoded.

    >>> decode_column(*encode_column("any", ["a", 1, {"b": 2}]))
    ['a', 1, {'b': 2}]
    """
    if field.metadata == _PICKLED:
        return list(map(pickle.loads, column.to_pylist()))
    if _is_plain_numbers(column):
        return column.to_numpy().tolist()  # type: ignore[no-any-return]
    if (encoded := _dictionary_of(column)) is not None:
        # Equal texts become one object, in this batch and the next: Python has stored its hash, and finds it in a
        # dict without comparing the text.
        distinct = np.array(list(map(sys.intern, encoded.dictionary.to_pylist())), object)
        return distinct[encoded.indices.to_numpy()].tolist()  # type: ignore[no-any-return]
    return column.to_pylist()  # type: ignore[no-any-return]


def _dictionary_of(column: pa.Array) -> pa.DictionaryArray | None:
    """Encodes text by its distinct values, if a sixteenth of the rows shows that there are far fewer than rows."""
    if not pa.types.is_string(column.type) or column.null_count or len(column) < _MIN_ROWS:
        return None
    sample = len(column) // 16
    if pc.count_distinct(column.slice(0, sample)).as_py() > 0.8 * sample:
        return None
    return column.dictionary_encode()


def _is_plain_numbers(column: pa.Array) -> bool:
    return not column.null_count and (pa.types.is_int64(column.type) or pa.types.is_float64(column.type))


def hash_columns(columns: Sequence[tuple[pa.Field, pa.Array]]) -> Hashes:
    """Hashes each row of some columns, in every process alike: the value of one column, or the tuple of several.

    >>> one, two = encode_column("a", ["x", "y"]), encode_column("b", [1, 2])
    >>> hash_columns([one]).tolist() == hash_keys(["x", "y"]).tolist()
    True
    >>> hash_columns([one, two]).tolist() == hash_keys([("x", 1), ("y", 2)]).tolist()
    True
    """
    if len(columns) == 1:
        [(field, column)] = columns
        if (encoded := _dictionary_of(column)) is not None:
            hashes: Hashes = hash_bytes(_key_cells(field, encoded.dictionary))[encoded.indices.to_numpy()]
            return hashes
        return hash_bytes(_key_cells(field, column))
    return hash_bytes(encode_tuples([_key_cells(*column) for column in columns]))


def hash_keys(keys: Sequence[object]) -> Hashes:
    """Hashes each key, in every process alike; equal keys have equal hashes.

    >>> hash_keys([1, 1.0, "1"]).tolist()[:2] == hash_keys([True, True]).tolist()
    True
    """
    return hash_bytes(encode_keys(keys)[0])


def _key_cells(field: pa.Field, column: pa.Array) -> pa.BinaryArray:
    if not column.null_count and field.metadata is None:
        if pa.types.is_string(column.type):
            return tag_cells(b"s", column.cast(pa.binary()))
        if pa.types.is_int64(column.type):
            return encode_ints(column.to_numpy())
    return encode_keys(decode_column(field, column))[0]
