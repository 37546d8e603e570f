"""Runs the tasks of a topology in memory, level by level, as the engine would: first a batch, then its acks.

Batches between tasks go through bytes, and tasks may be restored from their state after any batch.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from headrace import storm
from headrace.dialects.storm.task.acker import Acker, acker_of
from headrace.dialects.storm.task.bolttask import BoltTask
from headrace.dialects.storm.task.spouttask import SpoutTask
from headrace.dialects.storm.task.taskoutput import TaskOutput
from headrace.dialects.storm.task.tuplecolumns import encode_column
from headrace.dialects.storm.task.tupleids import sequence_of
from headrace.engine.columns.arrowbytes import arrow_bytes


class Source(storm.Spout):
    """A spout whose tuples the test passes to the driver."""

    def __init__(self, *fields: str) -> None:
        self.fields = fields


class Sink(storm.BasicBolt):
    """A bolt that stores the values it got."""

    def prepare(self, context: storm.TopologyContext) -> None:
        self.got: list[tuple[Any, ...]] = []

    def execute(self, tup: storm.Tuple) -> None:
        self.got.append(tup.values)


@dataclass
class Driver:
    topology: storm.Topology
    config: storm.Config = field(default_factory=storm.Config)
    ackers: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.bolts = {
            (node.id, index): BoltTask(self.topology, self.config, node.id, index)
            for node in self.topology.bolts
            for index in range(node.tasks)
        }
        self.states: dict[tuple[str, int], list[bytes]] = defaultdict(list)
        self.acker_states: list[list[bytes]] = [[] for _ in range(self.ackers)]
        self.trees = [Acker(self.config.message_timeout) for _ in range(self.ackers)]
        self.emitted: dict[tuple[str, int], int] = defaultdict(int)
        self.outputs: list[tuple[str, int, TaskOutput]] = []

    def batch(self, spouts: Mapping[str, Sequence[Sequence[Any]]], now: int = 0) -> list[tuple[int, int, int]]:
        """Runs rows of spouts (divided among their tasks in turns) through the topology.

        Returns (spout task, place in its sequence, verdict) of the trees that ended.
        """
        waiting: dict[tuple[str, int], list[pa.RecordBatch]] = defaultdict(list)
        acks: list[pa.RecordBatch] = []
        self.outputs = []
        for name, rows in spouts.items():
            node = self.topology.node(name)
            for index in range(node.tasks):
                share = rows[index :: node.tasks]
                if share:
                    self._route(name, index, self._spout(name, index, share, now), waiting, acks)
        for level in self.topology.levels:
            for name in level:
                for index in range(self.topology.node(name).tasks):
                    batches = waiting.pop((name, index), [])
                    self.random.shuffle(batches)
                    task = self.bolts[name, index]
                    self._route(name, index, task.run(batches, now), waiting, acks)
                    self.states[name, index] += task.changes()
        assert not waiting
        return self._run_ackers(acks, now)

    def restart(self) -> None:
        """Makes all tasks again, from their state."""
        for name, index in self.bolts:
            self.bolts[name, index] = BoltTask(self.topology, self.config, name, index)
            self.bolts[name, index].load(self.states[name, index])
        self.trees = [Acker(self.config.message_timeout) for _ in range(self.ackers)]
        for acker, blocks in zip(self.trees, self.acker_states, strict=True):
            acker.load(blocks)

    def got(self, sink: str) -> list[tuple[Any, ...]]:
        return [each for task in self.instances(sink) for each in task.got]

    def instances(self, bolt: str) -> list[Any]:
        return [self.bolts[bolt, index].bolt for index in range(self.topology.node(bolt).tasks)]

    def _spout(self, name: str, index: int, rows: Sequence[Sequence[Any]], now: int) -> TaskOutput:
        fields = self.topology.node(name).streams["default"]
        columns = [encode_column(field, values) for field, values in zip(fields, zip(*rows, strict=True), strict=True)]
        batch = pa.record_batch([column for _, column in columns], schema=pa.schema([field for field, _ in columns]))
        first = self.emitted[name, index]
        self.emitted[name, index] += len(rows)
        task = SpoutTask(self.topology, self.config, name, index)
        return task.run("default", batch, np.arange(first, first + len(rows)), now)

    def _route(self, name: str, index: int, output: TaskOutput, waiting: Any, acks: list[pa.RecordBatch]) -> None:
        self.outputs.append((name, index, output))
        for sent in output.batches:
            waiting[sent.target, sent.task].append(pa.ipc.open_stream(arrow_bytes(sent.batch)).read_next_batch())
        acks.append(output.acks)

    def _run_ackers(self, acks: list[pa.RecordBatch], now: int) -> list[tuple[int, int, int]]:
        ended: list[tuple[int, int, int]] = []
        rows = pa.concat_batches(acks)
        shares = acker_of(rows.column("root").to_numpy(), self.ackers)
        for number, acker in enumerate(self.trees):
            verdicts = acker.step([rows.filter(pa.array(shares == number))], now)
            self.acker_states[number] += acker.changes()
            tasks, places = sequence_of(verdicts.column("root").to_numpy())
            assert tasks.tolist() == verdicts.column("spout").to_pylist()
            ended += zip(tasks.tolist(), places.tolist(), verdicts.column("verdict").to_pylist(), strict=True)
        return sorted(ended)
