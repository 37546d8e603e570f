"""Bounded side inputs of a stream: computed as a batch before the stream begins, and broadcast."""

from __future__ import annotations

from typing import Any

import numpy as np
from pyspark import Broadcast
from pyspark.sql import SparkSession

from headrace.engine.batch.execution import Batch
from headrace.engine.plan import plan
from headrace.engine.spark.counters import Counters
from headrace.engine.worker.bundles import Bundle, to_block
from headrace.engine.worker.sidevalues import BroadcastBlocks, SideValue
from headrace.model.collected import Collected
from headrace.model.elementwise import SideInput
from headrace.model.pipeline import Graph, Node, PCollection
from headrace.model.sinks import Collect


class BoundedSides:
    """Computes and broadcasts the bounded side inputs of a stream."""

    def __init__(self, spark: SparkSession, graph: Graph) -> None:
        self.spark, self.graph = spark, graph
        self._broadcasts: dict[int, Broadcast[Any]] = {}

    def value(self, side: SideInput) -> SideValue:
        """Returns the value of a side input, which is computed when it is first needed."""
        return SideValue.of(side, BroadcastBlocks(self._broadcast(side.collection)))

    def close(self) -> None:
        for broadcast in self._broadcasts.values():
            broadcast.destroy()

    def _broadcast(self, pc: PCollection) -> Broadcast[Any]:
        if id(pc) not in self._broadcasts:
            values = self._collected(pc).windowed
            placed = [(value.timestamp, value.window.start, value.window.end) for value in values]
            times, starts, ends = np.array(placed, np.int64).reshape(-1, 3).T
            bundle = Bundle([value.value for value in values], times, starts, ends)
            self._broadcasts[id(pc)] = self.spark.sparkContext.broadcast([to_block(bundle)])
        return self._broadcasts[id(pc)]

    def _collected(self, pc: PCollection) -> Collected:
        collect = Collect()
        node = Node(f"side input {pc.label}", collect, (pc,), (), pc.place)
        graph = Graph((*self.graph.leading_to(pc), node))
        # Counters of its own: the stream runs these transforms, too, and counts them there.
        Batch(self.spark, plan(graph), Counters(self.spark.sparkContext), lambda stage: None).run()
        return collect.collected
