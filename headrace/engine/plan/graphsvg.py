"""Draws a graph as SVG: boxes in layers, and on each edge how many elements went over it. All text is escaped.

A node's layer is the length of the longest path to it from a source. Two drawings are made, across for wide screens
and down for narrow ones; the style sheet shows one of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Any, Final

_HEIGHT, _GAP, _ROW, _MARGIN = 38.0, 96.0, 66.0, 6.0
_CHARACTER: Final = 7.3  # pixels of a character, about
_MAX_LABEL: Final = 34  # characters
_KINDS: Final = ("source", "transform", "grouping", "sink", "throttled")


@dataclass(frozen=True)
class Box:
    """A node as it is drawn: its label, its title, its kind, its place and its width."""

    label: str
    title: str
    kind: str
    x: float
    y: float
    width: float


def layers(graph: Mapping[str, Any]) -> list[list[str]]:
    """Assigns the nodes to layers.

    Within a layer, those come first whose predecessors do, and then those with the longest path ahead: so the main line
    of a pipeline is straight.

    >>> edges = [{"from": "a", "to": "b"}, {"from": "b", "to": "d"}, {"from": "a", "to": "d"}, {"from": "c", "to": "d"}]
    >>> layers({"nodes": [{"id": node} for node in "dcba"], "edges": edges})
    [['a', 'c'], ['b'], ['d']]
    """
    nodes = [node["id"] for node in graph["nodes"]]
    edges = [(edge["from"], edge["to"]) for edge in graph["edges"]]
    depth = _longest_paths(nodes, edges)
    ahead = _longest_paths(nodes, [(b, a) for a, b in edges])
    by_depth: list[list[str]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for node in nodes:
        by_depth[depth[node]].append(node)
    place: dict[str, int] = {}
    for layer in by_depth:
        before = {node: [place[a] for a, b in edges if b == node] for node in layer}
        layer.sort(key=lambda node: (sum(before[node]) / max(len(before[node]), 1), -ahead[node]))
        place |= {node: position for position, node in enumerate(layer)}
    return by_depth


def _longest_paths(nodes: list[str], edges: list[tuple[str, str]]) -> dict[str, int]:
    """Counts the edges of the longest path to each node."""
    lengths = dict.fromkeys(nodes, 0)
    for _ in nodes:  # as many rounds as a path can have edges; there are no cycles
        for a, b in edges:
            lengths[b] = max(lengths[b], lengths[a] + 1)
    return lengths


def graph_svg(graph: Mapping[str, Any], *, across: bool, of: str = "The pipeline") -> str:
    """Returns the SVG. Nodes may have a `label` that differs from their id, and nodes and edges a `title` for details.

    >>> nodes = [{"id": "topic <visits>", "kind": "source"}, {"id": "count", "kind": "grouping"}]
    >>> edges = [{"from": "topic <visits>", "to": "count", "elements": 1234}]
    >>> svg = graph_svg({"nodes": nodes, "edges": edges}, across=True)
    >>> "topic &lt;visits&gt;" in svg, "1,234" in svg, "<visits>" in svg
    (True, True, False)
    """
    boxes = _across(graph) if across else _down(graph)
    width = max((box.x + box.width for box in boxes.values()), default=0) + _MARGIN
    height = max((box.y + _HEIGHT for box in boxes.values()), default=0) + _MARGIN
    drawn = [_edge(boxes[edge["from"]], boxes[edge["to"]], edge, across) for edge in graph["edges"]]
    drawn += [_box(box) for box in boxes.values()]
    direction = "across" if across else "down"
    return (
        f'<svg class="hr-graph hr-{direction}" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" role="img" aria-label="{escape(of)}">{"".join(drawn)}</svg>'
    )


def _across(graph: Mapping[str, Any]) -> dict[str, Box]:
    nodes = {node["id"]: node for node in graph["nodes"]}
    boxes, x = {}, _MARGIN
    for column in layers(graph):
        for row, node in enumerate(column):
            boxes[node] = _placed(nodes[node], x, _MARGIN + row * _ROW)
        x += max(boxes[node].width for node in column) + _GAP
    return boxes


def _down(graph: Mapping[str, Any]) -> dict[str, Box]:
    nodes = {node["id"]: node for node in graph["nodes"]}
    rows = layers(graph)
    lengths = [sum(_width(nodes[node]) for node in row) + 16 * (len(row) - 1) for row in rows]
    boxes = {}
    for number, (row, length) in enumerate(zip(rows, lengths, strict=True)):
        x = _MARGIN + (max(lengths) - length) / 2
        for node in row:
            boxes[node] = _placed(nodes[node], x, _MARGIN + number * (_HEIGHT + 46))
            x += boxes[node].width + 16
    return boxes


def _placed(node: Mapping[str, Any], x: float, y: float) -> Box:
    title = node.get("title", f"{node['kind']}: {node['id']}")
    return Box(node.get("label", node["id"]), title, node["kind"], x, y, _width(node))


def _width(node: Mapping[str, Any]) -> float:
    return max(90.0, _CHARACTER * min(len(node.get("label", node["id"])), _MAX_LABEL) + 30)


def _box(box: Box) -> str:
    kind = box.kind if box.kind in _KINDS else "transform"
    label = box.label if len(box.label) <= _MAX_LABEL else f"{box.label[: _MAX_LABEL - 1]}…"
    return (
        f'<g class="hr-node hr-{kind}"><title>{escape(box.title)}</title>'
        f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{_HEIGHT:.0f}" rx="8"></rect>'
        f'<text x="{box.x + box.width / 2:.1f}" y="{box.y + _HEIGHT / 2 + 4.5:.1f}">{escape(label)}</text></g>'
    )


def _edge(a: Box, b: Box, edge: Mapping[str, Any], across: bool) -> str:
    elements = edge["elements"]
    if across:
        x, y, u, v = a.x + a.width, a.y + _HEIGHT / 2, b.x - 2, b.y + _HEIGHT / 2
        bend = f"C{x + 40:.1f} {y:.1f} {u - 40:.1f} {v:.1f} {u:.1f} {v:.1f}"
        tip = f"M{u - 7:.1f} {v - 4:.1f}L{u:.1f} {v:.1f}L{u - 7:.1f} {v + 4:.1f}"
    else:
        x, y, u, v = a.x + a.width / 2, a.y + _HEIGHT, b.x + b.width / 2, b.y - 2
        bend = f"C{x:.1f} {y + 20:.1f} {u:.1f} {v - 20:.1f} {u:.1f} {v:.1f}"
        tip = f"M{u - 4:.1f} {v - 7:.1f}L{u:.1f} {v:.1f}L{u + 4:.1f} {v - 7:.1f}"
    # Above a level line, beside a vertical one, and on a curve.
    x_label, y_label = (x + u) / 2 + (0 if across else 8), (y + v) / 2 + (-7 if across and y == v else 4)
    text = "" if elements is None else f'<text x="{x_label:.1f}" y="{y_label:.1f}">{elements:,}</text>'
    title = f"<title>{escape(edge['title'])}</title>" if "title" in edge else ""
    return f'<g class="hr-edge">{title}<path d="M{x:.1f} {y:.1f}{bend}"></path><path d="{tip}"></path>{text}</g>'
