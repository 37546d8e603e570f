"""A topology as a graph to draw: its components with their tasks, and how many tuples went from one to the next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.server.page.humantext import count, some


def topology_graph(topology: Mapping[str, Any]) -> dict[str, Any]:
    """The nodes and edges. Several streams from one component to another are one edge, whose title tells each.

    >>> stream = {"source": "words", "stream": "default", "grouping": "fields word", "tuples": 1200}
    >>> words = {"id": "words", "kind": "spout", "tasks": 2, "inputs": []}
    >>> counts = {"id": "count", "kind": "bolt", "tasks": 3, "inputs": [stream]}
    >>> graph = topology_graph({"components": [words, counts], "tasks": []})
    >>> [(node["label"], node["kind"]) for node in graph["nodes"]]
    [('words × 2', 'source'), ('count × 3', 'sink')]
    >>> graph["edges"]
    [{'from': 'words', 'to': 'count', 'elements': 1200, 'title': 'default: fields word, 1,200 tuples'}]
    """
    read = {each["source"] for component in topology["components"] for each in component["inputs"]}
    held = {task["component"] for task in topology["tasks"] if task["throttled"]}
    nodes = []
    edges: dict[tuple[str, str], dict[str, Any]] = {}
    for component in topology["components"]:
        name, tasks = component["id"], component["tasks"]
        told = f"{component['kind']} {name}, {some(tasks, 'task')}" + (", held back" if name in held else "")
        kind = "held" if name in held else _kind(component, read)
        nodes.append({"id": name, "kind": kind, "label": f"{name} × {tasks}", "title": told})
        for each in component["inputs"]:
            edge = edges.setdefault(
                (each["source"], name), {"from": each["source"], "to": name, "elements": 0, "title": []}
            )
            edge["elements"] += each["tuples"]
            edge["title"].append(f"{each['stream']}: {each['grouping']}, {count(each['tuples'])} tuples")
    return {"nodes": nodes, "edges": [{**edge, "title": "\n".join(edge["title"])} for edge in edges.values()]}


def _kind(component: Mapping[str, Any], read: set[str]) -> str:
    if component["kind"] == "spout":
        return "source"
    if component["id"] not in read:
        return "sink"
    keyed = any(each["grouping"].startswith(("fields", "partial key")) for each in component["inputs"])
    return "grouping" if keyed else "transform"
