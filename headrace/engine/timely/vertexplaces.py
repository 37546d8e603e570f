"""Finds the vertex that a message goes to, and the shard it is in: vertex n of each stage is in shard n mod shards.

So messages between stages of as many vertices stay in their shard where both are divided by the same key.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from headrace.log.partitioning import partition_of
from headrace.model.keys import encode_key
from headrace.model.timely.vertexgraph import Connector, Graph


def vertex_of(graph: Graph, connector: Connector, message: Any) -> int:
    """Returns the number of the vertex that a connector brings a message to."""
    count = graph.stages[connector.receiver].vertices
    if count == 1:
        return 0
    assert connector.key is not None
    return partition_of(encode_key(connector.key(message)), count)


def shards_of_input(
    graph: Graph, outputs: Collection[tuple[str, str]], name: str, message: Any, shards: int
) -> list[int]:
    """Returns the shards that have vertices which get a message of an input, at least one of them.

    Where the input itself, or what entered a loop of it, is one of the `outputs`, the first shard gives it.

    >>> from headrace.model.timely.vertex import Vertex
    >>> class Pass(Vertex):
    ...     def on_recv(self, message, time):
    ...         self.send(message, time)
    >>> graph = Graph()
    >>> words = graph.input("words")
    >>> ends = [graph.stage(Pass, words.by(key), vertices=4, name=key.__name__) for key in (len, max)]
    >>> [shards_of_input(graph, outputs, "words", "willow", 4) for outputs in ([], [("words", "out")])]
    [[1, 2], [0, 1, 2]]
    """
    found = set(_shards(graph, outputs, name, message, shards))
    return sorted(found or {0})


def _shards(graph: Graph, outputs: Collection[tuple[str, str]], node: str, message: Any, shards: int) -> Iterator[int]:
    if (node, "out") in outputs:
        yield 0
    for connector in graph.receivers.get((node, "out"), ()):
        if connector.receiver in graph.kinds:
            yield from _shards(graph, outputs, connector.receiver, message, shards)
        else:
            yield vertex_of(graph, connector, message) % shards
