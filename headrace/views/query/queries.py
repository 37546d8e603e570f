"""Queries of a view and their answers: rows, and which batch version and offsets they come from."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from headrace.model.safebytes import decode, encode
from headrace.model.times import Instant, instant
from headrace.model.windows import Window
from headrace.views.declare.layout import Layout, Place
from headrace.views.errors import ViewError
from headrace.views.offsets import Offsets

Layer = Literal["merged", "batch", "speed"]

MOST_ROWS: Final = 10_000
"""The maximal number of rows of a page."""


@dataclass(frozen=True)
class Prefix:
    """A condition on a key: it begins with this text.

    >>> Query(key={"url": Prefix("foo.com/")}).key
    {'url': Prefix(text='foo.com/')}
    """

    text: str


@dataclass(frozen=True)
class Between:
    """A condition on a key: it is from `low` to `high`, both included; None leaves a side open.

    >>> Between("a", "m")
    Between(low='a', high='m')
    """

    low: Any = None
    high: Any = None


@dataclass(frozen=True)
class Query:
    """A query of a view: which rows, and how they are merged, ordered and paged.

    - key: by the name of a key, a value (None is null), a Prefix or a Between; a key that is left out may be anything
    - since, until: windows that begin at or after `since` and before `until`
    - by: the keys to group by; rows that differ only in other keys are merged. All keys by default
    - across_windows: merges windows as well
    - top: (aggregation, n), the n rows with the largest results, largest first; ties in the order of keys
    - limit, after: the size of a page, in the order of keys and windows, and the `next` of the answer before
    - layer: "batch" or "speed" for that layer's part of the answer alone

    >>> Query(key={"url": "foo.com/blog"}, since=0, until="1970-01-02").until + "1 day"
    172800000000
    >>> Query(limit=0)
    Traceback (most recent call last):
        ...
    headrace.views.errors.ViewError: a page has from 1 to 10000 rows, got limit=0
    """

    key: Mapping[str, Any] = field(default_factory=dict)
    since: Any = None
    until: Any = None
    by: tuple[str, ...] | None = None
    across_windows: bool = False
    top: tuple[str, int] | None = None
    limit: int = 100
    after: str | None = None
    layer: Layer = "merged"

    def __post_init__(self) -> None:
        for name in ("since", "until"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, _instant(name, value))
        for what, rows in (("limit", self.limit), *((("top", self.top[1]),) if self.top else ())):
            if type(rows) is not int or not 1 <= rows <= MOST_ROWS:
                raise ViewError(f"a page has from 1 to {MOST_ROWS} rows, got {what}={rows!r}")
        if self.top and self.after is not None:
            raise ViewError("a query with top has one page; use top or after, not both")
        if self.layer not in ("merged", "batch", "speed"):
            raise ViewError(f"a layer is 'merged', 'batch' or 'speed', got {self.layer!r}")


@dataclass(frozen=True)
class Row:
    """One row of an answer. `approximate` names the values that are estimates; the others are exact."""

    key: dict[str, Any]
    window: Window
    values: dict[str, Any]
    approximate: tuple[str, ...] = ()


@dataclass(frozen=True)
class Provenance:
    """The origin of an answer: events before `boundary` are from a batch version, those up to `reached` from speed.

    `version` is None if no batch has run. `watermark`, `updated` and `freshness` are of the speed layer: its watermark,
    the time of its last micro-batch, and the age of that at the time of the answer, in microseconds.
    """

    version: int | None
    boundary: Offsets
    generations: range
    batch: int
    reached: Offsets
    watermark: int | None
    updated: int | None
    freshness: int | None


@dataclass(frozen=True)
class Answer:
    """The rows of an answer, their origin, and the `after` of the next page, if there is one."""

    rows: list[Row]
    provenance: Provenance
    next: str | None = None


def dump_place(place: Place) -> str:
    """Encodes a place as text for URLs."""
    return base64.urlsafe_b64encode(encode(place)).decode().rstrip("=")


def load_place(layout: Layout, text: str) -> Place:
    """Decodes what `dump_place` returned; the text is not trusted.

    >>> layout = Layout.of("hits", keys={"url": "string"}, aggregations={})
    >>> load_place(layout, dump_place(("foo.com", 0, 0, 60)))
    ('foo.com', 0, 0, 60)
    >>> load_place(layout, "Zm9v")
    Traceback (most recent call last):
        ...
    headrace.views.errors.ViewError: 'Zm9v' is not the end of a page of 'hits'; use the `next` of the answer before
    """
    try:
        place = decode(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
    except (binascii.Error, ViewError, ValueError):
        place = None
    if not isinstance(place, tuple) or not layout.is_place(place):
        raise ViewError(
            f"{text!r} is not the end of a page of {layout.name!r}; use the `next` of the answer before"
        ) from None
    return place


def _instant(name: str, value: Any) -> Instant:
    try:
        return Instant(instant(value))  # an Instant is unchanged when a query is copied
    except (TypeError, ValueError) as error:
        raise ViewError(f"{name} must be a time; {error}") from None
