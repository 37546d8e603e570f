"""What OpenAPI says of requests that this server reads itself: the parameters of a view, and bodies."""

from __future__ import annotations

from typing import Any, Final

from headrace.views.declare.layout import Layout
from headrace.views.query.queries import MOST_ROWS

_TYPES: Final[dict[str, dict[str, Any]]] = {
    "string": {"type": "string"},
    "bigint": {"type": "integer", "format": "int64"},
    "boolean": {"type": "boolean"},
    "date": {"type": "string", "format": "date"},
    "timestamp": {"type": "string", "format": "date-time"},
    "binary": {"type": "string", "format": "base64url"},
}
_TIME: Final = _TYPES["timestamp"]
_ROWS: Final = {"type": "integer", "minimum": 1, "maximum": MOST_ROWS, "default": 100}


def parameters(layout: Layout) -> list[dict[str, Any]]:
    """The parameters of a view.

    >>> import headrace as hr
    >>> hits = Layout.of("hits", keys={"day": "date"}, aggregations={"n": hr.count()})
    >>> parameters(hits)[0]
    {'name': 'day', 'in': 'query', 'schema': {'type': 'string', 'format': 'date'}, 'description': 'The key day is this'}
    """
    found = []
    for key, kind in zip(layout.keys, layout.types, strict=True):
        schema = _TYPES[kind.name]
        found.append(_parameter(key, schema, f"The key {key} is this"))
        if kind.name == "string":
            found.append(_parameter(f"{key}.prefix", schema, f"{key} begins with this"))
        found.append(_parameter(f"{key}.from", schema, f"{key} is not before this"))
        found.append(_parameter(f"{key}.to", schema, f"{key} is not after this"))
        found.append(_parameter(f"{key}.null", {"enum": ["true"]}, f"{key} is null"))
    aggregations = "|".join(layout.aggregations)
    return [
        *found,
        _parameter("from", _TIME, "Windows that begin at this time or after it"),
        _parameter("to", _TIME, "Windows that begin before this time"),
        _parameter("by", {"type": "string"}, "The keys that stay apart, with commas; rows of others are merged"),
        _parameter("windows", {"enum": ["merged"]}, "Merges windows as well"),
        _parameter("top", {"type": "string", "pattern": f"^({aggregations}):\\d+$"}, "The n rows with the largest"),
        _parameter("limit", _ROWS, "Rows of a page"),
        _parameter("after", {"type": "string"}, "The `next` of the page before"),
        _parameter("layer", {"enum": ["merged", "batch", "speed"]}, "One part of the answer alone"),
    ]


def body(kind: str, schema: dict[str, Any], description: str) -> dict[str, Any]:
    """The body of a request."""
    content = {kind: {"schema": schema}}
    return {"requestBody": {"required": True, "description": description, "content": content}}


def _parameter(name: str, schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "schema": schema, "description": description}
