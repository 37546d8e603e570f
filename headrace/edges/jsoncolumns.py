"""Encodes columns as JSON by array operations: each row as `json.dumps` encodes it, without blanks.

Only text with characters to escape, and columns of lists, structs and the like, are encoded value by value.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_ESCAPED: Final = r'["\\\x00-\x1f]'


def json_objects(columns: Mapping[str, pa.Array], rows: int) -> pa.BinaryArray:
    """Encodes each row as an object.

    >>> json_objects({"user": pa.array(["ann", None]), "n": pa.array([1, 2])}, 2).to_pylist()
    [b'{"user":"ann","n":1}', b'{"user":null,"n":2}']
    """
    parts = [[f"{json.dumps(name)}:", *_pieces(column)] for name, column in columns.items()]
    return _enclosed("{", parts, "}", rows)


def json_arrays(columns: list[pa.Array], rows: int) -> pa.BinaryArray:
    """Encodes each row as an array.

    >>> json_arrays([pa.array(["to"]), pa.array([2.0])], 1).to_pylist()
    [b'["to",2.0]']
    """
    return _enclosed("[", [_pieces(column) for column in columns], "]", rows)


def json_values(column: pa.Array) -> pa.StringArray:
    """Encodes each value as JSON text; a null as `null`.

    >>> json_values(pa.array(['say "hi"', None, "é"])).to_pylist()
    ['"say \\\\"hi\\\\""', 'null', '"é"']
    """
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        text = _quoted(column.cast(pa.string()))
    elif pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        text = column.cast(pa.string())
    elif pa.types.is_float64(kind):
        text = _floats(column)
    elif pa.types.is_timestamp(kind):
        naive = column.cast(pa.timestamp("us", tz=kind.tz)).cast(pa.timestamp("us")).cast(pa.string())
        text = _joined('"', pc.replace_substring(naive, " ", "T"), 'Z"')
    elif pa.types.is_date32(kind):
        text = _joined('"', column.cast(pa.string()), '"')
    else:
        text = pa.array([None if value is None else json_text(value) for value in column.to_pylist()], pa.string())
    return text.fill_null("null")


def json_text(value: Any) -> str:
    """Encodes a Python value as JSON text, with times in UTC, as in columns."""
    return json.dumps(value, default=_plain, allow_nan=False, ensure_ascii=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        zoned = value if value.tzinfo is not None else value.replace(tzinfo=dt.UTC)
        return zoned.astimezone(dt.UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
    if isinstance(value, dt.date):
        return value.isoformat()
    raise TypeError(f"{value!r} ({type(value).__name__}) is not JSON")


def _pieces(column: pa.Array) -> list[Any]:
    """Returns the pieces that are joined to the JSON of each value: texts that are the same for all, and columns."""
    if pa.types.is_string(column.type) and not column.null_count and _is_plain(column):
        return ['"', column, '"']
    return [json_values(column)]


def _is_plain(column: pa.StringArray) -> bool:
    """Tells whether no text has a character to escape."""
    _, offsets, data = column.buffers()
    if data is None:
        return True
    first, last = np.frombuffer(offsets, np.int32)[[column.offset, column.offset + len(column)]]
    octets = np.frombuffer(data, np.uint8)[first:last]
    return not ((octets < 0x20) | (octets == ord('"')) | (octets == ord("\\"))).any()


def _quoted(column: pa.StringArray) -> pa.StringArray:
    plain = _joined('"', column, '"')
    if _is_plain(column):
        return plain
    marked = pc.match_substring_regex(column, _ESCAPED).fill_null(False)
    escaped = pa.array([json_text(text) for text in column.filter(marked).to_pylist()], pa.string())
    return pc.replace_with_mask(plain, marked, escaped)


def _floats(column: pa.Array) -> pa.StringArray:
    if pc.any(pc.invert(pc.is_finite(column))).as_py():
        raise ValueError("NaN and infinity are not JSON")
    text = column.cast(pa.string())
    whole = pc.invert(pc.match_substring_regex(text, "[.e]"))
    return pc.if_else(whole, _joined("", text, ".0"), text)


def _joined(*pieces: Any) -> pa.StringArray:
    return pc.binary_join_element_wise(*pieces, "")


def _enclosed(left: str, parts: list[list[Any]], right: str, rows: int) -> pa.BinaryArray:
    if not parts:
        return pa.array([(left + right).encode()] * rows, pa.binary())
    pieces: list[Any] = [left]
    for number, part in enumerate(parts):
        for piece in [*([","] if number else []), *part]:
            if isinstance(piece, str) and isinstance(pieces[-1], str):
                pieces[-1] += piece
            else:
                pieces.append(piece)
    pieces = [*pieces[:-1], pieces[-1] + right] if isinstance(pieces[-1], str) else [*pieces, right]
    return _joined(*pieces).cast(pa.binary())
