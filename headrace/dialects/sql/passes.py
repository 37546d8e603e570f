"""Passes: one stream of the engine computes all views over the same streams, with one scan.

A view is planned with all others of its pass, so that what they have in common is computed once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from headrace.dialects.sql.catalog import Catalog, View
from headrace.dialects.sql.failedrows import sink_label
from headrace.dialects.sql.planner import Planned, Planner
from headrace.dialects.sql.relations import MatchedQueries, Relation, column_named
from headrace.dialects.sql.shapes import shape_of
from headrace.dialects.sql.sliding import slid, sliding_of, sliding_query
from headrace.dialects.sql.sqlerrors import SqlError
from headrace.dialects.sql.sqlfunctions import SqlFunctions
from headrace.dialects.sql.sqlstatements import CreateQuery, CreateStream, CreateTable
from headrace.dialects.sql.ttl import lateness_for, spelled_column, ttl_of
from headrace.engine.plan.lowering import lower
from headrace.engine.plan.topictypes import with_topic_types
from headrace.log.topics import Log
from headrace.model.columnjoins import Join
from headrace.model.grouping import is_grouping
from headrace.model.keyed import Flatten
from headrace.model.pipeline import Graph, Node, PCollection, Pipeline
from headrace.model.sources import Create, ReadParquet, Source
from headrace.model.tables import WriteTable
from headrace.model.tablesources import ReadTable
from headrace.model.times import format_duration
from headrace.model.topics import ReadTopic, WriteTopic
from headrace.model.triggers import AfterProcessingTime, Trigger
from headrace.model.watermarks import BoundedDisorder, Monotonic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class SessionPlace:
    """The place where a session works: its catalog, the directory of its log, the database of its tables, Spark, and
    the functions that queries may call."""

    catalog: Catalog
    log: str
    database: str
    spark: SparkSession | None
    functions: SqlFunctions = field(default_factory=SqlFunctions)


def ddl_of(columns: Mapping[str, str]) -> str:
    """Returns columns as DDL text.

    >>> ddl_of({"symbol": "STRING", "odd name": "BIGINT"})
    'symbol STRING, `odd name` BIGINT'
    """
    quoted = {name: exp.to_identifier(name, quoted=not name.isidentifier()).sql("spark") for name in columns}
    return ", ".join(f"{quoted[name]} {kind}" for name, kind in columns.items())


def topic_of(stream: CreateStream) -> str:
    """Returns the topic of a stream: a name in the session's log, or a URI."""
    return str(stream.options.get("topic", stream.name))


def stream_ends(log: str, stream: CreateStream) -> dict[int, int]:
    """Returns the ends of a stream's partitions; none if it is not of this log."""
    topic = topic_of(stream)
    if "://" in topic:
        return {}
    return {number: partition.next_offset() for number, partition in enumerate(Log(log).topic(topic).partitions)}


def plan_pass(where: SessionPlace, views: Iterable[View], start: str) -> Pipeline:
    """Plans the pipeline that computes views and writes their tables."""
    views = list(views)
    pipeline = Pipeline(spark=where.spark)
    names = sorted(set().union(*(where.catalog.sources_of(view.statement) for view in views)))
    sources = {name: pipeline | name >> _source(where, name, start) for name in names}
    planner = _planner(where, sources)
    for view in views:
        planned = _plan(
            where, planner, view.statement, view.shape is not None, alone=view.alone, combines=bool(view.hidden)
        )
        into = view.statement.into
        sink = _table(where, view, planned) if into is None else _topic(where, where.catalog.stream(into))
        planned.collection | sink_label(view) >> sink
    return pipeline


def plan_types(where: SessionPlace, statement: CreateQuery, *, shared: bool = False) -> Planned:
    """Plans a query over empty tables, so that Spark can say which types its columns have.

    `shared`: it is planned as all queries of its shape.
    """
    return _plan(where, _planner_of_types(where), statement, shared, combines=statement.kind == "view")


def _planner_of_types(where: SessionPlace) -> Planner:
    """Returns a planner over empty tables."""
    pipeline = Pipeline(spark=where.spark)
    declared: dict[str, CreateStream | CreateTable] = {**where.catalog.streams, **where.catalog.tables}
    sources = {name: pipeline | name >> Create([], schema=ddl_of(each.columns)) for name, each in declared.items()}
    return _planner(where, sources)


def spark_schema(collection: PCollection) -> StructType:
    """Returns the types that Spark gives to the columns of a planned query; those of all sides of a UNION ALL."""
    node = collection.pipeline.snapshot().producer(collection)
    if not isinstance(node.transform, Flatten):
        schema: StructType = collection.to_spark().schema
        return schema
    first, *others = map(spark_schema, node.inputs)
    for other in others:
        for one, two in zip(first, other, strict=True):
            if one.dataType != two.dataType:
                kinds = f"{one.dataType.simpleString()} and {two.dataType.simpleString()}"
                raise SqlError(f"the sides of UNION ALL have {kinds} for the column {one.name!r}; CAST one of them")
    return first


def _plan(
    where: SessionPlace,
    planner: Planner,
    statement: CreateQuery,
    shared: bool,
    *,
    alone: str | None = None,
    combines: bool = False,
) -> Planned:
    if not shared:
        statement = replace(statement, query=where.functions.called_in(statement.query, statement.text))
        if (sliding := sliding_of(statement)) is not None:
            query = sliding_query(sliding, statement, where.catalog.streams)
            return slid(planner.plan(query, statement.text, combines=combines))
        lateness = _lateness_of(where, statement)
        return planner.plan(statement.query, statement.text, lateness=lateness, combines=combines)
    shape = shape_of(statement, where.catalog.streams)
    assert shape is not None, statement
    queries = MatchedQueries(str(where.catalog.query_table(shape.name, alone).path), shape.parameters)
    called = where.functions.called_in(shape.query, statement.text)
    return planner.plan(called, statement.text, queries, combines=combines)


def _lateness_of(where: SessionPlace, statement: CreateQuery) -> int | None:
    """Returns how long the windows of a view take late rows, by its ttl; None if it has none."""
    if (ttl := ttl_of(statement)) is None:
        return None
    # What it counts from is known once the query is planned.
    return lateness_for(ttl, _planner_of_types(where).plan(statement.query, statement.text), statement)


def pass_name(catalog: Catalog, statement: CreateQuery, graph: Graph) -> str:
    """Returns the name of the pass that can compute a view, given the graph of a pass that computes it alone.

    A checkpoint keeps the sources and the clock that it began with, so views that differ in these are computed by
    different passes; and one that begins elsewhere than now has a pass of its own, as has one whose rows are repeated
    where they are read (by explode, or a join with a table), since no other can be read beside it. It also
    keeps the number of levels of groups: each costs time in every micro-batch, so none is reserved, and a view joins
    the pass that has the fewest of those that have enough.
    """
    parts = ["+".join(sorted(catalog.sources_of(statement)))]
    if _needs_clock(graph):
        parts.append("clock")
    if "from" in statement.options or _repeats_rows(graph):
        parts.append(f"of-{statement.name}")
    prefix, needed = ".".join([*parts, "levels-"]), max(_levels(graph, node) for node in graph)
    room = [levels for name in catalog.passes() if name.startswith(prefix) and (levels := levels_of(name)) >= needed]
    return f"{prefix}{min(room, default=needed)}"


def own_pass(view: View) -> str:
    """Returns the name of a pass that computes one view and no other."""
    if f".of-{view.name}." in view.computed_by:
        return view.computed_by
    shared, _, levels = view.computed_by.rpartition(".")
    return f"{shared}.of-{view.name}.{levels}"


def levels_of(name: str) -> int:
    """Returns how many levels of groups a pass has.

    >>> levels_of("trades.clock.levels-2")
    2
    """
    return int(name.rpartition("-")[2])


def _planner(where: SessionPlace, sources: Mapping[str, PCollection]) -> Planner:
    catalog, functions = where.catalog, where.functions
    relations = {}
    for name, collection in sources.items():
        columns = (catalog.streams.get(name) or catalog.tables[name]).columns
        time = catalog.streams[name].event_time if name in catalog.streams else None
        relations[name] = Relation(
            collection, {each: column_named(each) for each in columns}, tuple(columns), time=time
        )
    views = {name: view.statement for name, view in catalog.views.items()}
    definitions = {name: functions.called_in(each.query, each.text) for name, each in views.items()}

    def lateness_of(view: str) -> int | None:
        return _lateness_of(where, replace(views[view], query=definitions[view]))

    return Planner(relations, definitions, skipping=True, lateness_of=lateness_of)


def _source(where: SessionPlace, name: str, start: Any) -> Source:
    if name in where.catalog.tables:
        return _table_source(where, where.catalog.tables[name])
    stream = where.catalog.streams[name]
    topic = topic_of(stream)
    kafka = "://" in topic
    idle = {"idle_after": stream.options["idle_after"]} if "idle_after" in stream.options else {}
    policy = Monotonic(**idle) if not stream.disorder else BoundedDisorder(stream.disorder / 1_000_000, **idle)
    return ReadTopic(
        topic,
        log=None if kafka else where.log,
        schema=ddl_of(stream.columns) if kafka else None,
        event_time=stream.event_time,
        start=start,
        watermark=policy,
    )


def _table_source(where: SessionPlace, table: CreateTable) -> Source:
    if "parquet" in table.options:
        return ReadParquet(str(table.options["parquet"]), schema=ddl_of(table.columns))
    database = str(table.options.get("database", where.database))
    return ReadTable(database, str(table.options["table"]), schema=ddl_of(table.columns))


def _table(where: SessionPlace, view: View, planned: Planned) -> WriteTable:
    options: dict[str, Any] = {"mode": "retract" if planned.retracts else "append"}
    if planned.key is not None:
        options = {"mode": "upsert", "key": planned.key}
    if (ttl := ttl_of(view.statement)) is not None:
        options |= {"ttl": format_duration(ttl.age), "ttl_column": spelled_column(ttl, planned)}
    return WriteTable(where.database, view.stored, **options)


def _topic(where: SessionPlace, stream: CreateStream) -> WriteTopic:
    topic = topic_of(stream)
    return WriteTopic(topic, log=None if "://" in topic else where.log)


def _levels(graph: Graph, node: Node) -> int:
    above = max((_levels(graph, graph.producer(each)) for each in node.inputs), default=0)
    transform = node.transform
    streams = isinstance(transform, Join) and not transform.with_table(node.inputs[1])
    return above + (is_grouping(node) or streams)


def _repeats_rows(graph: Graph) -> bool:
    """Returns whether rows are repeated before anything else reads them, so that only one collection can be read."""
    line = lower(with_topic_types(graph), shards=1, partitions=1)
    return not all(tap.sees_all for tap in line.taps)


def _needs_clock(graph: Graph) -> bool:
    return any(_has_delay(pc.windowing.trigger) for node in graph for pc in node.outputs)


def _has_delay(trigger: Trigger) -> bool:
    return isinstance(trigger, AfterProcessingTime) or any(map(_has_delay, trigger.children()))
