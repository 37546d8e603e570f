"""Random graphs of vertices with nested loops, whose vertices send and ask for notices as their messages say."""

from __future__ import annotations

import random
import zlib
from functools import partial
from typing import Any

from headrace.model.timely.antichains import Time
from headrace.model.timely.vertex import Vertex
from headrace.model.timely.vertexgraph import Graph, LoopContext, Stream

Event = tuple[str, str, Time]
EVENTS: list[Event] = []
"""What vertices of all graphs were called with: the stage, "message" or "notice", and the time."""


class Busy(Vertex):
    """A vertex whose behaviour depends on nothing but messages, times and its state. Messages are numbers of energy."""

    outputs = ("out", "other")

    def __init__(self, stage: str, seed: int) -> None:
        self.stage, self.seed, self.seen, self.heard = stage, seed, 0, [0]

    def on_recv(self, message: int, time: Time) -> None:
        EVENTS.append((self.stage, "message", time))
        self.seen += 1
        self._act(message, time, notice=True)

    def on_recv_b(self, message: int, time: Time) -> None:
        self.on_recv(message, time)

    on_recv_a = on_recv_b

    def on_notify(self, time: Time) -> None:
        EVENTS.append((self.stage, "notice", time))
        self.heard.append(self.seen)
        self._act(2, time, notice=False)

    def _act(self, energy: int, time: Time, *, notice: bool) -> None:
        rng = random.Random(zlib.crc32(repr((self.seed, energy, time, self.seen, self.heard[-1])).encode()))
        for _ in range(rng.randint(0, 2) if energy > 0 else 0):
            later = tuple(at + (rng.random() < 0.1) for at in time)
            self.send_by(rng.choice(self.outputs), energy - 1, tuple(map(int, later)))
        if notice and rng.random() < 0.6:
            self.notify_at(tuple(int(at + rng.choice([0, 0, 1])) for at in time))


def random_graph(seed: int, *, depth: int = 2, size: int = 3) -> tuple[Graph, dict[str, Stream]]:
    """A graph with one or two inputs, and loops within each other, side by side and in a row; all ends are outputs."""
    rng = random.Random(seed)
    graph = Graph()

    def stage(sources: list[Stream]) -> Stream:
        name = f"s{len(graph.stages)}"
        vertices = rng.choice([1, 1, 3])
        read = [each.by(lambda message: message) for each in sources]
        inputs: Any = read[0] if len(read) == 1 else {"a": read[0], "b": read[1]}
        made = graph.stage(partial(Busy, name, seed), inputs, vertices=vertices, name=name)
        return made[rng.choice(Busy.outputs)]

    def scope(streams: list[Stream], context: LoopContext | None, level: int) -> list[Stream]:
        streams = list(streams)
        for place in range(rng.randint(1, size)):
            some = rng.sample(streams, rng.randint(1, min(2, len(streams))))
            if level < depth and rng.random() < 0.5 and (place or not level):
                iterations = rng.choice([None, None, 3])
                loop = graph.loop(iterations=iterations) if context is None else context.loop(iterations=iterations)
                back = loop.feedback()
                head = stage([loop.enter(some[0]), back])
                body = scope([head, *(loop.enter(each) for each in some[1:])], loop, level + 1)
                back.connect(rng.choice(body))
                streams.append(loop.leave(rng.choice(body)))
            else:
                streams.append(stage(some))
        return streams

    inputs = [graph.input(name) for name in ["in", "more"][: rng.randint(1, 2)]]
    streams = scope(inputs, None, 0)
    return graph, {f"o{number}": stream for number, stream in enumerate(streams)}
