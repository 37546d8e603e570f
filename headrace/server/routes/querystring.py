"""Reads queries of views from the query string of a URL.

url=foo.com/blog            the key url is this; `url.is` says the same, for keys with the name of an option
url.prefix=foo.com/         begins with this
url.from=a  url.to=m        is from this to that, both included
url.null=true               is null
from=  to=                  windows that begin at or after the one, and before the other
by=url,country  by=         the keys that stay apart; rows that differ in others only are merged
windows=merged              merges windows as well
top=hits:10                 the ten rows with the most hits
limit=  after=              a page, and the `next` of the answer before
layer=batch  layer=speed    that part of the answer alone
"""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import parse_qsl

from headrace.model.times import Instant, instant
from headrace.views.declare.layout import Layout
from headrace.views.errors import ViewError
from headrace.views.query.queries import Between, Prefix, Query

_MAX_PARAMETERS: Final = 100
_FORMS: Final = ("is", "prefix", "from", "to", "null")


def query_of(layout: Layout, text: str) -> Query:
    """Reads a query string. Names are those of the view's keys, and options.

    >>> import headrace as hr
    >>> hits = Layout.of("hits", keys={"url": "string", "day": "date"}, aggregations={"n": hr.count()})
    >>> query = query_of(hits, "url.prefix=foo.com%2F&from=2026-01-31&top=n:10")
    >>> query.key, str(query.since), query.top
    ({'url': Prefix(text='foo.com/')}, '2026-01-31T00:00:00Z', ('n', 10))
    >>> query_of(hits, "uri=foo.com")
    Traceback (most recent call last):
        ...
    headrace.views.errors.ViewError: view 'hits' has no parameter 'uri'; there are its keys url, day (also with .is, \
.prefix, .from, .to, .null) and after, by, from, layer, limit, to, top, windows
    """
    key: dict[str, Any] = {}
    ranges: dict[str, dict[str, Any]] = {}
    options: dict[str, Any] = {}
    for name, value in _pairs(text):
        if name in _OPTIONS:
            field, read = _OPTIONS[name]
            options[field] = read(name, value)
            continue
        column, dot, form = name.partition(".")
        if column not in layout.keys or (dot and form not in _FORMS):
            keys = f"its keys {', '.join(layout.keys)} (also with .{', .'.join(_FORMS)}) and " if layout.keys else ""
            there = f"{keys}{', '.join(sorted(_OPTIONS))}"
            raise ViewError(f"view {layout.name!r} has no parameter {name!r}; there are {there}")
        if form in ("from", "to"):
            ranges.setdefault(column, {})["low" if form == "from" else "high"] = _key(layout, column, value)
        elif column in key:
            raise ViewError(f"the key {column!r} is asked for in two forms; give one")
        elif form == "prefix":
            key[column] = Prefix(value)
        elif form == "null":
            if value != "true":
                raise ViewError(f"{name} is 'true' or not given, got {value!r}")
            key[column] = None
        else:
            key[column] = _key(layout, column, value)
    for column, between in ranges.items():
        if column in key:
            raise ViewError(f"the key {column!r} is asked for in two forms; give one")
        key[column] = Between(**between)
    return Query(key=key, **options)


def _pairs(text: str) -> list[tuple[str, str]]:
    try:
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=_MAX_PARAMETERS)
    except ValueError:
        raise ViewError(f"a query string has at most {_MAX_PARAMETERS} parameters, in UTF-8") from None
    names = {name for name, _ in pairs}
    if len(names) < len(pairs):
        twice = next(name for name in names if sum(name == other for other, _ in pairs) > 1)
        raise ViewError(f"the parameter {twice!r} is given twice; give it once")
    return pairs


def _key(layout: Layout, column: str, value: str) -> Any:
    kind = layout.types[layout.keys.index(column)].name
    if kind == "string":
        return value
    try:
        return _PARSERS[kind](value)
    except (ValueError, KeyError):
        raise ViewError(f"the key {column!r} is a {kind}, written {_NOTATIONS[kind]}; got {value!r}") from None


def _time(name: str, value: str) -> Instant:
    try:
        return Instant(instant(value))
    except ValueError:
        raise ViewError(f"{name} is a time such as 2026-01-31T12:00:00Z, got {value!r}") from None


def _integer(value: str) -> int:
    if not value.removeprefix("-").isdecimal() or not value.isascii() or len(value) > 20:
        raise ValueError(value)
    return int(value)


def _rows(name: str, value: str) -> int:
    try:
        return _integer(value)
    except ValueError:
        raise ViewError(f"{name} is a number of rows, got {value!r}") from None


def _top(name: str, value: str) -> tuple[str, int]:
    aggregation, _, n = value.rpartition(":")
    return aggregation, _rows(f"{name} is AGGREGATION:N, and N", n)


def _is_merged(name: str, value: str) -> bool:
    if value != "merged":
        raise ViewError(f"{name} is 'merged' or not given, got {value!r}")
    return True


def _text(name: str, value: str) -> str:
    return value


def _names(name: str, value: str) -> tuple[str, ...]:
    return tuple(value.split(",")) if value else ()


_OPTIONS: Final[dict[str, tuple[str, Callable[[str, str], Any]]]] = {
    "from": ("since", _time),
    "to": ("until", _time),
    "by": ("by", _names),
    "windows": ("across_windows", _is_merged),
    "top": ("top", _top),
    "limit": ("limit", _rows),
    "after": ("after", _text),
    "layer": ("layer", _text),
}
_PARSERS: Final[dict[str, Callable[[str], Any]]] = {
    "bigint": _integer,
    "boolean": {"true": True, "false": False}.__getitem__,
    "date": dt.date.fromisoformat,
    "timestamp": lambda value: Instant(instant(value)),
    "binary": lambda value: base64.b64decode(value, altchars=b"-_", validate=True),
}
_NOTATIONS: Final = {
    "bigint": "as a whole number",
    "boolean": "true or false",
    "date": "2026-01-31",
    "timestamp": "2026-01-31T12:00:00Z",
    "binary": "in Base64 for URLs",
}
