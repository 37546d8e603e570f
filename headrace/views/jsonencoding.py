"""Encodes answers, rows, versions and times of views as values that JSON has.

Times are ISO 8601, or null where a window has no end; durations are seconds.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NotRequired, TypedDict

from headrace.model.times import MAX_TIME, MIN_TIME, SECOND, format_instant
from headrace.views.declare.layout import Layout
from headrace.views.offsets import Offsets
from headrace.views.query.queries import Answer, Provenance, Row
from headrace.views.stores.versions import Version


class WindowJson(TypedDict):
    """The start and the end of a window; null for the ends of time."""

    start: str | None
    end: str | None


class RowJson(TypedDict):
    """A row of an answer; `approximate` names its approximate values, if there are any."""

    key: dict[str, Any]
    window: WindowJson
    values: dict[str, Any]
    approximate: NotRequired[tuple[str, ...]]


class ProvenanceJson(TypedDict):
    """The origin of an answer; `freshness` is in seconds."""

    version: int | None
    boundary: Offsets
    reached: Offsets
    watermark: str | None
    updated: str | None
    freshness: float | None


class AnswerJson(ProvenanceJson):
    """An answer: its rows, the `after` of the next page, and its origin."""

    view: str
    rows: list[RowJson]
    next: str | None


class VersionJson(TypedDict):
    """A batch version of a view."""

    version: int
    boundary: Offsets
    base: int | None
    rows: int
    made: str | None
    current: bool


def encode_answer(view: str, answer: Answer) -> AnswerJson:
    """Encodes the rows of an answer and their origin."""
    return {
        "view": view,
        "rows": [encode_row(row) for row in answer.rows],
        "next": answer.next,
        **encode_provenance(answer.provenance),
    }


def encode_row(row: Row) -> RowJson:
    """Encodes a row of an answer; names its approximate values, if there are any."""
    start, end = row.window
    encoded: RowJson = {
        "key": row.key,
        "window": {"start": encode_time(start), "end": encode_time(end)},
        "values": row.values,
    }
    if row.approximate:
        encoded["approximate"] = row.approximate
    return encoded


def encode_provenance(provenance: Provenance) -> ProvenanceJson:
    """Encodes the origin of an answer."""
    return {
        "version": provenance.version,
        "boundary": provenance.boundary,
        "reached": provenance.reached,
        "watermark": encode_time(provenance.watermark),
        "updated": encode_time(provenance.updated),
        "freshness": None if provenance.freshness is None else provenance.freshness / SECOND,
    }


def encode_version(version: Version) -> VersionJson:
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
