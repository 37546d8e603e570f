"""Encodes answers, rows, versions and times of views as values that JSON has.

Times are ISO 8601, or null where a window has no end; durations are seconds.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from headrace.model.times import MAX_TIME, MIN_TIME, SECOND, format_instant
from headrace.views.declare.layout import Layout
from headrace.views.query.queries import Answer, Provenance, Row
from headrace.views.stores.versions import Version


def encode_answer(view: str, answer: Answer) -> dict[str, Any]:
    """Encodes the rows of an answer and their origin."""
    return {
        "view": view,
        "rows": [encode_row(row) for row in answer.rows],
        "next": answer.next,
        **encode_provenance(answer.provenance),
    }


def encode_row(row: Row) -> dict[str, Any]:
    """Encodes a row of an answer; names its approximate values, if there are any."""
    start, end = row.window
    encoded = {"key": row.key, "window": {"start": encode_time(start), "end": encode_time(end)}, "values": row.values}
    return encoded | {"approximate": row.approximate} if row.approximate else encoded


def encode_provenance(provenance: Provenance) -> dict[str, Any]:
    """Encodes the origin of an answer."""
    return {
        "version": provenance.version,
        "boundary": provenance.boundary,
        "reached": provenance.reached,
        "watermark": encode_time(provenance.watermark),
        "updated": encode_time(provenance.updated),
        "freshness": None if provenance.freshness is None else provenance.freshness / SECOND,
    }


def encode_version(version: Version) -> dict[str, Any]:
    """Encodes a batch version."""
    return {
        "version": version.number,
        "boundary": version.boundary,
        "base": version.base,
        "rows": version.rows,
        "made": encode_time(version.made),
        "current": version.current,
    }


def encode_layout(layout: Layout) -> dict[str, Any]:
    """Encodes the columns and windows of a view."""
    return {
        "name": layout.name,
        "keys": {name: kind.name for name, kind in zip(layout.keys, layout.types, strict=True)},
        "aggregates": list(layout.aggregations),
        "window": layout.window,
    }


@lru_cache(4096)
def encode_time(us: int | None) -> str | None:
    """Encodes a time; None for none and for the ends of time."""
    return None if us is None or not MIN_TIME < us < MAX_TIME else format_instant(us)
