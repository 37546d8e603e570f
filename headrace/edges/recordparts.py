"""Keys and timestamps of records, by columns or functions of the elements that they are made of."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from headrace.edges.jsoncolumns import json_text
from headrace.log import LogError

Part = str | Callable[[Any], Any] | None
"""Where a key or a timestamp comes from: a column, a function of the element, or nothing."""


def key_bytes(key: Any) -> bytes | None:
    """Encodes the key of a record: bytes as they are, text as UTF-8, other values as JSON.

    >>> key_bytes("ann"), key_bytes(True)
    (b'ann', b'true')
    """
    if key is None or isinstance(key, bytes):
        return key
    return (key if isinstance(key, str) else json_text(key)).encode()


def parts_of(elements: Sequence[Any], part: Part) -> Iterable[Any]:
    """Returns the key or the timestamp of each element.

    >>> list(parts_of([{"user": "ann"}, {"user": "bob"}], "user"))
    ['ann', 'bob']
    """
    if part is None:
        return [None] * len(elements)
    return map(part, elements) if callable(part) else (_field(element, part) for element in elements)


def _field(element: Any, name: str) -> Any:
    fields = mapping_of(element)
    if name not in fields:
        raise LogError(f"there is no column {name!r} in {element!r}")
    return fields[name]


def mapping_of(element: Any) -> Mapping[str, Any]:
    """Returns the columns of an element, which must have some."""
    fields = element if isinstance(element, Mapping) else fields_of(element)
    if fields is None:
        raise LogError(f"{element!r} has no named columns; write dicts, NamedTuples, dataclasses or rows")
    return fields


def fields_of(element: Any) -> dict[str, Any] | None:
    """Returns the columns of a named tuple or dataclass; None for other objects."""
    if hasattr(element, "_asdict"):
        return dict(element._asdict())
    if dataclasses.is_dataclass(element) and not isinstance(element, type):
        return {field.name: getattr(element, field.name) for field in dataclasses.fields(element)}
    return None
