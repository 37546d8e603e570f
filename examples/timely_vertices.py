"""Naiad's examples as vertices: distinct counts and word counts by epoch, components and distances by loops.

    python examples/timely_vertices.py

Roads arrive in three epochs, and loops improve their answers with every one. A vertex that acts in `on_recv` does so at
once, also on messages of an epoch that is not the next; one that waits for `on_notify` goes epoch after epoch.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import headrace as hr
from headrace import naiad

Time = tuple[int, ...]
Road = tuple[str, str]


class DistinctCount(naiad.Vertex):
    """Sends at once what it has not seen in an epoch, and the number of it when the epoch is over."""

    outputs = ("distinct", "counts")

    def __init__(self) -> None:
        self.seen: dict[Time, set[Any]] = {}

    def on_recv(self, message: Any, time: Time) -> None:
        if time not in self.seen:
            self.seen[time] = set()
            self.notify_at(time)
        if message not in self.seen[time]:
            self.seen[time].add(message)
            self.send_by("distinct", message, time)

    def on_notify(self, time: Time) -> None:
        self.send_by("counts", len(self.seen.pop(time)), time)


class WordCount(naiad.Vertex):
    """Counts words over all epochs, and sends the counts that an epoch changed."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.changed: dict[Time, Counter[str]] = {}

    def on_recv(self, message: str, time: Time) -> None:
        self.notify_at(time)
        self.changed.setdefault(time, Counter()).update(message.split())

    def on_notify(self, time: Time) -> None:
        self.counts += self.changed[time]
        for word in sorted(self.changed.pop(time)):
            self.send((word, self.counts[word]), time)


class Spread(naiad.Vertex):
    """Labels towns with the least town that they are connected with: whoever gets a better label sends it on."""

    def __init__(self) -> None:
        self.neighbours: dict[str, list[str]] = {}
        self.labels: dict[str, str] = {}

    def on_recv_roads(self, message: Road, time: Time) -> None:
        town, other = message
        self.neighbours.setdefault(town, []).append(other)
        self.on_recv_labels((town, town), time)
        self.send((other, self.labels[town]), time)

    def on_recv_labels(self, message: tuple[str, str], time: Time) -> None:
        town, label = message
        if town not in self.labels or label < self.labels[town]:
            self.labels[town] = label
            for other in self.neighbours.get(town, ()):
                self.send((other, label), time)


class Search(naiad.Vertex):
    """Breadth-first search: waits in each round for all of its messages, and goes one step on from what they reach."""

    outputs = ("further", "steps")

    def __init__(self, root: str = "ash") -> None:
        self.neighbours: dict[str, list[str]] = {}
        self.steps: dict[str, int] = {root: 0}
        self.roads: dict[Time, list[Road]] = {}
        self.reached: dict[Time, list[tuple[str, int]]] = {}

    def on_recv_roads(self, message: Road, time: Time) -> None:
        self.roads.setdefault(time, []).append(message)
        self.notify_at(time)

    def on_recv_towns(self, message: tuple[str, int], time: Time) -> None:
        self.reached.setdefault(time, []).append(message)
        self.notify_at(time)

    def on_notify(self, time: Time) -> None:
        reached = self.reached.pop(time, [])
        for town, other in self.roads.pop(time, ()):
            self.neighbours.setdefault(town, []).append(other)
            if town in self.steps:
                reached.append((other, self.steps[town] + 1))
        for town, steps in sorted(reached, key=lambda each: each[1]):
            if steps < self.steps.get(town, steps + 1):
                self.steps[town] = steps
                self.send_by("steps", (town, steps), time)
                for other in self.neighbours.get(town, ()):
                    self.send((other, steps + 1), time)


def components(graph: naiad.Graph, roads: naiad.Stream) -> naiad.Stream:
    """Adds a loop of three vertices that gives towns labels; the least that a town got is its label."""
    loop = graph.loop("spreading")
    back = loop.feedback()
    labels = graph.stage(
        Spread,
        {"roads": loop.enter(roads).by(lambda road: road[0]), "labels": back.by(lambda label: label[0])},
        vertices=3,
    )
    back.connect(labels)
    return loop.leave(labels)


def distances(graph: naiad.Graph, roads: naiad.Stream) -> naiad.Stream:
    """Adds a loop that gives towns their distance from the root; the least that a town got is its distance."""
    loop = graph.loop("searching")
    back = loop.feedback()
    found = graph.stage(Search, {"roads": loop.enter(roads), "towns": back})
    back.connect(found["further"])
    return loop.leave(found["steps"])


def both_ways(roads: str) -> list[Road]:
    """Returns roads in both directions: "a-b b-c" are four."""
    pairs = [(one, other) for one, other in (road.split("-") for road in roads.split())]
    return [*pairs, *((other, one) for one, other in pairs)]


def main() -> None:
    def of_epoch(epoch: int, roads: str) -> list[hr.TimestampedValue]:
        return [hr.TimestampedValue(road, epoch) for road in both_ways(roads)]

    script = (
        hr.TestStream()
        .add(of_epoch(0, "ash-bay bay-cove dale-elm"))
        .advance_watermark(1)
        .add(of_epoch(1, "cove-dale") + of_epoch(1, "elm-fen"))
        .advance_watermark(2)
        .add(of_epoch(2, "ash-elm"))
        .finish()
    )
    p = hr.Pipeline()
    arriving = p | script
    graph = naiad.Graph()
    roads = graph.input("roads", arriving)
    names = graph.input("names", arriving | "names" >> hr.Map(" ".join))
    counts, words = graph.stage(DistinctCount, roads)["counts"], graph.stage(WordCount, names)
    streams = [counts, words, components(graph, roads), distances(graph, roads)]
    found = [
        sent | f"collect {number}" >> hr.Collect()
        for number, sent in enumerate(naiad.messages(*streams, epochs="time"))
    ]
    p.run(stream=True).wait()
    labels: dict[str, str] = {}
    steps: dict[str, int] = {"ash": 0}
    for epoch in range(3):
        number, changed, better, nearer = ([each.message for each in out if each.time[0] == epoch] for out in found)
        print(f"epoch {epoch}: {number[0]} ways; " + ", ".join(f"{word} {count}" for word, count in sorted(changed)))
        for town, label in better:
            labels[town] = min(label, labels.get(town, label))
        for town, far in nearer:
            steps[town] = min(far, steps.get(town, far))
        groups: dict[str, list[str]] = {}
        for town, label in sorted(labels.items()):
            groups.setdefault(label, []).append(town)
        print("  " + "   ".join(f"({'─'.join(group)})" for group in groups.values()))
        print("  " + "   ".join(f"{town} {'▪' * far or '·'}" for town, far in sorted(steps.items())))


if __name__ == "__main__":
    main()
