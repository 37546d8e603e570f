"""JSON text of any value that a view or a SQL statement can give: at once, or in pieces and within limits.

Dates and times are ISO 8601, durations are seconds, bytes are Base64. Numbers that JSON lacks are strings: "NaN",
"Infinity", "-Infinity". So are decimals with more digits than a double has, which most readers would round.

It imports the standard library alone, since the sandbox of ad-hoc SQL loads it without the rest of Headrace.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

PIECE: Final = 64 << 10
"""About how many bytes a piece of an answer has, and what is encoded at once: Python runs no other thread meanwhile."""

_FEW: Final = 100  # rows


class TooLarge(Exception):
    """An answer has more cells or bytes than are allowed, or is nested too deeply."""


def dumps(value: Any) -> bytes:
    """Encodes as JSON any value that a view or a SQL statement can give.

    orjson is faster (15 µs instead of 190 for a hundred rows), but writes NaN as null without a word; to look for NaN
    first takes what it saves.

    >>> dumps({"p": float("nan"), "n": 3, "day": dt.date(2026, 1, 31), "sketch": b"\\x00"}).decode()
    '{"p":"NaN","n":3,"day":"2026-01-31","sketch":"AA=="}'
    """
    try:
        return _JSON.encode(value).encode()
    except (ValueError, TypeError):  # numbers that JSON lacks, lone surrogates, keys that are not strings
        return _ASCII.encode(_json_value(value)).encode()


def encode_pieces(value: Any, *, cells: int, size: int) -> list[bytes]:
    """Encodes as JSON, in pieces; refused if there are more cells or bytes. An iterator is a list.

    A cell is a value that is no list and no object, or an empty one.

    >>> encode_pieces(iter([[1, "a"], [2, "b"]]), cells=4, size=100)
    [b'[[1,"a"],[2,"b"]]']
    >>> encode_pieces([[[1, 2, 3]]] * 2, cells=5, size=100)
    Traceback (most recent call last):
        ...
    headrace.model.jsontext.TooLarge: an answer has at most 5 cells, and every element of a list is one; ask for fewer \
rows or columns
    """

    def limited() -> Iterator[bytes]:
        total = count = 0
        for text, more in _texts(value):
            count, total = count + more, total + len(text)
            if count > cells:
                raise _too_many(cells)
            if total > size:
                raise TooLarge(f"an answer has at most {size:,} bytes of JSON; ask for fewer rows or columns")
            yield text

    try:
        return join_texts(limited())
    except RecursionError:
        raise TooLarge("the answer is nested too deeply; ask for its parts") from None


def join_texts(texts: Iterable[bytes]) -> list[bytes]:
    """Joins texts into pieces.

    >>> [len(piece) for piece in join_texts([b"x" * 50_000] * 3)]
    [100000, 50000]
    """
    pieces: list[bytes] = []
    few: list[bytes] = []
    length = 0
    for text in texts:
        few.append(text)
        length += len(text)
        if length >= PIECE:
            pieces.append(b"".join(few))
            few, length = [], 0
    return [*pieces, b"".join(few)] if few else pieces


def rows_of(batch: Any, cells: int) -> Iterator[list[Any]]:
    """Yields the rows of an Arrow batch as lists, a few at a time; refused before a few have more cells than this.

    >>> import pyarrow as pa
    >>> list(rows_of(pa.RecordBatch.from_pydict({"a": [1, 2], "b": [[], ["x"]]}), 4))
    [[1, []], [2, ['x']]]
    """
    for start in range(0, batch.num_rows, _FEW):
        few = batch.slice(start, _FEW)
        if sum(map(_count_cells, few.columns)) > cells:
            raise _too_many(cells)
        yield from map(list, zip(*(column.to_pylist() for column in few.columns), strict=True))


def _count_cells(array: Any) -> int:
    """Counts the cells of an Arrow array without making them.

    >>> import pyarrow as pa
    >>> _count_cells(pa.array([[{"a": 1, "b": [2, 3]}], None, []]))
    3
    >>> maps = pa.array([[("a", [1])], [("b", [2, 3])]], pa.map_(pa.string(), pa.list_(pa.int64())))
    >>> _count_cells(maps), _count_cells(maps.slice(1))
    (5, 3)
    """
    if array.type.num_fields == 0:
        return len(array)
    if hasattr(array, "items"):  # a map
        start, end = array.offsets[0].as_py(), array.offsets[len(array)].as_py()
        inner: Any = [child.slice(start, end - start) for child in (array.keys, array.items)]
    elif hasattr(array, "flatten"):  # a list or a struct
        inner = array.flatten()
    else:  # a union
        inner = [array.field(number) for number in range(array.type.num_fields)]
    return max(len(array), sum(map(_count_cells, inner)) if isinstance(inner, list) else _count_cells(inner))


def _too_many(cells: int) -> TooLarge:
    return TooLarge(
        f"an answer has at most {cells:,} cells, and every element of a list is one; ask for fewer rows or columns"
    )


def _texts(value: Any) -> Iterator[tuple[bytes, int]]:
    """Yields the text of a value in parts of about the size of a piece, each with its number of cells."""
    if isinstance(value, set | frozenset):
        value = _encode_other(value)
    is_object = isinstance(value, dict)
    if not is_object and not isinstance(value, list | tuple | Iterator):
        yield dumps(value), 1
        return
    few: list[Any] = []  # elements that are encoded together
    count = length = 0
    start = b"{" if is_object else b"["
    for element in value.items() if is_object else value:
        more, weight = _weigh(element[1] if is_object else element)
        if weight < PIECE:
            few.append(element)
            count, length = count + more, length + weight + (len(str(element[0])) if is_object else 0)
            if length < PIECE:
                continue
        if few:
            yield start + _elements(few, is_object), count
            few, count, length, start = [], 0, 0, b","
        if weight >= PIECE:
            yield start + (dumps({element[0]: None})[1:-5] if is_object else b""), 0
            yield from _texts(element[1] if is_object else element)
            start = b","
    end = b"}" if is_object else b"]"
    if few:
        yield start + _elements(few, is_object) + end, count
    elif start == b",":
        yield end, 0
    else:
        yield start + end, 1


def _elements(few: list[Any], is_object: bool) -> bytes:
    return dumps(dict(few) if is_object else few)[1:-1]


def _weigh(value: Any) -> tuple[int, int]:
    """Counts the cells of a value and the characters that it takes, about; or until these are enough for a piece."""
    cells = weight = 0
    rest = [value]
    while rest and weight < PIECE:
        value = rest.pop()
        kind = type(value)  # comparing types takes a third of the time of isinstance
        weight += 4
        if kind is str or kind is bytes:
            cells, weight = cells + 1, weight + len(value)
        elif kind is dict:
            cells += not value
            for key in value:
                weight += len(key) if type(key) is str else 20
                if weight >= PIECE:
                    return cells, PIECE
            rest += value.values()
        elif kind in _LISTS or isinstance(value, tuple):
            cells += not value
            if len(value) >= PIECE:
                return cells, PIECE
            if _NUMBERS.issuperset(map(type, value)):
                cells, weight = cells + len(value), weight + 8 * len(value)
            else:
                rest += value
        else:
            cells, weight = cells + 1, weight + 8
    return cells, weight


def _encode_other(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, dt.timedelta):
        return value / dt.timedelta(seconds=1)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, set | frozenset):
        return sorted(value, key=repr)
    if isinstance(value, Decimal):
        return _decimal_number(value)
    return str(value)  # identifiers


def _decimal_number(value: Decimal) -> int | float | str:
    """Returns a decimal as a number of JSON if that has the same digits; otherwise as text.

    >>> [_decimal_number(Decimal(text)) for text in ("12345678901234567890", "1.10", "0.1234567890123456789")]
    [12345678901234567890, 1.1, '0.1234567890123456789']
    """
    if not value.is_finite():
        return str(value)
    if value == value.to_integral_value():
        return int(value)
    return float(value) if Decimal(repr(float(value))) == value else str(value)


def _json_value(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {key if isinstance(key, str) else dumps(key).decode(): _json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json_value(item) for item in value]
    return value if isinstance(value, str | int | float | None) else _json_value(_encode_other(value))


_LISTS: Final = frozenset({list, tuple, set, frozenset})
_NUMBERS: Final = frozenset({int, float, bool, type(None)})
_JSON: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_encode_other)
_ASCII: Final = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
