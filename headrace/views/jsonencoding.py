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


def encode_answer(view: str, found: Answer) -> dict[str, Any]:
    """The rows of an answer and where they come from."""
    return {
        "view": view,
        "rows": [encode_row(each) for each in found.rows],
        "next": found.next,
        **encode_provenance(found.provenance),
    }


def encode_row(found: Row) -> dict[str, Any]:
    """A row of an answer; it names those of its values that are approximate, if some are."""
    start, end = found.window
    shown = {"key": found.key, "window": {"start": encode_time(start), "end": encode_time(end)}, "values": found.values}
    return shown | {"approximate": found.approximate} if found.approximate else shown


def encode_provenance(found: Provenance) -> dict[str, Any]:
    """Where an answer comes from."""
    return {
        "version": found.version,
        "boundary": found.boundary,
        "reached": found.reached,
        "watermark": encode_time(found.watermark),
        "updated": encode_time(found.updated),
        "freshness": None if found.freshness is None else found.freshness / SECOND,
    }


def encode_version(found: Version) -> dict[str, Any]:
    """A batch version."""
    return {
        "version": found.number,
        "boundary": found.boundary,
        "base": found.base,
        "rows": found.rows,
        "made": encode_time(found.made),
        "current": found.current,
    }


def encode_layout(found: Layout) -> dict[str, Any]:
    """What a view is."""
    return {
        "name": found.name,
        "keys": {name: kind.name for name, kind in zip(found.keys, found.types, strict=True)},
        "aggregates": list(found.aggregations),
        "window": found.window,
    }


@lru_cache(4096)
def encode_time(us: int | None) -> str | None:
    """A time, or None for none and for the ends of time."""
    return None if us is None or not MIN_TIME < us < MAX_TIME else format_instant(us)
