"""Drawings of graphs, compared with the graphs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.plan.graphsvg import graph_svg, layers

NODES = [f"node {number}" for number in range(8)]
EDGES = st.lists(st.tuples(st.sampled_from(range(8)), st.sampled_from(range(8))), max_size=20, unique=True)


@given(EDGES, st.permutations(NODES))
def test_every_edge_leads_to_a_later_layer(pairs: list[tuple[int, int]], nodes: list[str]) -> None:
    edges = [{"from": NODES[a], "to": NODES[b], "elements": 3} for a, b in pairs if a < b]
    graph = {"nodes": [{"id": node, "kind": "transform"} for node in nodes], "edges": edges}
    assigned = layers(graph)
    depth = {node: number for number, layer in enumerate(assigned) for node in layer}
    assert sorted(depth) == sorted(nodes) and sum(map(len, assigned)) == len(nodes)
    assert all(depth[str(edge["from"])] < depth[str(edge["to"])] for edge in edges)
    for across in (True, False):
        svg = graph_svg(graph, across=across)
        assert svg.count("<rect") == len(nodes) and svg.count(">3</text>") == len(edges)
