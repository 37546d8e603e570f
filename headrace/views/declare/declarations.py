"""Declarations of topics and of views, each view a pipeline written once. Nothing here runs.

A view's function is applied once when it is declared, to a placeholder for the topic's events, so that its errors are
found before anything runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NoReturn

from headrace.model.aggregationtypes import wrong_type
from headrace.model.columns import Aggregate
from headrace.model.ddl import ddl_columns
from headrace.model.errors import PipelineError
from headrace.model.keyed import WindowInto
from headrace.model.knowncolumns import columns_of, no_column
from headrace.model.pipeline import PCollection, Pipeline
from headrace.model.schema import ROWS
from headrace.model.sources import Source
from headrace.model.times import SECOND, DurationLike, duration, format_duration
from headrace.model.triggers import Trigger
from headrace.model.windows import GlobalWindows, WindowFn
from headrace.views.declare.layout import Layout, check_name
from headrace.views.declare.partialaggregates import to_partials
from headrace.views.declare.restrictions import refusal
from headrace.views.errors import ViewError

Columns = Mapping[str, str | None]
"""Columns and their types; None where only Spark knows the type."""


@dataclass(frozen=True)
class Topic:
    """A topic whose records are the events of views, with the columns of its values.

    `event_time` names the column of the time of an event; without it the time of the record is used. `key` names the
    column that decides about the partition.

    >>> import headrace as hr
    >>> visits = hr.Topic("visits", schema="user string, url string, ts timestamp", event_time="ts", key="url")
    >>> visits.columns
    {'user': 'string', 'url': 'string', 'ts': 'timestamp'}
    >>> hr.Topic("visits", schema="user string", event_time="ts")
    Traceback (most recent call last):
        ...
    headrace.views.errors.ViewError: topic 'visits': event_time='ts' is not a column; there are user
    """

    name: str
    schema: str
    event_time: str | None = None
    key: str | None = None
    partitions: int = 1
    columns: Mapping[str, str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_name(self.name)
        object.__setattr__(self, "columns", _columns(self.name, self.schema))
        for what, column in (("event_time", self.event_time), ("key", self.key)):
            if column is not None and column not in self.columns:
                there = ", ".join(self.columns)
                raise ViewError(f"topic {self.name!r}: {what}={column!r} is not a column; there are {there}")
        if self.event_time is not None and self.columns[self.event_time] not in ("timestamp", "date"):
            kind = self.columns[self.event_time]
            raise ViewError(f"topic {self.name!r}: event_time={self.event_time!r} must be a timestamp, it is a {kind}")
        if type(self.partitions) is not int or self.partitions < 1:
            raise ViewError(f"topic {self.name!r}: it has at least one partition, got partitions={self.partitions!r}")


@dataclass(frozen=True, eq=False)
class View:
    """A view of a topic: windows, and a function from events to aggregates of groups. Made by `hr.view`."""

    name: str
    topic: Topic
    function: Callable[[PCollection], PCollection]
    window: WindowFn
    allowed_lateness: int
    types: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_name(self.name)
        if self.window.merging:
            self._refuse(f"{self.window!r} merges windows, and batch and speed would merge them differently")
        if self.window.keyed:
            self._refuse(f"{self.window!r} depends on the key or on the order of arrival")
        _ = self.aggregate

    def __call__(self, events: PCollection, *, trigger: Trigger | None = None) -> PCollection:
        """Applies the view's pipeline to events; returns its aggregates."""
        lateness = self.allowed_lateness / SECOND
        return self.function(events | WindowInto(self.window, trigger=trigger, allowed_lateness=lateness))

    def partials(self, events: PCollection, *, trigger: Trigger | None = None) -> PCollection:
        """Applies the view's pipeline, with accumulators in place of results, for `partial_of`.

        With a trigger they are the accumulators of the speed layer, of the events since the last firing.
        """
        result = self(events, trigger=trigger)
        node = result.pipeline.node_of(result)
        assert isinstance(node.transform, Aggregate)  # or it would not have been declared
        result.pipeline.replace(node, to_partials(node.transform, speed=trigger is not None))
        return result

    def __str__(self) -> str:
        code = getattr(self.function, "__code__", None)
        return f"view {self.name!r}" + (f" ({code.co_filename}:{code.co_firstlineno})" if code else "")

    @cached_property
    def aggregate(self) -> Aggregate:
        """The aggregation that ends the view's pipeline."""
        return self._traced[0]

    def layout(self) -> Layout:
        """Returns the layout of the view's rows."""
        known = {name: kind for name, kind in self._traced[1].items() if kind is not None} | dict(self.types)
        keys = self.aggregate.keys
        if unknown := [name for name in keys if name not in known]:
            self._refuse(
                f"the type of the computed key {unknown[0]!r} is known to Spark alone; declare it: "
                f"@hr.view(..., types={{{unknown[0]!r}: 'string'}})"
            )
        return Layout.of(
            self.name,
            keys={name: known[name] for name in keys},
            aggregations=self.aggregate.aggregations,
            columns=known,
            window=self.window,
        )

    @cached_property
    def _traced(self) -> tuple[Aggregate, Columns]:
        """The view's aggregation and the columns of its input."""
        pipeline = Pipeline()
        try:
            result = self(pipeline | _Events())
        except PipelineError as error:
            self._refuse(str(error))
        remedy = "end it in hr.GroupBy(...).aggregate(...)"
        if not isinstance(result, PCollection):
            self._refuse(f"its function returns {result!r}, not a collection; {remedy}")
        graph = pipeline.graph()
        last = graph.producer(result)
        if not isinstance(last.transform, Aggregate):
            self._refuse(f"it ends in {last.label!r}, which cannot be merged; {remedy}")
        if (
            reason := refusal(graph, graph.nodes[1], last)
        ) is not None:  # the node after the source: the view's own windows
            self._refuse(reason)
        events = graph.nodes[0].outputs[0]
        columns: Columns | None = columns_of(
            graph, last.inputs[0], lambda pc: self.topic.columns if pc is events else None
        )
        for name in last.transform.reads():
            if columns is not None and name not in columns:
                self._refuse(no_column(name, columns))
        known = {**(columns or {}), **self.types}
        for aggregation in last.transform.aggregations.values():
            kinds = {name: ddl_columns(f"it {known[name]}")["it"] for name in aggregation.columns if known.get(name)}
            if (reason := wrong_type(aggregation, kinds)) is not None:
                self._refuse(reason)
        return last.transform, columns or {}

    def _refuse(self, reason: str) -> NoReturn:
        raise ViewError(f"{self}: {reason}") from None


def view(
    topic: Topic,
    *,
    window: WindowFn = GlobalWindows(),
    allowed_lateness: DurationLike = 0,
    types: Mapping[str, str] | None = None,
) -> Callable[[Callable[[PCollection], PCollection]], View]:
    """Declares a view of a topic by a function from its events, in windows, to aggregates of groups.

    The function is the pipeline of the batch layer and of the speed layer. Its name is that of the view. `types` are
    the types of keys that it computes by expressions, which only Spark could infer, e.g. {"domain": "string"}.

    >>> import headrace as hr
    >>> visits = hr.Topic("visits", schema="user string, url string, ts timestamp", event_time="ts", key="url")
    >>> @hr.view(visits, window=hr.FixedWindows("1 hour"), allowed_lateness="2 days")
    ... def visitors(events):
    ...     return events | hr.GroupBy("url").aggregate(hits=hr.count(), people=hr.approx_distinct("user"))
    >>> visitors.name, visitors.aggregate.keys, list(visitors.aggregate.aggregations)
    ('visitors', ('url',), ['hits', 'people'])
    """
    if not isinstance(topic, Topic):
        raise ViewError(f"hr.view takes the topic first, got {topic!r}; write @hr.view(hr.Topic(...), window=...)")
    if not isinstance(window, WindowFn):
        raise ViewError(f"hr.view: window must be a WindowFn such as hr.FixedWindows('1 hour'), got {window!r}")
    lateness = duration(allowed_lateness)
    if lateness < 0:
        raise ViewError(f"hr.view: allowed_lateness must not be negative, got {format_duration(lateness)}")

    def declare(function: Callable[[PCollection], PCollection]) -> View:
        return View(function.__name__, topic, function, window, lateness, types or {})

    return declare


class _Events(Source):
    """The placeholder for the events of a topic while a view is declared."""

    bounded = False
    output_type: object = ROWS

    def default_label(self) -> str:
        return "events"


def _columns(topic: str, schema: str) -> dict[str, str]:
    from headrace.log.errors import LogError
    from headrace.log.values import Values

    remedy = f"topic {topic!r}: a schema is columns such as 'user string, ts timestamp'"
    if not isinstance(schema, str) or schema in ("json", "bytes"):
        raise ViewError(f"{remedy}, got {schema!r}")
    try:
        Values(schema)
    except LogError as error:
        raise ViewError(f"{remedy}; {error}") from None
    pairs = [column.split() for column in schema.split(",")]
    if len({name.lower() for name, _ in pairs}) < len(pairs):
        raise ViewError(f"topic {topic!r}: columns must differ by more than case, got {schema!r}")
    return {name: kind.lower() for name, kind in pairs}
