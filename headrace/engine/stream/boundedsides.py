"""Bounded side inputs of a stream: computed as a batch before the stream begins, and broadcast."""

from __future__ import annotations

from typing import Any

import numpy as np
from pyspark import Broadcast
from pyspark.sql import DataFrame, SparkSession

from headrace.engine.batch.execution import Batch
from headrace.engine.plan import plan, plan_columns
from headrace.engine.plan.joinedtables import without_tables
from headrace.engine.spark.counters import Counters
from headrace.engine.worker.bundles import Bundle, to_block
from headrace.engine.worker.hidden import TIME
from headrace.engine.worker.sidevalues import BroadcastBlocks, SideValue
from headrace.model.collected import Collected
from headrace.model.columnjoins import Join
from headrace.model.elementwise import SideInput
from headrace.model.pipeline import Graph, Node, PCollection
from headrace.model.sinks import Collect


class BoundedSides:
    """Computes and broadcasts the bounded side inputs of a stream."""

    def __init__(self, spark: SparkSession, graph: Graph, counters: Counters) -> None:
        self.spark, self.graph, self.counters = spark, graph, counters
        self._tables: dict[int, DataFrame] = {}
        self._broadcasts: dict[int, Broadcast[Any]] = {}

    def value(self, side: SideInput) -> SideValue:
        """Returns the value of a side input, which is computed when it is first needed."""
        return SideValue.of(side, BroadcastBlocks(self._broadcast(side.collection)))

    def joined_table(self, node: Node) -> DataFrame | None:
        """Returns the table that a join reads, computed when it is first needed; None for other nodes."""
        if not isinstance(node.transform, Join):
            return None
        pc = node.inputs[1]
        if id(pc) not in self._tables:
            planned, frame = plan_columns(self.graph, pc, f"table of {node.label!r}")
            counters = Counters(self.spark.sparkContext)
            table = Batch(self.spark, planned, counters, lambda stage: None).collected(frame)
            # What the stream runs, too, it counts itself.
            streamed = {each.label for each in without_tables(self.graph)}
            self.counters.take_over(counters, {each.label for each in self.graph} - streamed)
            self._tables[id(pc)] = self.spark.createDataFrame(table.drop_columns([TIME])).persist()
        return self._tables[id(pc)]

    def close(self) -> None:
        for table in self._tables.values():
            table.unpersist()
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
