"""Queries over collections: `{"bids": bids} | hr.Sql("SELECT ... FROM bids")`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, TokenError

from headrace.dialects.sql.grammar import ContinuousSql
from headrace.dialects.sql.planner import Planner
from headrace.dialects.sql.relations import Relation, bound_columns, column_named
from headrace.dialects.sql.sqlerrors import SqlError, parse_error
from headrace.engine.plan.columnchecks import known_columns
from headrace.model.errors import PipelineError
from headrace.model.pipeline import PCollection, PTransform, pipeline_of

_SINGLE: Final = "PCOLLECTION"


class Sql(PTransform):
    """Computes a query of continuous SQL over collections with columns: a dict of them by name, or one, PCOLLECTION.

    Over bounded collections the result is the answer. Over streams it is the changes of the answer: without EMIT one
    for each group and micro-batch.

    >>> import headrace as hr
    >>> with hr.Pipeline() as p:
    ...     sales = p | hr.Create([("tea", 3), ("tea", 5)]) | hr.Select(item="_1", price="_2")
    ...     query = "SELECT item, avg(price) AS mean, count(*) AS n FROM sales GROUP BY item"
    ...     means = {"sales": sales} | hr.Sql(query) | hr.Collect()
    >>> list(means)
    [Row(item='tea', mean=4.0, n=2)]
    """

    def __init__(self, query: str) -> None:
        self.query = query
        self.parsed = parse_query(query)

    def expand(self, inputs: Any) -> Any:
        pipeline_of(inputs, self)
        if isinstance(inputs, PCollection):
            inputs = {_SINGLE: inputs}
        if not isinstance(inputs, Mapping):
            raise PipelineError(
                f"{self.label or self.default_label()!r}: the query needs a name for each collection; write "
                "{'bids': bids, 'people': people} | Sql('SELECT ...')"
            )
        relations = {name: relation_of(name, collection) for name, collection in inputs.items()}
        return Planner(relations).plan(self.parsed, self.query).collection


def parse_query(query: str) -> exp.Query:
    """Parses one query."""
    try:
        parsed = [each for each in sqlglot.parse(query, read=ContinuousSql) if each is not None]
    except (ParseError, TokenError) as error:
        raise parse_error(error, query) from None
    if len(parsed) != 1 or not isinstance(parsed[0], exp.Query):
        raise SqlError(f"this takes one SELECT, got {query!r:.80}")
    return parsed[0]


def relation_of(name: str, collection: PCollection) -> Relation:
    """Returns a collection as a relation."""
    graph = collection.pipeline.snapshot()
    columns = known_columns(graph, collection)
    if columns is None:
        raise PipelineError(
            f"the columns of {name} ({collection.label!r}) are not known; give its source a schema=, or name "
            "them with Select"
        )
    bounds = {} if collection.windowing.is_global else bound_columns()
    time = getattr(graph.producer(collection).transform, "event_time", None)
    return Relation(collection, {**{each: column_named(each) for each in columns}, **bounds}, tuple(columns), time=time)
