"""Five questions about a graph whose edges come and go; every answer is kept up to date, whatever is added or removed.

    python examples/changing_graphs.py                  # all of them
    python examples/changing_graphs.py components

Each program is a loop over collections that change. The same edges arrive in three micro-batches; after each one the
answer is what a computation from scratch would give, and only that was computed which is not as it was.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import headrace as hr

# A road network: two towns that get a bridge, which is then closed. Each item is a micro-batch.
ROADS: list[list[Any]] = [
    [("ash", "bay"), ("bay", "cove"), ("cove", "ash"), ("dale", "elm"), ("elm", "fen")],
    [("cove", "dale")],
    [hr.Change(("cove", "dale"), -1), ("fen", "dale")],
]

# A bill of materials: a part, what it is built into, and how many of it: counts of elements are numbers of pieces.
PIECES: list[list[Any]] = [
    [hr.Change(("bolt", "wheel"), 5), hr.Change(("wheel", "axle"), 2), hr.Change(("axle", "wagon"), 2)],
    [hr.Change(("bolt", "wagon"), 12)],
    [hr.Change(("wheel", "axle"), -1)],
]


def components(edges: hr.Collection) -> hr.Collection:
    """Gives each node the least node that it is connected with."""
    both = edges.concat(edges.map(lambda edge: (edge[1], edge[0])))
    nodes = both.map(lambda edge: (edge[0], edge[0])).distinct()
    return hr.iterate(
        nodes, lambda labels: labels.join(both, lambda node, label, other: (other, label)).concat(nodes).reduce(min)
    )


def distances(edges: hr.Collection, root: Any = "ash") -> hr.Collection:
    """Gives each node that can be reached from the root the least number of steps: breadth-first search."""
    start = edges.flat_map(lambda edge: edge).filter(lambda node: node == root).distinct().map(lambda node: (node, 0))
    return hr.iterate(
        start, lambda found: found.join(edges, lambda at, steps, to: (to, steps + 1)).concat(start).reduce(min)
    )


def ranks(edges: hr.Collection, unit: float = 1e-4) -> hr.Collection:
    """Gives each node its PageRank, as a whole number of units: the average rank is 1.

    Shares are rounded down to units, so ranks only ever grow from round to round, and stop when no unit moves.
    """
    nodes = edges.flat_map(lambda edge: edge).distinct()
    base = nodes.map(lambda node: (node, round(0.15 / unit)))
    outgoing = edges.count().join(edges, lambda node, degree, other: (node, (degree, other)))
    return hr.iterate(
        base,
        lambda rank: (
            rank.join(outgoing, lambda node, units, way: (way[1], units * 85 // (100 * way[0])))
            .concat(base)
            .reduce(sum)
        ),
    )


def pieces(built: hr.Collection) -> hr.Collection:
    """Gives pairs of a part and what it is in, directly or not; the count of a pair is the number of pieces."""
    return hr.iterate(
        built, lambda inside: inside.map(lambda pair: (pair[1], pair[0])).join(built, _built_into).concat(built)
    )


def _built_into(via: Any, part: Any, whole: Any) -> tuple[Any, Any]:
    return part, whole


def cores(edges: hr.Collection, k: int = 2) -> hr.Collection:
    """Leaves the edges of the k-core, in both directions: nodes with fewer than k neighbours go, until none is left."""

    def without_weak(ways: hr.Collection) -> hr.Collection:
        strong = ways.count().filter(lambda pair: pair[1] >= k).map(lambda pair: (pair[0], None))
        turned = ways.join(strong, lambda node, other, _: (other, node))
        return turned.join(strong, lambda node, other, _: (other, node))

    return hr.iterate(edges.concat(edges.map(lambda edge: (edge[1], edge[0]))), without_weak)


def follow(program: Callable[[hr.Collection], hr.Collection], batches: list[list[Any]]) -> list[dict[Any, int]]:
    """Runs a program over micro-batches of changes, and returns the answer after each of them."""
    p = hr.Pipeline()
    script = hr.TestStream()
    for batch in batches:
        script = script.add(batch)
    out = hr.changes(program(hr.collection(p | script.finish()))) | hr.Collect()
    p.run(stream=True).wait()
    answer: Counter[Any] = Counter()
    answers = []
    for number in range(len(batches)):
        for change in out.batches.get(number, ()):
            answer[change.value.element] += change.value.diff
        answers.append({element: count for element, count in sorted(answer.items()) if count})
    return answers


def draw_groups(answer: dict[Any, int]) -> str:
    """Draws nodes in groups of the same label."""
    groups: dict[Any, list[str]] = {}
    for node, label in answer:
        groups.setdefault(label, []).append(node)
    return "   ".join("(" + "─".join(group) + ")" for group in groups.values())


def draw_bars(answer: dict[Any, int], scale: float = 1) -> str:
    """Draws a number for each node as a bar."""
    return "   ".join(f"{node} {'▪' * max(1, round(number * scale)) if number else '·'}" for node, number in answer)


def draw_counts(answer: dict[Any, int]) -> str:
    """Draws how many of each part are in each whole."""
    return "   ".join(f"{count} {part} → {whole}" for (part, whole), count in answer.items())


def draw_edges(answer: dict[Any, int]) -> str:
    """Draws edges that are there in both directions."""
    return "   ".join(f"{one}═{other}" for one, other in answer if one < other) or "(none)"


QUESTIONS: dict[str, tuple[Callable[[hr.Collection], hr.Collection], list[list[Any]], Callable[..., str]]] = {
    "components": (components, ROADS, draw_groups),
    "distances": (distances, ROADS, draw_bars),
    "ranks": (ranks, ROADS, lambda answer: draw_bars(answer, 5e-4)),
    "pieces": (pieces, PIECES, draw_counts),
    "cores": (cores, ROADS, draw_edges),
}


def main(names: list[str]) -> None:
    if unknown := [name for name in names if name not in QUESTIONS]:
        sys.exit(f"no question {unknown[0]!r}; there are {', '.join(QUESTIONS)}")
    for name in names or QUESTIONS:
        program, batches, draw = QUESTIONS[name]
        print(name)
        for batch, answer in zip(batches, follow(program, batches), strict=True):
            print(f"  {len(batch)} changes: {draw(answer)}")


if __name__ == "__main__":
    main(sys.argv[1:])
