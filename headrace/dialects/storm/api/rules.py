"""The rules a topology keeps: for each one that is broken, what is wrong, by which value, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headrace.dialects.storm.api.components import DEFAULT, Component
from headrace.dialects.storm.api.groupings import Direct

if TYPE_CHECKING:
    from headrace.dialects.storm.api.topology import Input, Node, Topology


def problems(topology: Topology) -> Iterator[str]:
    """What is wrong with a topology, but for circles."""
    if not topology.spouts:
        yield "the topology has no spout; add one with set_spout(...)"
    ids = {node.id for node in topology.nodes}
    for bolt in topology.bolts:
        if not bolt.inputs:
            yield (
                f"the bolt {bolt.id!r} reads nothing; say what, e.g. builder.set_bolt(...).shuffle_grouping("
                f"{topology.nodes[0].id!r})"
            )
        for each in bolt.inputs:
            if each.source not in ids:
                there = ", ".join(repr(node.id) for node in topology.nodes)
                yield f"the bolt {bolt.id!r} reads from {each.source!r}, which is not there; there are {there}"
                continue
            yield from _problems_of_input(topology, bolt, each)


def _problems_of_input(topology: Topology, bolt: Node, each: Input) -> Iterator[str]:
    streams = topology.node(each.source).streams
    fields = streams.get(each.stream)
    if fields is None:
        yield (
            f"the bolt {bolt.id!r} reads the stream {each.stream!r} of {each.source!r}, which declares "
            f"{', '.join(map(repr, streams)) or 'no streams; give it fields = [...]'}"
        )
        return
    if missing := [name for name in each.grouping.fields if name not in fields]:
        yield (
            f"the bolt {bolt.id!r} groups by the field {missing[0]!r}, but the stream {each.stream!r} of "
            f"{each.source!r} has only {', '.join(map(repr, fields))}"
        )
    direct = [isinstance(grouping, Direct) for _, grouping in topology.readers(each.source, each.stream)]
    if any(direct) and not all(direct):
        yield (
            f"the stream {each.stream!r} of {each.source!r} is read by direct grouping and by others; emit what is "
            "meant for named tasks to a stream of its own"
        )


def problems_of_fields(id: str, component: Component) -> Iterator[str]:
    """What is wrong with what a component declares."""
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
