"""Plots and drawings of the page, compared with what they draw."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.server.page.graphsvg import graph_svg, layers
from headrace.server.page.history import History
from headrace.server.page.plot import MAX_BARS, LayerRows, plot
from headrace.views.query.queries import Row

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


def row(hour: int, n: Any) -> Row:
    return Row({}, (hour * 3_600_000_000, (hour + 1) * 3_600_000_000), {"n": n})


LAYER = st.dictionaries(st.integers(0, 30), st.integers(-5, 50), max_size=20)


@given(LAYER, LAYER)
def test_the_parts_of_a_stack_add_up_to_the_answer(batch: dict[int, int], speed: dict[int, int]) -> None:
    total = {hour: batch.get(hour, 0) + speed.get(hour, 0) for hour in sorted(batch.keys() | speed.keys())}
    layer_rows = LayerRows(*([row(hour, n) for hour, n in layer.items()] for layer in (total, batch, speed)))
    options = plot(layer_rows, "n", stacked=True)
    if not total:
        assert options is None
        return
    assert options is not None
    below, above = (series["data"] for series in options["series"])
    assert [(at, n + m) for (at, n), (_, m) in zip(below, above, strict=True)] == [
        (hour * 3_600_000, n) for hour, n in total.items()
    ]
    together = plot(layer_rows, "n", stacked=False)
    assert together is not None
    assert [n for _, n in together["series"][1]["data"]] == list(total.values())


def test_a_plot_has_the_newest_windows_and_numbers_only() -> None:
    rows = [row(hour, hour) for hour in range(MAX_BARS + 10)]
    options = plot(LayerRows(rows, rows, []), "n", stacked=True)
    assert options is not None and options["series"][0]["data"][0] == [10 * 3_600_000, 10]
    assert plot(LayerRows([row(0, ["a", 3])], [], []), "n", stacked=False) is None
    assert plot(LayerRows([row(0, True)], [], []), "n", stacked=False) is None


def test_history_forgets() -> None:
    history = History(max_polls=2)
    for second in range(4):
        name = "old" if second < 2 else "new"
        history.add({"now": f"1970-01-01T00:00:0{second}Z", "topics": {name: {"records_per_second": 1.0}}, "views": {}})
    assert history.lines("in") == {"new": [[2000.0, 1.0], [3000.0, 1.0]]}


@given(st.integers(0, 700))
def test_a_line_of_many_polls_is_thinned_the_same_way_each_time(polls: int) -> None:
    history = History()

    def look(number: int) -> list[list[float | None]]:
        now = f"1970-01-01T00:{number // 60:02}:{number % 60:02}Z"
        history.add({"now": now, "topics": {"visits": {"records_per_second": number}}, "views": {}})
        return history.lines("in")["visits"]

    for number in range(polls):
        before = look(number)
    after = look(polls)
    assert len(after) <= 101 and after[-1][1] == polls
    if polls >= 300:
        assert len([point for point in after if point not in before]) <= 1
