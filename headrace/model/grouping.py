"""Answers questions about groupings in a graph: which nodes group, and what the collections behind them are."""

from __future__ import annotations

from headrace.model.columnjoins import Join
from headrace.model.columns import Aggregate, TopRows
from headrace.model.keyed import CombinePerKey, GroupByKey
from headrace.model.lateoutput import LATE
from headrace.model.pipeline import Graph, Node, PCollection


def is_grouping(node: Node) -> bool:
    """Returns whether a node groups elements, and so waits for its windows to fire."""
    return isinstance(node.transform, GroupByKey | CombinePerKey | Aggregate | TopRows)


def in_panes(graph: Graph, pc: PCollection) -> bool:
    """Returns whether the elements of a collection are of panes: they, or what they were made of, were grouped."""
    node = _producer(graph, pc)
    return (is_grouping(node) and pc.tag != LATE) or any(in_panes(graph, read) for read in _sources_of(node))


def may_retract(graph: Graph, pc: PCollection) -> bool:
    """Returns whether some elements of a collection may be retractions."""
    node = _producer(graph, pc)
    if is_grouping(node):
        return node.inputs[0].windowing.accumulation == "retracting" and pc.tag != LATE
    return any(may_retract(graph, read) for read in _sources_of(node))


def _sources_of(node: Node) -> tuple[PCollection, ...]:
    """Returns the collections whose panes a node's elements are of: of a join, the left one."""
    return node.inputs[:1] if isinstance(node.transform, Join) else node.inputs


def _producer(graph: Graph, pc: PCollection) -> Node:
    return next(node for node in graph if node.label == pc.label)  # its own may be of other element types
