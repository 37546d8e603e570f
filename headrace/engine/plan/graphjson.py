"""The graph of a pipeline as JSON: its transforms, and the number of elements on each edge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from headrace.model.badrecords import REASONS
from headrace.model.columns import Aggregate, Select, TopRows
from headrace.model.elementwise import DEAD_LETTERS
from headrace.model.keyed import WindowInto
from headrace.model.pipeline import Graph, Node
from headrace.model.sinks import Sink
from headrace.model.sources import Source

Metrics = Mapping[str, Mapping[str, Any]]


def graph_json(graph: Graph, metrics: Metrics) -> dict[str, Any]:
    """Returns the nodes and edges of a pipeline, with the counts of its handle's `metrics()`.

    >>> import headrace as hr
    >>> p = hr.Pipeline()
    >>> _ = p | "numbers" >> hr.Create([1, 2, 3]) | "odd" >> hr.Filter(lambda n: n % 2) | "show" >> hr.ForEach(print)
    >>> graph_json(p.graph(), {"odd": {"in": 3, "out": 2}})["edges"]
    [{'from': 'numbers', 'to': 'odd', 'elements': 3}, {'from': 'odd', 'to': 'show', 'elements': 2}]
    """
    nodes = [{"id": node.label, "kind": _kind(node)} for node in graph]
    edges = []
    for node in graph:
        for collection in node.inputs:
            before = graph.producer(collection)
            dead = collection.tag == DEAD_LETTERS
            count = _dead_letters(metrics, before) if dead else _elements(graph, metrics, before, node)
            edges.append({"from": before.label, "to": node.label, "elements": count})
    return {"nodes": nodes, "edges": edges}


def _kind(node: Node) -> Literal["source", "transform", "grouping", "sink"]:
    if isinstance(node.transform, Source):
        return "source"
    if isinstance(node.transform, Sink):
        return "sink"
    return "grouping" if isinstance(node.transform, Aggregate | TopRows) else "transform"


def _elements(graph: Graph, metrics: Metrics, before: Node, after: Node) -> int | None:
    """Returns the count of either end of an edge; None if neither counts, as after a Where, which Spark evaluates."""
    entered: int | None = metrics.get(after.label, {}).get("in") if len(after.inputs) == 1 else None
    if entered is not None:
        return entered
    if isinstance(before.transform, WindowInto | Select):  # they have as many outputs as inputs
        return _elements(graph, metrics, graph.producer(before.inputs[0]), before)
    left: int | None = metrics.get(before.label, {}).get("out")
    return left


def _dead_letters(metrics: Metrics, node: Node) -> int:
    """Returns the number of elements that a function failed on, or that a source could not read."""
    counts = metrics.get(node.label, {})
    return sum(counts.get(reason, 0) for reason in ("dead", *REASONS))
