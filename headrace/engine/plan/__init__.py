"""Plans a graph: as the stages of a batch (`PASSES`), or as the line of a stream (`lowering`). No Spark."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

from headrace.engine.plan.columnchecks import check_columns
from headrace.engine.plan.fusion import count_readers, fuse
from headrace.engine.plan.stages import Frame, Plan
from headrace.engine.plan.topictypes import with_topic_types
from headrace.model.pipeline import Graph, Node, PCollection
from headrace.model.sinks import ForEachArrow
from headrace.model.validate import validate

PASSES: tuple[Callable[[Any], Any], ...] = (
    with_topic_types,  # a graph whose element types are known
    validate,  # a graph that keeps every rule of the model
    check_columns,  # a graph whose transforms read columns that there are
    fuse,  # from nodes to stages
    count_readers,  # what is read twice is persisted
)


def plan(graph: Graph) -> Plan:
    """Plans the stages that run this graph."""
    return reduce(lambda state, step: step(state), PASSES, graph)  # type: ignore[return-value]


def plan_columns(graph: Graph, pc: PCollection, label: str) -> tuple[Plan, Frame]:
    """Plans the part of a graph that leads to a collection, as if a sink of columns with this label read it.

    The frame has the columns of the collection.
    """
    sink = Node(label, ForEachArrow(print, order=()), (pc,), (), pc.place)
    planned = plan(Graph((*graph.leading_to(pc), sink)))
    return planned, planned.stages[-1].inputs[0]
