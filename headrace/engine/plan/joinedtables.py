"""Tables that the joins of a stream read: their part of the graph runs as a batch, before the stream."""

from __future__ import annotations

from headrace.model.columnjoins import Join
from headrace.model.pipeline import Graph, Node, PCollection


def without_tables(graph: Graph) -> Graph:
    """Returns the graph without the nodes that lead to nothing but the right sides of joins.

    >>> import headrace as hr
    >>> p = hr.Pipeline()
    >>> people = p | "people" >> hr.Create([(1, "amy")]) | "names" >> hr.Select(id="_1", name="_2")
    >>> visits = p | "visits" >> hr.Rate(1)
    >>> _ = visits | "join" >> hr.Join(people, on={"value": "id"}) | hr.Collect()
    >>> [node.label for node in without_tables(p.graph())]
    ['visits', 'join', 'Collect']
    """
    tables: set[int] = set()
    for node in reversed(graph.nodes):
        readers = [(reader, pc) for reader in graph for pc in _read_by(reader) if pc in node.outputs]
        if readers and all(id(reader) in tables or _as_table(reader, pc) for reader, pc in readers):
            tables.add(id(node))
    return Graph(tuple(node for node in graph if id(node) not in tables))


def _read_by(node: Node) -> tuple[PCollection, ...]:
    return (*node.inputs, *node.transform.side_inputs())


def _as_table(reader: Node, pc: PCollection) -> bool:
    join = reader.transform
    return isinstance(join, Join) and join.with_table(pc) and pc is reader.inputs[1] and pc is not reader.inputs[0]
