"""Plays the tasks of several shards without Spark: what they send to each other arrives in the next step."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from headrace.engine.columns.arrowbytes import arrow_bytes
from headrace.engine.shard.clocks import Clocks
from headrace.engine.shard.processor import StepResult
from headrace.engine.shard.taskshard import TaskShard
from headrace.model.tasks import NEXT

_ROWS = pa.schema([("task", pa.int64()), ("batch", pa.binary())])


class PlayedShards:
    """Shards that are stepped together. With `rng`, each may go on from its stored state, in any step."""

    def __init__(self, make: Callable[[int, int], Any], shards: int, rng: random.Random | None = None) -> None:
        self._make, self._rng = make, rng
        self.shards = [TaskShard(make(number, shards)) for number in range(shards)]
        self._blocks: list[list[bytes]] = [[] for _ in range(shards)]
        self._deltas: list[list[bytes]] = [[] for _ in range(shards)]
        self._copies: dict[int, tuple[int, TaskShard]] = {}  # that another worker has, and how many deltas are in it
        self._sent: list[list[bytes]] = [[] for _ in range(shards)]
        self.steps = 0

    @property
    def moving(self) -> bool:
        """Whether another micro-batch follows by itself."""
        return any(self._sent)

    def step(self, inputs: Sequence[Sequence[pa.RecordBatch]] = (), watermark: int = 0) -> list[StepResult]:
        """Steps every shard with its input; an attempt of a micro-batch may fail and be run again."""
        self.steps += 1
        sent, self._sent = self._sent, [[] for _ in self.shards]
        results = []
        for number in range(len(self.shards)):
            bodies = [*sent[number], *(arrow_bytes(batch) for batch in (inputs[number] if inputs else ()))]
            rows = [{"task": number, "batch": body} for body in bodies]
            batch = pa.RecordBatch.from_pylist(rows, schema=_ROWS) if rows else None
            results.append(self.shards[number].step(batch, Clocks(watermark, self.steps)))
            self._store(number)
            for tag, to, body in zip(
                *(results[-1].panes.column(name) for name in ("tag", "task", "batch")), strict=True
            ):
                if tag.as_py() == NEXT:
                    self._sent[to.as_py()].append(body.as_py())
        assert not self.moving or all(self._sent), "a micro-batch steps all shards or none"
        return results

    def _store(self, number: int) -> None:
        blocks, rng = self._blocks[number], self._rng
        changes = self.shards[number].changes()
        if rng is None:
            return
        blocks += changes
        self._deltas[number] += changes
        if rng.random() < 0.2:
            middle = rng.randrange(2**64)
            blocks += rng.choice([self.shards[number].part(0, middle), self.shards[number].part(0, 2**64)])
        if rng.random() < 0.3:
            before = self.shards[number]
            if number in self._copies and rng.random() < 0.7:
                known, self.shards[number] = self._copies.pop(number)
                if known < len(self._deltas[number]):
                    self.shards[number].load(self._deltas[number][known:])
            else:
                self.shards[number] = TaskShard(self._make(number, len(self.shards)))
                self.shards[number].load(blocks)
            self._copies[number] = len(self._deltas[number]), before


def outputs(results: Sequence[StepResult]) -> list[pa.RecordBatch]:
    """What a step gave to the pipeline."""
    return [
        pa.ipc.open_stream(body.as_buffer()).read_next_batch()
        for result in results
        for tag, body in zip(result.panes.column("tag"), result.panes.column("batch"), strict=True)
        if tag.as_py() != NEXT
    ]
