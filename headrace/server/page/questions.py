"""Questions of the view explorer: the visitor's input as parameters of the API, and the answer with its layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal
from urllib.parse import urlencode

from headrace.server.page.plot import LayerRows, has_time
from headrace.server.routes.querystring import query_of
from headrace.views.query.queries import MOST_ROWS, Answer, Layer, Query
from headrace.views.stores.store import StoredView

ROWS: Final = 100
"""Rows of a page of the table."""

_MAX_KEYS: Final = 30  # in a plot of a view without windows
_TRIES: Final = 5

Match = Literal["is", "prefix"]


@dataclass(frozen=True)
class Question:
    """The visitor's input. Keys and times without text are left out of the query."""

    view: str
    aggregate: str
    keys: Mapping[str, tuple[Match, str]] = field(default_factory=dict)
    since: str = ""
    until: str = ""
    largest: bool = False
    after: str | None = None

    def text(self) -> str:
        """Returns the query string of the API.

        >>> Question("visitors", "hits", {"url": ("prefix", "foo.com/")}, since="2026-01-31", largest=True).text()
        'url.prefix=foo.com%2F&from=2026-01-31&top=hits%3A100'
        """
        parameters = {f"{key}.{match}": text for key, (match, text) in self.keys.items() if text}
        parameters |= {name: text.strip() for name, text in (("from", self.since), ("to", self.until)) if text.strip()}
        if self.largest:
            parameters["top"] = f"{self.aggregate}:{ROWS}"
        elif self.after is not None:
            parameters["after"] = self.after
        return urlencode(parameters)


@dataclass(frozen=True)
class ExplorerAnswer:
    """A page of rows for the table, and the rows of each layer for the plot."""

    page: Answer
    layers: LayerRows


def ask(view: StoredView, question: Question) -> ExplorerAnswer:
    """Queries a view. All of the answer is of one version: batch of one and speed of another would not add up."""
    query = query_of(view.layout, question.text())
    for _ in range(_TRIES):
        page = view.answer(query)
        answers = _plot_answers(view, replace(query, top=None, after=None), question.aggregate)
        if len({answer.provenance.version for answer in (page, *answers)}) == 1:
            break
    merged, batch, speed = (answer.rows for answer in answers)
    return ExplorerAnswer(page, LayerRows(merged, batch, speed))


def _plot_answers(view: StoredView, query: Query, aggregate: str) -> list[Answer]:
    """Returns the answers for a plot, merged and by layer: over windows, or of the largest keys if there are none."""
    layers: tuple[Layer, ...] = ("merged", "batch", "speed")
    by_window = replace(query, by=(), limit=MOST_ROWS)
    first = view.answer(by_window)
    if not first.rows or has_time(first.rows[0]):
        return [first, *(view.answer(replace(by_window, layer=layer)) for layer in layers[1:])]
    largest = view.answer(replace(query, top=(aggregate, _MAX_KEYS)))
    answers = [largest]
    for layer in layers[1:]:
        rows = [row for top in largest.rows for row in view.answer(Query(key=top.key, layer=layer)).rows]
        answers.append(replace(largest, rows=rows, provenance=view.provenance()))
    return answers
