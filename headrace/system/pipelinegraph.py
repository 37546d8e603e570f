"""A pipeline as a graph to draw: its steps, and how many elements went from one to the next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from headrace.model.badrecords import REASONS
from headrace.model.columns import Aggregate, Select
from headrace.model.elementwise import DEAD_LETTERS
from headrace.model.keyed import WindowInto
from headrace.model.pipeline import Graph, Node
from headrace.model.sinks import Sink
from headrace.model.sources import Source

Metrics = Mapping[str, Mapping[str, int]]


def drawn(graph: Graph, metrics: Metrics) -> dict[str, Any]:
    """The nodes and edges of a pipeline, with what its handle's `metrics()` count.

    >>> import headrace as hr
    >>> p = hr.Pipeline()
    >>> _ = p | "numbers" >> hr.Create([1, 2, 3]) | "odd" >> hr.Filter(lambda n: n % 2) | "show" >> hr.ForEach(print)
    >>> drawn(p.graph(), {"odd": {"in": 3, "out": 2}})["edges"]
    [{'from': 'numbers', 'to': 'odd', 'elements': 3}, {'from': 'odd', 'to': 'show', 'elements': 2}]
    """
    nodes = [{"id": node.label, "kind": _kind(node)} for node in graph]
    edges = []
    for node in graph:
        for each in node.inputs:
            before = graph.producer(each)
            dead = each.tag == DEAD_LETTERS
            count = _letters(metrics, before) if dead else _elements(graph, metrics, before, node)
            edges.append({"from": before.label, "to": node.label, "elements": count})
    return {"nodes": nodes, "edges": edges}


def _kind(node: Node) -> Literal["source", "transform", "grouping", "sink"]:
    if isinstance(node.transform, Source):
        return "source"
    if isinstance(node.transform, Sink):
        return "sink"
    return "grouping" if isinstance(node.transform, Aggregate) else "transform"


def _elements(graph: Graph, metrics: Metrics, before: Node, after: Node) -> int | None:
    """What is counted at either end; None where neither counts, as behind a Where, which Spark alone sees."""
    if len(after.inputs) == 1 and "in" in metrics.get(after.label, {}):
        return metrics[after.label]["in"]
    if isinstance(before.transform, WindowInto | Select):  # which give as many as they get
        return _elements(graph, metrics, graph.producer(before.inputs[0]), before)
    return metrics.get(before.label, {}).get("out")


def _letters(metrics: Metrics, node: Node) -> int:
    """What a function failed on, or a source could not read."""
    counts = metrics.get(node.label, {})
    return sum(counts.get(what, 0) for what in ("dead", *REASONS))
