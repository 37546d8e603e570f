"""The vertices of the examples, against networkx, over random graphs that grow epoch by epoch, cut anywhere."""

from __future__ import annotations

import random
from typing import Any

import networkx as nx
import timely_vertices as timely
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.columns.packedlists import pack_list, unpack_lists
from headrace.engine.timely.graphtask import GraphTask
from headrace.model.timely.vertexgraph import Graph
from headrace.model.times import SECOND
from tests.scale import examples


@given(st.integers(0, 10**9))
@examples(300)
def test_answers_after_each_epoch_are_those_of_networkx(seed: int) -> None:
    rng = random.Random(seed)
    graph = Graph()
    roads = graph.input("roads")
    counts = graph.stage(timely.DistinctCount, roads)["counts"]
    outputs = {"labels": timely.components(graph, roads), "steps": timely.distances(graph, roads), "counts": counts}
    task = GraphTask(graph, outputs, "time")
    nodes = ["ash", *"bcdefgh"[: rng.randint(1, 7)]]
    blocks: list[bytes] = []
    ways: list[Any] = []
    of_epoch: dict[int, list[Any]] = {}
    answers: dict[str, dict[str, Any]] = {"labels": {}, "steps": {"ash": 0}}
    for epoch in range(rng.randint(1, 5)):
        # Some are of the next epoch: breadth-first search must not use them yet, nor distinct counts.
        for _ in range(rng.randint(0, 6)):
            one, other = rng.choice(nodes), rng.choice(nodes)
            later = epoch + (rng.random() < 0.3)
            of_epoch.setdefault(later, []).extend([(one, other), (other, one)])
            list(task.run([pack_list("roads", [((one, other), later), ((other, one), later)])], 0))
            if rng.random() < 0.5:
                take(task, epoch, answers)
                blocks += task.changes()
        distinct = take(task, epoch + 1, answers)
        blocks += task.changes()
        ways += of_epoch.get(epoch, [])
        world, sooner = nx.Graph(ways), nx.Graph(ways + of_epoch.get(epoch + 1, []))
        groups = [nx.node_connected_component(sooner, node) for node in sooner]
        assert answers["labels"] == {node: min(group) for node, group in zip(sooner, groups, strict=True)}
        reached = nx.single_source_shortest_path_length(world, "ash") if "ash" in world else {"ash": 0}
        assert answers["steps"] == dict(reached)
        assert distinct == ([len(set(of_epoch[epoch]))] if of_epoch.get(epoch) else [])
        if rng.random() < 0.5:  # another worker goes on
            task = GraphTask(graph, outputs, "time")
            task.load(blocks)


def take(task: GraphTask, closed_to: int, answers: dict[str, dict[str, Any]]) -> list[int]:
    """Closes epochs, notes the least that each town got, and returns distinct counts."""
    counts: list[int] = []
    for name, _, batch in task.advance(closed_to * SECOND):
        for _, listed in unpack_lists(batch):
            for message, _ in listed:
                if name == "counts":
                    counts.append(message)
                else:
                    town, value = message
                    answers[str(name)][town] = min(value, answers[str(name)].get(town, value))
    return counts
