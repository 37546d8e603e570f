"""Runs the tasks of a topology in memory, level by level, as the engine would: a batch goes all the way, then acks.

What tasks send goes through bytes, and tasks may be made anew from their state after any batch.
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
    """A spout whose tuples the test gives."""

    def __init__(self, *fields: str) -> None:
        self.fields = fields


class Sink(storm.BasicBolt):
    """Remembers what it got."""

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
        self.outcomes: list[tuple[str, int, TaskOutput]] = []

    def batch(self, spouts: Mapping[str, Sequence[Sequence[Any]]], now: int = 0) -> list[tuple[int, int, int]]:
        """Rows of spouts (shared among their tasks in turns) through the topology.

        Returns (spout task, place in its sequence, verdict) of the trees that ended.
        """
        waiting: dict[tuple[str, int], list[pa.RecordBatch]] = defaultdict(list)
        told: list[pa.RecordBatch] = []
        self.outcomes = []
        for name, rows in spouts.items():
            node = self.topology.node(name)
            for index in range(node.tasks):
                mine = rows[index :: node.tasks]
                if mine:
                    self._took(name, index, self._spout(name, index, mine, now), waiting, told)
        for level in self.topology.levels:
            for name in level:
                for index in range(self.topology.node(name).tasks):
                    batches = waiting.pop((name, index), [])
                    self.random.shuffle(batches)
                    task = self.bolts[name, index]
                    self._took(name, index, task.run(batches, now), waiting, told)
                    self.states[name, index] += task.changes()
        assert not waiting
        return self._judged(told, now)

    def restart(self) -> None:
        """Makes all tasks anew from their state."""
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

    def _took(self, name: str, index: int, outcome: TaskOutput, waiting: Any, told: list[pa.RecordBatch]) -> None:
        self.outcomes.append((name, index, outcome))
        for sent in outcome.batches:
            waiting[sent.target, sent.task].append(pa.ipc.open_stream(arrow_bytes(sent.batch)).read_next_batch())
        told.append(outcome.acks)

    def _judged(self, told: list[pa.RecordBatch], now: int) -> list[tuple[int, int, int]]:
        ended: list[tuple[int, int, int]] = []
        rows = pa.concat_batches(told)
        shares = acker_of(rows.column("root").to_numpy(), self.ackers)
        for number, acker in enumerate(self.trees):
            verdicts = acker.step([rows.filter(pa.array(shares == number))], now)
            self.acker_states[number] += acker.changes()
            tasks, places = sequence_of(verdicts.column("root").to_numpy())
            assert tasks.tolist() == verdicts.column("spout").to_pylist()
            ended += zip(tasks.tolist(), places.tolist(), verdicts.column("verdict").to_pylist(), strict=True)
        return sorted(ended)
