"""What one asks of a view, and what one gets: rows, and where they come from."""

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
"""As many rows as a page can have."""


@dataclass(frozen=True)
class Prefix:
    """Keys that begin with this text.

    >>> Query(key={"url": Prefix("foo.com/")}).key
    {'url': Prefix(text='foo.com/')}
    """

    text: str


@dataclass(frozen=True)
class Between:
    """Keys from `low` to `high`, both included; None leaves a side open.

    >>> Between("a", "m")
    Between(low='a', high='m')
    """

    low: Any = None
    high: Any = None


@dataclass(frozen=True)
class Query:
    """Which rows of a view, and in which form.

    - key: by the names of keys, a value (None is null), a Prefix or a Between; keys that are left out may be anything
    - since, until: windows that begin at or after the one and before the other
    - by: the keys that stay apart; rows that differ in others only are merged. Without it, all stay apart
    - across_windows: merges windows as well
    - top: (aggregation, n), the n rows with the largest answers, largest first; ties in the order of keys
    - limit, after: a page of rows in the order of keys and windows, and the `next` of the answer before
    - layer: "batch" or "speed" is that part of the answer alone

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
            given = getattr(self, name)
            if given is not None:
                object.__setattr__(self, name, _instant(name, given))
        for what, rows in (("limit", self.limit), *((("top", self.top[1]),) if self.top else ())):
            if type(rows) is not int or not 1 <= rows <= MOST_ROWS:
                raise ViewError(f"a page has from 1 to {MOST_ROWS} rows, got {what}={rows!r}")
        if self.top and self.after is not None:
            raise ViewError("the largest answers are one page; give top or after, not both")
        if self.layer not in ("merged", "batch", "speed"):
            raise ViewError(f"a layer is 'merged', 'batch' or 'speed', got {self.layer!r}")


@dataclass(frozen=True)
class Row:
    """One row of an answer. `approximate` names those of its values that are estimates; all others are exact."""

    key: dict[str, Any]
    window: Window
    values: dict[str, Any]
    approximate: tuple[str, ...] = ()


@dataclass(frozen=True)
class Provenance:
    """Where an answer comes from: all events before `boundary` from a batch version, those up to `reached` from speed.

    `version` is None if no batch has run. `watermark`, `updated` and `freshness` are the speed layer's: its watermark,
    when its last micro-batch came in, and how long before the answer that was, in microseconds.
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
    """The rows, where they come from, and what to give as `after` for the next page, if there is one."""

    rows: list[Row]
    provenance: Provenance
    next: str | None = None


def dump_place(place: Place) -> str:
    """A place as text that can be a part of a URL."""
    return base64.urlsafe_b64encode(encode(place)).decode().rstrip("=")


def load_place(layout: Layout, text: str) -> Place:
    """The place of such a text, which may come from anywhere.

    >>> layout = Layout.of("hits", keys={"url": "string"}, aggregations={})
    >>> load_place(layout, dump_place(("foo.com", 0, 0, 60)))
    ('foo.com', 0, 0, 60)
    >>> load_place(layout, "Zm9v")
    Traceback (most recent call last):
        ...
    headrace.views.errors.ViewError: 'Zm9v' is not where a page of 'hits' ends; give the `next` of the answer before
    """
    try:
        found = decode(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
    except (binascii.Error, ViewError, ValueError):
        found = None
    if not isinstance(found, tuple) or not layout.is_place(found):
        raise ViewError(
            f"{text!r} is not where a page of {layout.name!r} ends; give the `next` of the answer before"
        ) from None
    return found


def _instant(name: str, given: Any) -> Instant:
    try:
        return Instant(instant(given))  # which stays itself when a query is copied
    except (TypeError, ValueError) as error:
        raise ViewError(f"{name} is a time; {error}") from None
