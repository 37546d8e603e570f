"""Questions of the view explorer: what a visitor typed, as the API's parameters, and all parts of the answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal
from urllib.parse import urlencode

from headrace.server.page.plot import Parts, has_time
from headrace.server.routes.querystring import query_of
from headrace.views.query.queries import MOST_ROWS, Answer, Layer, Query
from headrace.views.stores.store import StoredView

ROWS: Final = 100
"""Rows of a page of the table."""

_KEYS: Final = 30  # keys in a plot of a view without windows
_TRIES: Final = 5

Match = Literal["is", "prefix"]


@dataclass(frozen=True)
class Question:
    """What was typed. Keys and times without text are not asked for."""

    view: str
    aggregate: str
    keys: Mapping[str, tuple[Match, str]] = field(default_factory=dict)
    since: str = ""
    until: str = ""
    largest: bool = False
    after: str | None = None

    def text(self) -> str:
        """The question as the API's query string.

        >>> Question("visitors", "hits", {"url": ("prefix", "foo.com/")}, since="2026-01-31", largest=True).text()
        'url.prefix=foo.com%2F&from=2026-01-31&top=hits%3A100'
        """
        asked = {f"{key}.{match}": text for key, (match, text) in self.keys.items() if text}
        asked |= {name: text.strip() for name, text in (("from", self.since), ("to", self.until)) if text.strip()}
        if self.largest:
            asked["top"] = f"{self.aggregate}:{ROWS}"
        elif self.after is not None:
            asked["after"] = self.after
        return urlencode(asked)


@dataclass(frozen=True)
class Found:
    """A page of rows, and the rows for the plot with its parts."""

    page: Answer
    parts: Parts


def asked(view: StoredView, question: Question) -> Found:
    """The answer of a view. All of it is of one version: batch of one and speed of another would not add up."""
    query = query_of(view.layout, question.text())
    for _ in range(_TRIES):
        page = view.answer(query)
        answers = _plotted(view, replace(query, top=None, after=None), question.aggregate)
        if len({each.provenance.version for each in (page, *answers)}) == 1:
            break
    merged, batch, speed = (each.rows for each in answers)
    return Found(page, Parts(merged, batch, speed))


def _plotted(view: StoredView, query: Query, aggregate: str) -> list[Answer]:
    """What a plot shows, merged and by layer: keys together over windows, or the largest keys if there are none."""
    layers: tuple[Layer, ...] = ("merged", "batch", "speed")
    together = replace(query, by=(), limit=MOST_ROWS)
    first = view.answer(together)
    if not first.rows or has_time(first.rows[0]):
        return [first, *(view.answer(replace(together, layer=layer)) for layer in layers[1:])]
    largest = view.answer(replace(query, top=(aggregate, _KEYS)))
    found = [largest]
    for layer in layers[1:]:
        rows = [row for each in largest.rows for row in view.answer(Query(key=each.key, layer=layer)).rows]
        found.append(replace(largest, rows=rows, provenance=view.provenance()))
    return found
