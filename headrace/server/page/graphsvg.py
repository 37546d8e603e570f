"""A graph as a drawing: boxes in layers, and on each edge how many elements went over it. SVG, and all text escaped.

A node's layer is the longest way to it from a source. Two drawings are made, across for wide screens and down for
narrow ones; the style sheet shows one of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Any, Final

from headrace.server.page.humantext import count

_HEIGHT, _GAP, _ROW, _MARGIN = 38.0, 96.0, 66.0, 6.0
_LETTER: Final = 7.3  # pixels of a letter, about
_LONGEST: Final = 34  # letters of a label
_KINDS: Final = ("source", "transform", "grouping", "sink", "held")


@dataclass(frozen=True)
class Box:
    """Where a node is drawn, what stands in it, and what is told of it besides."""

    label: str
    title: str
    kind: str
    x: float
    y: float
    width: float


def layers(graph: Mapping[str, Any]) -> list[list[str]]:
    """The nodes by layer. Within one, those come first whose predecessors do, and then those with the longest way to
    go: so the main line of a pipeline is straight.

    >>> edges = [{"from": "a", "to": "b"}, {"from": "b", "to": "d"}, {"from": "a", "to": "d"}, {"from": "c", "to": "d"}]
    >>> layers({"nodes": [{"id": each} for each in "dcba"], "edges": edges})
    [['a', 'c'], ['b'], ['d']]
    """
    nodes = [each["id"] for each in graph["nodes"]]
    edges = [(each["from"], each["to"]) for each in graph["edges"]]
    depth = _longest(nodes, edges)
    ahead = _longest(nodes, [(b, a) for a, b in edges])
    found: list[list[str]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for node in nodes:
        found[depth[node]].append(node)
    place: dict[str, int] = {}
    for layer in found:
        before = {node: [place[a] for a, b in edges if b == node] for node in layer}
        layer.sort(key=lambda node: (sum(before[node]) / max(len(before[node]), 1), -ahead[node]))
        place |= {node: position for position, node in enumerate(layer)}
    return found


def _longest(nodes: list[str], edges: list[tuple[str, str]]) -> dict[str, int]:
    """How many edges the longest way to each node has."""
    found = dict.fromkeys(nodes, 0)
    for _ in nodes:  # as many rounds as it could have edges; there are no cycles
        for a, b in edges:
            found[b] = max(found[b], found[a] + 1)
    return found


def drawing(graph: Mapping[str, Any], *, across: bool, of: str = "The pipeline") -> str:
    """The SVG. Nodes may have a `label` that differs from their id, and nodes and edges a `title` that tells more.

    >>> nodes = [{"id": "topic <visits>", "kind": "source"}, {"id": "count", "kind": "grouping"}]
    >>> edges = [{"from": "topic <visits>", "to": "count", "elements": 1234}]
    >>> svg = drawing({"nodes": nodes, "edges": edges}, across=True)
    >>> "topic &lt;visits&gt;" in svg, "1,234" in svg, "<visits>" in svg
    (True, True, False)
    """
    boxes = _across(graph) if across else _down(graph)
    width = max((each.x + each.width for each in boxes.values()), default=0) + _MARGIN
    height = max((each.y + _HEIGHT for each in boxes.values()), default=0) + _MARGIN
    drawn = [_edge(boxes[edge["from"]], boxes[edge["to"]], edge, across) for edge in graph["edges"]]
    drawn += [_box(each) for each in boxes.values()]
    direction = "across" if across else "down"
    return (
        f'<svg class="hr-graph hr-{direction}" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" role="img" aria-label="{escape(of)}">{"".join(drawn)}</svg>'
    )


def _across(graph: Mapping[str, Any]) -> dict[str, Box]:
    nodes = {each["id"]: each for each in graph["nodes"]}
    found, x = {}, _MARGIN
    for column in layers(graph):
        for row, node in enumerate(column):
            found[node] = _placed(nodes[node], x, _MARGIN + row * _ROW)
        x += max(found[node].width for node in column) + _GAP
    return found


def _down(graph: Mapping[str, Any]) -> dict[str, Box]:
    nodes = {each["id"]: each for each in graph["nodes"]}
    rows = layers(graph)
    lengths = [sum(_width(nodes[node]) for node in row) + 16 * (len(row) - 1) for row in rows]
    found = {}
    for number, (row, length) in enumerate(zip(rows, lengths, strict=True)):
        x = _MARGIN + (max(lengths) - length) / 2
        for node in row:
            found[node] = _placed(nodes[node], x, _MARGIN + number * (_HEIGHT + 46))
            x += found[node].width + 16
    return found


def _placed(node: Mapping[str, Any], x: float, y: float) -> Box:
    title = node.get("title", f"{node['kind']}: {node['id']}")
    return Box(node.get("label", node["id"]), title, node["kind"], x, y, _width(node))


def _width(node: Mapping[str, Any]) -> float:
    return max(90.0, _LETTER * min(len(node.get("label", node["id"])), _LONGEST) + 30)


def _box(box: Box) -> str:
    kind = box.kind if box.kind in _KINDS else "transform"
    label = box.label if len(box.label) <= _LONGEST else f"{box.label[: _LONGEST - 1]}…"
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
    # Above a line that is level, beside one that goes down, and on one that bends.
    x_label, y_label = (x + u) / 2 + (0 if across else 8), (y + v) / 2 + (-7 if across and y == v else 4)
    text = "" if elements is None else f'<text x="{x_label:.1f}" y="{y_label:.1f}">{count(elements)}</text>'
    title = f"<title>{escape(edge['title'])}</title>" if "title" in edge else ""
    return f'<g class="hr-edge">{title}<path d="M{x:.1f} {y:.1f}{bend}"></path><path d="{tip}"></path>{text}</g>'
