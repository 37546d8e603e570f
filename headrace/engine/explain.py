"""Explains how a graph would run, without running it and without Spark."""

from __future__ import annotations

from typing import Final

from headrace.engine.plan import plan
from headrace.engine.plan.columnchecks import check_columns
from headrace.engine.plan.graphjson import graph_json
from headrace.engine.plan.graphsvg import graph_svg
from headrace.engine.plan.topictypes import with_topic_types
from headrace.model.pipeline import Graph
from headrace.model.validate import validate

_STYLE: Final = (
    ".hr-graph text { fill: currentColor; font: 13px sans-serif; text-anchor: middle } "
    ".hr-graph rect, .hr-graph path { fill: none; stroke: currentColor }"
)


def explain(graph: Graph, *, stream: bool = False) -> str:
    """Returns the plan as text: a tree of stages, or the line of a stream if it is unbounded or with `stream`."""
    if not stream and graph.bounded:
        return plan(graph).tree()
    from headrace.engine.plan.explainstream import stream_plan  # a batch needs none of it

    return stream_plan(check_columns(validate(with_topic_types(graph)))).tree()


def draw(graph: Graph) -> str:
    """Returns a drawing of the graph, as HTML in the colours of the page around it."""
    return f"<style>{_STYLE}</style>{graph_svg(graph_json(graph, {}), across=True)}"
