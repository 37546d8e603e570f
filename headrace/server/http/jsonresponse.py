"""JSON responses. Dates and times are ISO 8601, durations are seconds, bytes are Base64.

Numbers that JSON lacks are strings: "NaN", "Infinity", "-Infinity".
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import Response


def dumps(value: Any) -> bytes:
    """JSON of a value that a view or a statement can give.

    >>> dumps({"p": float("nan"), "n": 3, "day": dt.date(2026, 1, 31), "sketch": b"\\x00"}).decode()
    '{"p":"NaN","n":3,"day":"2026-01-31","sketch":"AA=="}'
    """
    try:
        return _JSON.encode(value).encode()
    except (ValueError, TypeError):  # numbers that JSON has not, lone surrogates, keys that are not text
        return _ASCII.encode(_plain(value)).encode()


class Json(Response):
    """An answer as JSON.

    >>> Json({"n": 3}, 400, {"Retry-After": "1"}).raw_headers
    [(b'content-length', b'7'), (b'content-type', b'application/json'), (b'retry-after', b'1')]
    """

    media_type = "application/json"

    def __init__(self, content: Any, status_code: int = 200, headers: Mapping[str, str] | None = None) -> None:
        self.status_code, self.background = status_code, None
        self.body = dumps(content)
        # What Starlette would make of it, which looks first at what is there already.
        self.raw_headers = [(b"content-length", b"%d" % len(self.body)), _TYPE]
        if headers:
            self.raw_headers += [(name.lower().encode(), value.encode()) for name, value in headers.items()]


def _other(value: Any) -> Any:
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
    return str(value)  # decimals, identifiers


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {key if isinstance(key, str) else dumps(key).decode(): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value if isinstance(value, str | int | float | None) else _plain(_other(value))


_TYPE: Final = (b"content-type", b"application/json")
_JSON: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_other)
_ASCII: Final = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
