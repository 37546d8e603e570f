"""Makes the graph of a topology: its components with their tasks, and how many tuples went from one to the next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.server.page.humantext import count, some


def topology_graph(topology: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the nodes and edges. Streams between the same two components are one edge, whose title lists them.

    >>> stream = {"source": "words", "stream": "default", "grouping": "fields word", "tuples": 1200}
    >>> words = {"id": "words", "kind": "spout", "tasks": 2, "inputs": []}
    >>> counts = {"id": "count", "kind": "bolt", "tasks": 3, "inputs": [stream]}
    >>> graph = topology_graph({"components": [words, counts], "tasks": []})
    >>> [(node["label"], node["kind"]) for node in graph["nodes"]]
    [('words × 2', 'source'), ('count × 3', 'sink')]
    >>> graph["edges"]
    [{'from': 'words', 'to': 'count', 'elements': 1200, 'title': 'default: fields word, 1,200 tuples'}]
    """
    read = {stream["source"] for component in topology["components"] for stream in component["inputs"]}
    throttled = {task["component"] for task in topology["tasks"] if task["throttled"]}
    nodes = []
    edges: dict[tuple[str, str], dict[str, Any]] = {}
    for component in topology["components"]:
        name, tasks = component["id"], component["tasks"]
        title = f"{component['kind']} {name}, {some(tasks, 'task')}" + (", held back" if name in throttled else "")
        kind = "throttled" if name in throttled else _kind(component, read)
        nodes.append({"id": name, "kind": kind, "label": f"{name} × {tasks}", "title": title})
        for stream in component["inputs"]:
            source = stream["source"]
            edge = edges.setdefault((source, name), {"from": source, "to": name, "elements": 0, "title": []})
            edge["elements"] += stream["tuples"]
            edge["title"].append(f"{stream['stream']}: {stream['grouping']}, {count(stream['tuples'])} tuples")
    return {"nodes": nodes, "edges": [{**edge, "title": "\n".join(edge["title"])} for edge in edges.values()]}


def _kind(component: Mapping[str, Any], read: set[str]) -> str:
    if component["kind"] == "spout":
        return "source"
    if component["id"] not in read:
        return "sink"
    keyed = any(stream["grouping"].startswith(("fields", "partial key")) for stream in component["inputs"])
    return "grouping" if keyed else "transform"
