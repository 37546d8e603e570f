"""The graph programs of the examples, against networkx, over random graphs whose edges come and go."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import changing_graphs as graphs
import networkx as nx
import numpy as np
import pyarrow as pa
import pytest

from headrace.engine.columns.packedlists import pack_list, unpack_lists
from headrace.engine.incremental.changeprogram import Program
from headrace.engine.incremental.shardedtask import ShardedProgramTask
from headrace.engine.incremental.shardplaces import brought_home, by_shard
from headrace.model.incremental.changingcollections import Collection
from tests.engine.lockstep import PlayedShards, outputs
from tests.scale import FULL, only_full, scaled

UNIT = 1e-4
SLOW = pytest.mark.slow("a thousand loops of fifty rounds")
Edges = Counter[tuple[int, int]]


def components(edges: Edges) -> dict[Any, int]:
    found = nx.connected_components(nx.Graph(list(edges)))
    return {(node, min(group)): 1 for group in found for node in group}


def distances(edges: Edges) -> dict[Any, int]:
    graph = nx.DiGraph(list(edges))
    return {pair: 1 for pair in nx.single_source_shortest_path_length(graph, 0).items()} if 0 in graph else {}


def pieces(edges: Edges) -> dict[Any, int]:
    """The number of paths, each as often as its edges say."""
    graph = nx.DiGraph(list(edges))
    out = {}
    for one in graph:
        for other in nx.descendants(graph, one):
            paths = nx.all_simple_edge_paths(graph, one, other)
            out[one, other] = sum(product(edges[edge] for edge in path) for path in paths)
    return out


def product(numbers: Any) -> int:
    total = 1
    for number in numbers:
        total *= number
    return total


def cores(edges: Edges) -> dict[Any, int]:
    graph = nx.Graph(list(edges))
    return {way: 1 for a, b in nx.k_core(graph, 2).edges for way in ((a, b), (b, a))}


def check_ranks(answer: dict[Any, int], edges: Edges) -> None:
    graph = nx.DiGraph(list(edges))
    # The ranks are what the matrix leaves as it is; `nx.pagerank` itself would need SciPy.
    matrix = np.asarray(nx.google_matrix(graph, alpha=0.85)).T
    sums = np.ones((1, len(graph)))
    solved = np.linalg.lstsq(np.vstack([matrix - np.eye(len(graph)), sums]), [0] * len(graph) + [1], rcond=None)[0]
    expected = dict(zip(graph, solved, strict=True))
    assert [node for node, _ in sorted(answer)] == sorted(graph)
    for node, units in answer:
        # A share loses less than a unit at each of at most ten edges, in every round of a sum of 0.85 ** n.
        assert abs(units * UNIT - expected[node] * len(graph)) < 10 * len(graph) * UNIT / 0.15 + 1e-8


def random_edges(rng: random.Random, *, nodes: int, kind: str) -> tuple[int, int] | None:
    one, other = rng.randrange(nodes), rng.randrange(nodes)
    if kind in ("pieces", "cores"):  # nothing is part of itself, and an edge is there in one direction
        return (min(one, other), max(one, other)) if one != other else None
    return one, other


class Sharded:
    """A program in several shards, which are stepped until an epoch is over."""

    def __init__(self, result: Collection, rng: random.Random) -> None:
        home = brought_home(result)
        shards = rng.randint(2, 4)
        self._played = PlayedShards(lambda number, of: ShardedProgramTask(home, number, of, "batch"), shards)

    def step(self, changes: dict[str, list[tuple[Any, int]]]) -> dict[Any, int]:
        read: list[list[pa.RecordBatch]] = [[] for _ in self._played.shards]
        for name, listed in changes.items():
            for shard, part in by_shard(listed, len(read)).items():
                read[shard].append(pack_list(name, part))
        found: dict[Any, int] = {}
        results = self._played.step(read)
        while self._played.moving:
            assert not outputs(results), "an epoch is over in one micro-batch"
            results = self._played.step()
        for batch in outputs(results):
            found.update(dict(change for _, listed in unpack_lists(batch) for change in listed))
        return found


@pytest.mark.parametrize("kind", ["components", "distances", pytest.param("ranks", marks=SLOW), "pieces", "cores"])
def test_answers_are_those_of_networkx(kind: str) -> None:
    check_answers(kind, scaled(300), lambda result, rng: Program(result))


@pytest.mark.slow("three shards for each of hundreds of graphs")
@pytest.mark.parametrize(
    "kind",
    ["components", "distances", pytest.param("ranks", marks=only_full("all others in every run")), "pieces", "cores"],
)
def test_answers_of_several_shards_are_those_of_networkx(kind: str) -> None:
    check_answers(kind, 20 if kind == "ranks" else 300 if FULL else 15, Sharded)


def check_answers(kind: str, count: int, made: Callable[[Collection, random.Random], Any]) -> None:
    rules: dict[str, tuple[Callable[[Collection], Collection], Callable[[Edges], dict[Any, int]] | None]] = {
        "components": (graphs.components, components),
        "distances": (lambda edges: graphs.distances(edges, 0), distances),
        "ranks": (lambda edges: graphs.ranks(edges, UNIT), None),
        "pieces": (graphs.pieces, pieces),
        "cores": (graphs.cores, cores),
    }
    build, expected = rules[kind]
    for seed in range(count):
        rng = random.Random(f"{kind} {seed}")
        nodes = rng.randint(2, 5 if kind == "ranks" else 10)
        program = made(build(Collection.input("edges")), rng)
        edges: Edges = Counter()
        answer: Counter[Any] = Counter()
        if kind == "ranks":  # nobody is without a way out
            edges.update({(node, node): 1 for node in range(nodes)})
            answer.update(program.step({"edges": list(edges.items())}))
        for _ in range(rng.randint(1, 5)):
            changes: list[tuple[Any, int]] = []
            for _ in range(rng.randint(1, 2 if kind == "ranks" else 12)):
                edge = random_edges(rng, nodes=nodes, kind=kind)
                if edge is None or (kind == "ranks" and edge[0] == edge[1]):
                    continue
                # Of pieces there are several, of other edges one.
                count = rng.choice([-edges[edge], 1, 3]) if kind == "pieces" else 1 - 2 * edges[edge]
                edges[edge] += count
                changes.append((edge, count))
            edges = +edges
            answer.update(program.step({"edges": changes}))
            found = {element: count for element, count in answer.items() if count}
            if expected is None:
                check_ranks(found, edges)
            else:
                assert found == expected(edges), (seed, changes)
