"""Side inputs of a stream: bounded collections, worked out as a batch before it begins, and the same for all of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from pyspark import Broadcast
from pyspark.sql import SparkSession

from headrace.engine.batch.execution import Batch, Sent
from headrace.engine.plan import plan
from headrace.engine.spark.counters import Counters
from headrace.engine.worker.bundles import Bundle, to_block
from headrace.engine.worker.program import Step
from headrace.model.pipeline import Graph, Node, PCollection
from headrace.model.sinks import Collect, Collected


class SideInputs:
    """Fills in the side inputs of steps."""

    def __init__(self, spark: SparkSession, graph: Graph) -> None:
        self.spark, self.graph = spark, graph
        self._sent: dict[int, Broadcast[Any]] = {}

    def fill(self, steps: Iterable[Step]) -> None:
        """Gives the functions of these steps their side inputs."""
        for step in steps:
            call = getattr(step.op, "call", None)
            for side in call.sides if call is not None else ():
                if isinstance(side.read, PCollection):
                    side.read = Sent(self._of(side.read))

    def close(self) -> None:
        for sent in self._sent.values():
            sent.destroy()

    def _of(self, pc: PCollection) -> Broadcast[Any]:
        if id(pc) not in self._sent:
            values = self._collected(pc).windowed
            placed = [(value.timestamp, value.window.start, value.window.end) for value in values]
            times, starts, ends = np.array(placed, np.int64).reshape(-1, 3).T
            bundle = Bundle([value.value for value in values], times, starts, ends)
            self._sent[id(pc)] = self.spark.sparkContext.broadcast([to_block(bundle)])
        return self._sent[id(pc)]

    def _collected(self, pc: PCollection) -> Collected:
        collect = Collect()
        node = Node(f"side input {pc.label}", collect, (pc,), (), pc.place)
        graph = Graph((*_leading_to(self.graph, pc), node))
        Batch(self.spark, plan(graph), Counters(self.spark.sparkContext), lambda stage: None).run()
        return collect.collected


def _leading_to(graph: Graph, pc: PCollection) -> tuple[Node, ...]:
    """The nodes a collection is made by, in order."""
    needed: set[int] = set()
    wanted = [pc]
    while wanted:
        node = graph.producer(wanted.pop())
        needed.add(id(node))
        wanted += [*node.inputs, *node.transform.side_inputs()]
    return tuple(node for node in graph if id(node) in needed)
