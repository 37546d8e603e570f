"""Random graphs with nested loops, for property tests."""

from __future__ import annotations

import random

from headrace.model.timely.loopgraph import LoopGraph
from headrace.model.timely.pathsummaries import ENTER, FEEDBACK, LEAVE


def random_graph(seed: int, *, depth: int = 2, size: int = 3) -> LoopGraph:
    """A graph with an input `in`, and up to `depth` loops within each other, side by side and in a row."""
    rng = random.Random(seed)
    edges: list[tuple[str, str]] = []
    kinds: dict[str, str] = {}

    def new(kind: str = "v") -> str:
        node = f"{kind}{len(kinds) + len(edges)}.{rng.randrange(10**6)}"
        if kind != "v":
            kinds[node] = kind
        return node

    def scope(sources: list[str], level: int) -> list[str]:
        """Adds nodes behind the sources, and returns nodes of the same depth."""
        nodes = list(sources)
        for place in range(rng.randint(1, size)):
            if level < depth and rng.random() < 0.5 and (place or not level):  # a loop has a vertex for feedback
                entered = []
                for sender in rng.sample(nodes, rng.randint(1, min(2, len(nodes)))):
                    enter = new(ENTER)
                    edges.append((sender, enter))
                    entered.append(enter)
                body = scope(entered, level + 1)
                back, head = new(FEEDBACK), rng.choice([node for node in body if node not in kinds])
                edges.append((rng.choice(body), back))
                edges.append((back, head))
                leave = new(LEAVE)
                edges.append((rng.choice(body), leave))
                nodes.append(leave)
            else:
                node = new()
                for sender in rng.sample(nodes, rng.randint(1, min(2, len(nodes)))):
                    edges.append((sender, node))
                nodes.append(node)
        return nodes

    scope(["in"], 0)
    return LoopGraph(edges, kinds)
