"""Encodes keys as bytes: equal Python keys have equal bytes, in every process and on every machine.

Equal means Python's `==`: 1, 1.0 and True are one key; so are two NaNs, although `==` says that they differ. This is
the encoding of keys, not of values: a value is decoded with its type, a key only has to be compared.
"""

import dataclasses
import datetime as dt
import enum
import ipaddress
import math
import pathlib
import pickle
import struct
import uuid
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.model.pickling import dumps

_INT64 = struct.Struct(">Q")  # see _encode_int
_FLOAT64 = struct.Struct("<d")
_LENGTH = struct.Struct("<I")


def encode_key(key: object) -> bytes:
    """Encodes one key: equal keys have equal bytes, unequal keys have unequal bytes.

    >>> encode_key(1) == encode_key(1.0) == encode_key(True)
    True
    >>> encode_key("1") == encode_key(1)
    False
    >>> encode_key(["a"])
    Traceback (most recent call last):
        ...
    TypeError: a key of type list has no encoding: it can change after it was used as a key; use a tuple instead
    """
    encoder = _ENCODERS.get(type(key))
    if encoder is None:
        encoder = _encoder_of_subclass(key)
    return encoder(key)


def encode_keys(keys: Sequence[object]) -> tuple[pa.BinaryArray, pa.BinaryArray | None]:
    """Encodes many keys at once: their bytes to compare by, and their spelling where the bytes lose the type.

    The spelling is a pickle of the key itself, null where decoding the bytes gives back the same type. Keys that are
    all int, all str, all bytes or plain tuples of those are encoded column by column, without a Python call per key.

    >>> encoded, spelling = encode_keys(["a", "b"])
    >>> encoded.to_pylist(), spelling
    ([b'sa', b'sb'], None)
    >>> decode_keys(*encode_keys([True, 1.5, ("x", None)]))
    [True, 1.5, ('x', None)]
    """
    fast = _encode_column(keys)
    if fast is not None:
        return fast, None
    encoded = pa.array([encode_key(key) for key in keys], pa.binary())
    spelling = [None if _is_plain(key) else dumps(key) for key in keys]
    return encoded, pa.array(spelling, pa.binary()) if any(spelling) else None


def decode_keys(encoded: pa.BinaryArray, spelling: pa.BinaryArray | None) -> list[object]:
    """Decodes the keys that `encode_keys` encoded.

    >>> decode_keys(*encode_keys([3, 4]))
    [3, 4]
    """
    cells = encoded.to_pylist()
    if spelling is None or spelling.null_count == len(spelling):
        return [_decode(cell) for cell in cells]
    return [
        _decode(cell) if spelled is None else pickle.loads(spelled)
        for cell, spelled in zip(cells, spelling.to_pylist(), strict=True)
    ]


def _encode_int(key: int) -> bytes:
    if -(2**63) <= key < 2**63:
        return b"i" + _INT64.pack(key + 2**63)  # so that bytes are in the order of the numbers
    return b"I" + str(int(key)).encode()


def _encode_float(key: float) -> bytes:
    if key != key:
        return b"f" + _FLOAT64.pack(math.nan)
    if key.is_integer():
        return _encode_int(int(key))
    return b"f" + _FLOAT64.pack(key)


def _encode_str(key: str) -> bytes:
    return b"s" + key.encode("utf-8", "surrogatepass")


def _encode_tuple(key: tuple[object, ...]) -> bytes:
    return b"t" + _join([encode_key(item) for item in key])


def _join(parts: list[bytes]) -> bytes:
    return _LENGTH.pack(len(parts)) + b"".join(_LENGTH.pack(len(part)) + part for part in parts)


def _encode_frozenset(key: frozenset[object]) -> bytes:
    return b"S" + _join(sorted(encode_key(item) for item in key))


def _encode_decimal(key: Decimal) -> bytes:
    if not key.is_finite():
        return _encode_float(float(key))
    return _encode_fraction(Fraction(key))


def _encode_fraction(key: Fraction) -> bytes:
    if key.denominator == 1:
        return _encode_int(key.numerator)
    try:
        nearest = float(key)
    except OverflowError:
        nearest = math.inf
    if nearest == key:
        return _encode_float(nearest)
    return b"q" + _join([_encode_int(key.numerator), _encode_int(key.denominator)])


def _encode_complex(key: complex) -> bytes:
    if key.imag == 0:
        return _encode_float(key.real)
    return b"c" + _join([_encode_float(key.real), _encode_float(key.imag)])


def _encode_datetime(key: dt.datetime) -> bytes:
    if key.utcoffset() is None:
        return b"n" + key.replace(fold=0).isoformat().encode()
    return b"z" + key.astimezone(dt.UTC).isoformat().encode()


def _encode_time(key: dt.time) -> bytes:
    return b"h" + key.replace(fold=0).isoformat().encode()


def _encode_timedelta(key: dt.timedelta) -> bytes:
    return b"l" + _encode_int(key // dt.timedelta(microseconds=1))


def _encode_range(key: range) -> bytes:
    parts = (len(key), *key[:1], *((key.step,) if len(key) > 1 else ()))  # Python, too, compares ranges as sequences
    return b"r" + _join([_encode_int(part) for part in parts])


_ENCODERS: dict[type, Callable[..., bytes]] = {
    type(None): lambda key: b"N",
    bool: lambda key: _encode_int(int(key)),
    int: _encode_int,
    float: _encode_float,
    str: _encode_str,
    bytes: lambda key: b"b" + key,
    tuple: _encode_tuple,
    frozenset: _encode_frozenset,
    Decimal: _encode_decimal,
    Fraction: _encode_fraction,
    complex: _encode_complex,
    dt.datetime: _encode_datetime,
    dt.date: lambda key: b"y" + key.isoformat().encode(),
    dt.time: _encode_time,
    dt.timedelta: _encode_timedelta,
    range: _encode_range,
    uuid.UUID: lambda key: b"u" + key.bytes,
    ipaddress.IPv4Address: lambda key: b"a" + key.packed,
    ipaddress.IPv6Address: lambda key: b"a" + key.packed + str(key.scope_id or "").encode(),
    pathlib.PurePosixPath: lambda key: b"/" + str(key).encode("utf-8", "surrogateescape"),
    pathlib.PosixPath: lambda key: b"/" + str(key).encode("utf-8", "surrogateescape"),
}

# An object of a subclass equals one of its parent only if the subclass inherits `==`.
_OPEN_TO_SUBCLASSES: tuple[Any, ...] = (
    int,
    float,
    str,
    bytes,
    tuple,
    frozenset,
    Decimal,
    Fraction,
    dt.datetime,
    dt.date,
)


def _encoder_of_subclass(key: Any) -> Callable[..., bytes]:
    kind: Any = type(key)
    if isinstance(key, np.generic):
        return lambda scalar: encode_key(scalar.item())
    for parent in _OPEN_TO_SUBCLASSES:
        if isinstance(key, parent) and kind.__eq__ is parent.__eq__:
            return _ENCODERS[parent]
    if isinstance(key, enum.Enum):
        return lambda member: b"e" + _join([_name_of(kind), member.name.encode()])
    if dataclasses.is_dataclass(key) and kind.__dataclass_params__.frozen and kind.__dataclass_params__.eq:
        return _encode_dataclass
    raise TypeError(f"a key of type {kind.__qualname__} has no encoding: {_why_not(key)}")


def _encode_dataclass(key: Any) -> bytes:
    compared = [field.name for field in dataclasses.fields(key) if field.compare]
    return b"k" + _join([_name_of(type(key)), *(encode_key(getattr(key, name)) for name in compared)])


def _name_of(kind: type) -> bytes:
    return f"{kind.__module__}.{kind.__qualname__}".encode()


def _why_not(key: Any) -> str:
    kind: Any = type(key)
    if isinstance(key, list | bytearray):
        return (
            f"it can change after it was used as a key; use {'a tuple' if isinstance(key, list) else 'bytes'} instead"
        )
    if isinstance(key, dict | set):
        return "it can change after it was used as a key; use a frozenset (of items) instead"
    if dataclasses.is_dataclass(key):
        return "a dataclass must be frozen and compare by its fields; declare it with @dataclass(frozen=True)"
    if kind.__eq__ is object.__eq__:
        return "its objects are equal only to themselves, which no other process can check; use a tuple"
    return "its own __eq__ cannot be carried over to bytes; use a tuple, a NamedTuple or a frozen dataclass"


def _is_plain(key: Any) -> bool:
    """Returns whether the encoded bytes alone give back the key with its type."""
    kind = type(key)
    if kind is float:
        return not key.is_integer()
    if kind is tuple:
        return all(map(_is_plain, key))
    return kind in (str, int, bytes, type(None))


def _decode(cell: bytes) -> object:
    tag, body = cell[:1], cell[1:]
    if tag == b"s":
        return body.decode("utf-8", "surrogatepass")
    if tag == b"i":
        return _INT64.unpack(body)[0] - 2**63
    if tag == b"b":
        return body
    if tag == b"f":
        return _FLOAT64.unpack(body)[0]
    if tag == b"N":
        return None
    if tag == b"I":
        return int(body)
    if tag == b"t":
        return tuple(map(_decode, _split(body)))
    raise ValueError(f"not a plain key: tag {tag!r}")


def _split(body: bytes) -> list[bytes]:
    (count,) = _LENGTH.unpack_from(body)
    parts, at = [], _LENGTH.size
    for _ in range(count):
        (length,) = _LENGTH.unpack_from(body, at)
        at += _LENGTH.size
        parts.append(body[at : at + length])
        at += length
    return parts


def _encode_column(keys: Sequence[Any]) -> pa.BinaryArray | None:
    """Encodes keys of one plain type by array operations; returns None if they are not of one plain type."""
    kinds = set(map(type, keys))
    if len(kinds) != 1:
        return None
    kind = kinds.pop()
    if kind is str:
        try:
            return tag_cells(b"s", pa.array(keys, pa.string()).cast(pa.binary()))
        except (UnicodeEncodeError, pa.ArrowInvalid):  # a lone surrogate, or more than 2 GB of text
            return None
    if kind is bytes:
        return tag_cells(b"b", pa.array(keys, pa.binary()))
    if kind is int:
        try:
            return encode_ints(np.array(keys, dtype="<i8"))
        except OverflowError:
            return None
    if kind is tuple:
        widths = set(map(len, keys))
        if len(widths) != 1 or not (width := widths.pop()):
            return None
        columns = [_encode_column(list(map(itemgetter(part), keys))) for part in range(width)]
        if any(column is None for column in columns):
            return None
        return encode_tuples([column for column in columns if column is not None])
    return None


def encode_tuples(columns: Sequence[pa.BinaryArray]) -> pa.BinaryArray:
    """Encodes keys that are tuples, from the encoded columns of their parts.

    >>> encode_tuples([encode_keys(["a", "b"])[0], encode_keys([1, 2])[0]]).equals(encode_keys([("a", 1), ("b", 2)])[0])
    True
    """
    parts: list[object] = [pa.scalar(b"t" + _LENGTH.pack(len(columns)))]
    for column in columns:
        lengths = pc.binary_length(column).to_numpy(zero_copy_only=False).astype("<u4")
        parts += [tag_numbers(b"", lengths), column]
    return pc.binary_join_element_wise(*parts, b"")


def encode_ints(numbers: np.ndarray) -> pa.BinaryArray:
    """Encodes keys that are ints of 64 bits, by array operations.

    >>> encode_ints(np.array([1])).equals(encode_keys([1])[0])
    True
    """
    return tag_numbers(b"i", (numbers.astype("<i8").view("<u8") ^ np.uint64(2**63)).byteswap())


def tag_cells(tag: bytes, cells: pa.BinaryArray) -> pa.BinaryArray:
    """Puts a tag before each cell.

    >>> tag_cells(b"s", pa.array([b"a"])).to_pylist()
    [b'sa']
    """
    return pc.binary_join_element_wise(pa.scalar(tag), cells, b"")


def tag_numbers(tag: bytes, numbers: np.ndarray) -> pa.BinaryArray:
    """Encodes numbers as cells of fixed width: a tag, then the number's bytes.

    >>> tag_numbers(b"i", np.array([1], dtype="<i8")).to_pylist()
    [b'i\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00']
    """
    width = len(tag) + numbers.dtype.itemsize
    cells = np.empty((len(numbers), width), dtype=np.uint8)
    cells[:, : len(tag)] = np.frombuffer(tag, dtype=np.uint8)
    cells[:, len(tag) :] = numbers.view(np.uint8).reshape(len(numbers), numbers.dtype.itemsize)
    offsets = np.arange(len(numbers) + 1, dtype=np.int32) * width
    return pa.BinaryArray.from_buffers(pa.binary(), len(numbers), [None, pa.py_buffer(offsets), pa.py_buffer(cells)])
