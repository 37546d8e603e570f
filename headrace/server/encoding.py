"""Answers as JSON. Times are ISO 8601, or null where a window has no end; durations are seconds; bytes are Base64.

What JSON has no number for is text: "NaN", "Infinity", "-Infinity".
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from starlette.responses import Response

from headrace.model.times import MAX_TIME, MIN_TIME, SECOND, format_instant
from headrace.views.layout import Layout
from headrace.views.queries import Answer, Provenance, Row
from headrace.views.stores.versions import Version


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


def answer(view: str, found: Answer) -> dict[str, Any]:
    """The rows of an answer and where they come from."""
    return {
        "view": view,
        "rows": [row(each) for each in found.rows],
        "next": found.next,
        **provenance(found.provenance),
    }


def row(found: Row) -> dict[str, Any]:
    """A row of an answer; it names those of its values that are approximate, if some are."""
    start, end = found.window
    shown = {"key": found.key, "window": {"start": time(start), "end": time(end)}, "values": found.values}
    return shown | {"approximate": found.approximate} if found.approximate else shown


def provenance(found: Provenance) -> dict[str, Any]:
    """Where an answer comes from."""
    return {
        "version": found.version,
        "boundary": found.boundary,
        "reached": found.reached,
        "watermark": time(found.watermark),
        "updated": time(found.updated),
        "freshness": None if found.freshness is None else found.freshness / SECOND,
    }


def version(found: Version) -> dict[str, Any]:
    """A batch version."""
    return {
        "version": found.number,
        "boundary": found.boundary,
        "base": found.base,
        "rows": found.rows,
        "made": time(found.made),
        "current": found.current,
    }


def layout(found: Layout) -> dict[str, Any]:
    """What a view is."""
    return {
        "name": found.name,
        "keys": {name: kind.name for name, kind in zip(found.keys, found.types, strict=True)},
        "aggregates": list(found.aggregations),
        "window": found.window,
    }


@lru_cache(4096)
def time(us: int | None) -> str | None:
    """A time, or None for none and for the ends of time."""
    return None if us is None or not MIN_TIME < us < MAX_TIME else format_instant(us)


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
