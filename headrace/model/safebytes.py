"""Encodes accumulators as bytes for stores, without pickles: decoding them runs no code.

A store may be shared or restored from a backup, so its bytes are not trusted as a checkpoint's are.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from headrace.model.errors import HeadraceError

_BYTES, _JSON = b"b", b"j"


class EncodingError(HeadraceError, ValueError):
    """A value cannot be encoded, or bytes cannot be decoded."""


def encode(value: Any) -> bytes:
    """Encodes what `CombineFn.dump` returned as bytes.

    >>> decode(encode([("a", 1.5), None, b"sketch", {"x": 2}]))
    [('a', 1.5), None, b'sketch', {'x': 2}]
    >>> encode(object())
    Traceback (most recent call last):
        ...
    headrace.model.safebytes.EncodingError: a store cannot keep a value of type object; map it to text, a number, a \
time or bytes first
    """
    if type(value) is bytes:
        return _BYTES + value
    return _JSON + json.dumps(_plain(value), separators=(",", ":"), allow_nan=False).encode()


def decode(data: bytes) -> Any:
    """Decodes what `encode` returned."""
    kind, body = data[:1], data[1:]
    if kind == _BYTES:
        return bytes(body)
    try:
        if kind == _JSON:
            return _value(json.loads(body))
    except (ValueError, KeyError, TypeError, ArithmeticError, RecursionError):
        pass
    raise EncodingError(f"these are not the bytes of an accumulator: {data[:40]!r}; compute the view anew")


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind in (str, int, bool, type(None)) or (kind is float and math.isfinite(value)):
        return value
    if kind is list:
        return [_plain(item) for item in value]
    if kind not in _TAGS:
        raise EncodingError(
            f"a store cannot keep a value of type {kind.__name__}; map it to text, a number, a time or bytes first"
        )
    tag, write = _TAGS[kind]
    return {tag: write(value)}


def _value(plain: Any) -> Any:
    if isinstance(plain, list):
        return [_value(item) for item in plain]
    if isinstance(plain, dict):
        ((tag, inner),) = plain.items()
        return _READERS[tag](inner)
    return plain


_TAGS: Final[dict[type, tuple[str, Callable[[Any], Any]]]] = {
    tuple: ("t", lambda value: [_plain(item) for item in value]),
    dict: ("m", lambda value: [[_plain(key), _plain(item)] for key, item in value.items()]),
    bytes: ("b", lambda value: base64.b64encode(value).decode()),
    float: ("f", str),  # nan and the infinities, which JSON does not have
    dt.datetime: ("d", dt.datetime.isoformat),
    dt.date: ("y", dt.date.isoformat),
    dt.timedelta: ("s", lambda value: value // dt.timedelta(microseconds=1)),
    Decimal: ("n", str),
}

_READERS: Final[dict[str, Callable[[Any], Any]]] = {
    "t": lambda inner: tuple(_value(item) for item in inner),
    "m": lambda inner: {_value(key): _value(item) for key, item in inner},
    "b": lambda inner: base64.b64decode(inner, validate=True),
    "f": float,
    "d": dt.datetime.fromisoformat,
    "y": dt.date.fromisoformat,
    "s": lambda inner: dt.timedelta(microseconds=inner),
    "n": Decimal,
}
