"""Runs a graph, as a batch or as a stream: the door from the model to the engine."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession

from headrace.engine.batch.execution import Batch
from headrace.engine.batch.handle import BatchHandle
from headrace.engine.explain import explain
from headrace.engine.handle import Handle as Handle
from headrace.engine.plan import plan, plan_columns
from headrace.engine.plan.columnchecks import check_columns
from headrace.engine.plan.stages import Plan
from headrace.engine.plan.topictypes import with_topic_types
from headrace.engine.settings import current
from headrace.engine.spark.counters import Counters
from headrace.engine.spark.pythonpath import ship_modules
from headrace.engine.spark.session import spark_session
from headrace.engine.worker.hidden import END, START, TIME
from headrace.model.badrecords import RecordSource
from headrace.model.errors import PipelineError
from headrace.model.pipeline import Graph, Node, PCollection
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
    check_columns(validate(graph))
    if (instead := current().instead) is not None:
        return instead(explain(graph, stream=stream))
    names = [name for name, value in options.items() if value is not None]
    if not streaming and names:
        raise PipelineError(f"a batch has no {' and no '.join(names)}; say run(stream=True, ...) to stream it")
    handle = _start(graph, planned, spark or spark_session(master), options)
    if (started := current().started) is not None:
        started(graph, handle)
    return handle


def _start(graph: Graph, planned: Plan | None, session: SparkSession, options: dict[str, Any]) -> Handle:
    ship_modules(session, current().py_files)
    counters = Counters(session.sparkContext)
    if planned is None:
        from headrace.engine.stream import handle, query  # a batch needs none of it

        return handle.start(query.Stream(session, graph, counters, query.Options(**options)))
    return BatchHandle(session, Batch(session, planned, counters, lambda stage: None), counters)


def to_spark(graph: Graph, pc: PCollection, *, spark: SparkSession | None, master: str | None) -> DataFrame:
    """Plans the part of a graph that leads to a collection as a batch, and returns the DataFrame of its columns."""
    if not pc.bounded:
        raise PipelineError(f"{pc!r} has no end, as a DataFrame has; write it to files or to a topic, and read these")
    for node in graph.leading_to(pc):
        _check_losses(node)
    planned, frame = plan_columns(graph, pc, f"to_spark of {pc.label!r}")
    session = spark or spark_session(master)
    ship_modules(session, current().py_files)
    batch = Batch(session, planned, Counters(session.sparkContext), lambda stage: None, persisting=False)
    return batch.data(frame).drop(TIME, START, END)


def _check_losses(node: Node) -> None:
    """Refuses a source whose bad records nobody would hear of."""
    source = node.transform
    if isinstance(source, RecordSource) and source.checks and source.bad == "dead_letters" and len(node.outputs) == 1:
        raise PipelineError(
            f"{node}: it may have bad records, which a DataFrame cannot report; say bad='fail' or bad='skip', or use "
            "with_exception_handling()"
        )
