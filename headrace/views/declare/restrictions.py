"""The restrictions on a view's pipeline: before its aggregation, it must treat each event alone.

The batch and speed layers see different events, and an answer merges their results. The merged result is that of all
events only if nothing before the aggregation depends on other events, on the time at which it runs, or on chance.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from headrace.model.columns import Aggregate, Select, Where
from headrace.model.elementwise import Elementwise, ParDo, WithTimestamps
from headrace.model.keyed import CombinePerKey, Flatten, GroupByKey, Reshuffle, WindowInto
from headrace.model.pipeline import Graph, Node
from headrace.model.sinks import Sink
from headrace.model.sources import Source

_SAFE: Final = (Elementwise, Flatten, Reshuffle, Select, Where, WithTimestamps)
_OVER: Final = re.compile(r"\bover\b\s*[\w(]", re.IGNORECASE)
_CHANCE: Final = re.compile(
    r"\b(current_timestamp|current_date|localtimestamp)\b|"
    r"\b(rand|randn|random|randstr|uniform|shuffle|uuid|monotonically_increasing_id|spark_partition_id|now|curdate)\s*\("
    r"|\b(unix_timestamp)\s*\(\s*\)",
    re.IGNORECASE,
)
_TEXT: Final = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`")


def refusal(graph: Graph, events: Node, last: Node) -> str | None:
    """Returns why the results of batch and speed cannot be merged and what to do; None if they can.

    `events` is the node of the topic's events in the view's windows, and `last` the aggregation.
    """
    for node in graph:
        if isinstance(node.transform, Sink):
            return f"{node} would write in batch and in speed; write from a pipeline of its own"
    for node in _before(graph, last):
        if node is not events and (reason := _reason(node)) is not None:
            return f"{node} {reason}"
    for node in _before(graph, last, sides=False):
        if isinstance(node.transform, Source) and node not in _before(graph, events):
            return f"{node} brings elements beside the topic's events; give them to a function as a side input"
    return None


def _before(graph: Graph, last: Node, *, sides: bool = True) -> Iterator[Node]:
    """Yields the nodes whose elements reach a node; with `sides`, also the nodes of side inputs."""
    seen, waiting = {id(last)}, [last]
    while waiting:
        node = waiting.pop()
        if node is not last:
            yield node
        for read in (*node.inputs, *(node.transform.side_inputs() if sides else ())):
            producer = graph.producer(read)
            if id(producer) not in seen:
                seen.add(id(producer))
                waiting.append(producer)


def _reason(node: Node) -> str | None:
    transform = node.transform
    if isinstance(transform, Source):
        return None
    if isinstance(transform, WindowInto):
        window = transform.windowing.window
        return f"changes its windows to {window!r}; give them to hr.view(window=...)"
    if isinstance(transform, GroupByKey | CombinePerKey | Aggregate):
        if node.inputs[0].bounded:  # a table to look things up in, which is the same in both layers
            return None
        return (
            "groups events before the last grouping: a group may have events in batch and in speed, and what the two "
            "say of it does not merge; group once, by all columns that are needed, and merge rows when asking (by=...)"
        )
    if isinstance(transform, ParDo) and transform.stateful:
        return "keeps state, which batch and speed would each have of some of the events; use an aggregation"
    if not isinstance(transform, _SAFE):
        return "is not known to work on each event alone; use Map, Filter, FlatMap, ParDo, Select or Where"
    for side in transform.side_inputs():
        if not side.bounded:
            return f"looks at {side.label!r}, which changes as events come; its side inputs must be bounded"
    if isinstance(transform, Select | Where):
        return _refuse_expressions(transform)
    return None


def _refuse_expressions(transform: Select | Where) -> str | None:
    expressions = (
        (transform.condition,) if isinstance(transform, Where) else (*transform.columns, *transform.named.values())
    )
    for expression in expressions:
        text = _TEXT.sub("''", expression) if isinstance(expression, str) else str(expression)
        if _OVER.search(text):
            return "looks at other rows (OVER), of which batch and speed have only some; use an aggregation"
        if (match := _CHANCE.search(text)) is not None:
            name = match[0].partition("(")[0].strip()
            return f"uses {name}, which differs when an event is computed again; use the event's columns"
    return None
