"""Schemas of views for the OpenAPI document: the parameters of a query, rows, provenance, versions and events."""

from __future__ import annotations

from typing import Final

from headrace.server.http.openapi import (
    ANYTHING,
    BOOLEAN,
    COUNT,
    STRING,
    TIME,
    Schema,
    array,
    json_text,
    mapping,
    nullable,
    parameter,
    record,
)
from headrace.views.declare.layout import Layout
from headrace.views.query.queries import MOST_ROWS

_INT64: Final = {"type": "integer", "format": "int64", "minimum": -(1 << 63), "maximum": (1 << 63) - 1}
_KEYS: Final[dict[str, Schema]] = {
    "string": STRING,
    "bigint": _INT64,
    "boolean": BOOLEAN,
    "date": {"type": "string", "format": "date"},
    "timestamp": TIME,
    "binary": {"type": "string", "contentEncoding": "base64"},
}
# In a query string all values are text; Base64 has an alphabet that URLs have.
_QUERY_KEYS: Final[dict[str, Schema]] = {**_KEYS, "binary": {"type": "string", "pattern": "^([A-Za-z0-9_-]{4})*$"}}
_ROWS: Final = {"type": "integer", "minimum": 1, "maximum": MOST_ROWS, "default": 100}

_PROVENANCE: Final[dict[str, Schema]] = {
    "version": nullable(COUNT),
    "boundary": mapping(COUNT),
    "reached": mapping(COUNT),
    "watermark": nullable(TIME),
    "updated": nullable(TIME),
    "freshness": nullable({"type": "number"}),
}
PROVENANCE: Final = record(_PROVENANCE)
"""Where an answer comes from."""

_VERSION: Final = record(
    {
        "version": COUNT,
        "boundary": mapping(COUNT),
        "base": nullable(COUNT),
        "rows": COUNT,
        "made": TIME,
        "current": BOOLEAN,
    }
)
_VIEW: Final = record(
    {"name": STRING, "keys": mapping(STRING), "aggregates": array(STRING), "window": STRING, **_PROVENANCE}
)
VIEWS: Final = record({"views": array(_VIEW)})
"""The response of GET /views."""


def query_parameters(layout: Layout) -> tuple[Schema, ...]:
    """Describes the parameters of a query of a view.

    >>> import headrace as hr
    >>> hits = Layout.of("hits", keys={"day": "date"}, aggregations={"n": hr.count()})
    >>> query_parameters(hits)[0]
    {'name': 'day', 'in': 'query', 'schema': {'type': 'string', 'format': 'date'}, 'description': 'The key day is this'}
    """
    described = []
    for key, kind in zip(layout.keys, layout.types, strict=True):
        schema = _QUERY_KEYS[kind.name]
        described.append(parameter(key, schema, f"The key {key} is this"))
        if kind.name == "string":
            described.append(parameter(f"{key}.prefix", schema, f"{key} begins with this"))
        described.append(parameter(f"{key}.from", schema, f"{key} is not before this"))
        described.append(parameter(f"{key}.to", schema, f"{key} is not after this"))
        described.append(parameter(f"{key}.null", {"enum": ["true"]}, f"{key} is null"))
    names = array({"enum": list(layout.keys)})
    by = parameter("by", names, "The keys that stay apart, with commas; rows of others are merged")
    top = {"type": "string", "pattern": f"^({'|'.join(layout.aggregations)}):[1-9][0-9]{{0,3}}$"}
    return (
        *described,
        parameter("from", TIME, "Windows that begin at this time or after it"),
        parameter("to", TIME, "Windows that begin before this time"),
        *([by | {"style": "form", "explode": False}] if layout.keys else []),
        parameter("windows", {"enum": ["merged"]}, "Merges windows as well"),
        parameter("top", top, "The n rows with the largest"),
        parameter("limit", _ROWS, "Rows of a page"),
        parameter("after", STRING, "The `next` of the page before"),
        parameter("layer", {"enum": ["merged", "batch", "speed"]}, "One part of the answer alone"),
    )


def answer_schema(layout: Layout) -> Schema:
    """Describes the answer of a view to a query."""
    return record(
        {"view": {"const": layout.name}, "rows": array(row_schema(layout)), "next": nullable(STRING), **_PROVENANCE}
    )


def event_schema(layout: Layout) -> Schema:
    """Describes a server-sent event of a view, whose data is JSON."""
    row = row_schema(layout)
    gone = record({name: row["properties"][name] for name in ("key", "window")})
    progress = record({"next": nullable(STRING), **_PROVENANCE})
    kinds = {"row": row, "gone": gone, "progress": progress}
    return {"oneOf": [record({"event": {"const": name}, "data": json_text(data)}) for name, data in kinds.items()]}


def versions_schema(layout: Layout) -> Schema:
    """Describes the batch versions of a view."""
    return record({"view": {"const": layout.name}, "versions": array(_VERSION)})


def row_schema(layout: Layout) -> Schema:
    """Describes a row: its key, of which `by` may leave a part, its window and its values."""
    keys = {name: nullable(_KEYS[kind.name]) for name, kind in zip(layout.keys, layout.types, strict=True)}
    return record(
        {
            "key": record(keys, optional=keys),
            "window": record({"start": nullable(TIME), "end": nullable(TIME)}),
            "values": record(dict.fromkeys(layout.aggregations, ANYTHING)),
            "approximate": array({"enum": list(layout.aggregations)}),
        },
        optional=["approximate"],
    )
