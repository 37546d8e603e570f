"""Checks the rules of topologies: for each broken rule, a message with the rule, the value and the remedy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headrace.dialects.storm.api.components import DEFAULT, Component
from headrace.dialects.storm.api.groupings import Direct

if TYPE_CHECKING:
    from headrace.dialects.storm.api.topology import Input, Node, Topology


def topology_problems(topology: Topology) -> Iterator[str]:
    """Describes what is wrong with a topology, except cycles."""
    if not topology.spouts:
        yield "the topology has no spout; add one with set_spout(...)"
    ids = {node.id for node in topology.nodes}
    for bolt in topology.bolts:
        if not bolt.inputs:
            yield (
                f"the bolt {bolt.id!r} reads nothing; add an input, e.g. builder.set_bolt(...).shuffle_grouping("
                f"{topology.nodes[0].id!r})"
            )
        for read in bolt.inputs:
            if read.source not in ids:
                names = ", ".join(repr(node.id) for node in topology.nodes)
                yield f"the bolt {bolt.id!r} reads from {read.source!r}, which does not exist; there are {names}"
                continue
            yield from _input_problems(topology, bolt, read)


def _input_problems(topology: Topology, bolt: Node, read: Input) -> Iterator[str]:
    streams = topology.node(read.source).streams
    fields = streams.get(read.stream)
    if fields is None:
        yield (
            f"the bolt {bolt.id!r} reads the stream {read.stream!r} of {read.source!r}, which declares "
            f"{', '.join(map(repr, streams)) or 'no streams; set its fields = [...]'}"
        )
        return
    if missing := [name for name in read.grouping.fields if name not in fields]:
        yield (
            f"the bolt {bolt.id!r} groups by the field {missing[0]!r}, but the stream {read.stream!r} of "
            f"{read.source!r} has only {', '.join(map(repr, fields))}"
        )
    direct = [isinstance(grouping, Direct) for _, grouping in topology.readers(read.source, read.stream)]
    if any(direct) and not all(direct):
        yield (
            f"the stream {read.stream!r} of {read.source!r} is read by direct grouping and by others; emit what is "
            "meant for named tasks to a stream of its own"
        )


def field_problems(id: str, component: Component) -> Iterator[str]:
    """Describes what is wrong with the streams that a component declares."""
    if isinstance(component.fields, str):
        yield f"fields of {id!r} are a list of names, got {component.fields!r}; write fields = [...]"
    if component.fields and DEFAULT in component.streams:
        yield f"{id!r} declares the stream 'default' twice: by fields and by streams; use one of them"
    for stream, fields in component.declared().items():
        names = list(fields)
        if not names:
            yield f"the stream {stream!r} of {id!r} has no fields; a tuple has at least one value"
        if not all(isinstance(name, str) and name and not name.startswith("__") for name in names):
            yield f"fields of the stream {stream!r} of {id!r} are names that do not begin with '__', got {names!r}"
        if len(set(names)) != len(names):
            yield f"the stream {stream!r} of {id!r} has a field twice: {names!r}"
