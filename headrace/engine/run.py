"""Runs a graph, as a batch or as a stream: the door from the model to the engine."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from headrace.engine.batch.execution import Batch
from headrace.engine.batch.handle import BatchHandle
from headrace.engine.explain import explain
from headrace.engine.handle import Handle as Handle
from headrace.engine.plan import plan
from headrace.engine.plan.topictypes import with_topic_types
from headrace.engine.settings import current
from headrace.engine.spark.counters import Counters
from headrace.engine.spark.session import ship_package, spark_session
from headrace.model.errors import PipelineError
from headrace.model.pipeline import Graph
from headrace.model.validate import validate


def run(
    graph: Graph,
    *,
    spark: SparkSession | None,
    master: str | None,
    stream: bool = False,
    **options: Any,
) -> Handle:
    """Plans the graph and starts it; `options` are for streams."""
    graph = with_topic_types(graph)
    streaming = stream or not graph.bounded
    planned = None if streaming else plan(graph)
    validate(graph)
    if (instead := current().instead) is not None:
        return instead(explain(graph, stream=stream))
    names = [name for name, value in options.items() if value is not None]
    if not streaming and names:
        raise PipelineError(f"a batch has no {' and no '.join(names)}; say run(stream=True, ...) to stream it")
    session = spark or spark_session(master)
    ship_package(session)
    counters = Counters(session.sparkContext)
    if planned is None:
        from headrace.engine.stream import handle, query  # a batch needs none of it

        return handle.start(query.Stream(session, graph, counters, query.Options(**options)))
    return BatchHandle(session, Batch(session, planned, counters, lambda stage: None), counters)
