"""Tasks in a stream: how rows get to the task they name, the processor of a task's shard, and the work of it.

A task is a shard. Its state is blocks by name; a step stores those that changed, and a part of the state is the blocks
whose names hash into a range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.engine.bundles import BLOCK_SCHEMA, Bundle
from headrace.engine.clocks import Clocks
from headrace.engine.failures import blame
from headrace.engine.hashing import HASHES, hash_bytes
from headrace.engine.ipc import arrow_bytes
from headrace.engine.routing import ToShards
from headrace.engine.shard import Step
from headrace.model.panes import GLOBAL, Windowing
from headrace.model.tasks import TASK, Blocks, Task

GIVEN: Final = pa.schema([("tag", pa.string()), ("time", pa.int64()), ("batch", pa.binary())])
"""What a step gives: batches, by tag, and the time it was."""

_BLOCKS: Final = pa.schema([("name", pa.string()), ("block", pa.large_binary())])
_CLOCKS: Final = b"headrace.clocks"


@dataclass
class Batches:
    """The rows of elements that are Arrow batches, for the tasks that they name."""

    label: str
    tasks: int

    def schema(self) -> pa.Schema:
        raise NotImplementedError("the columns are those of the elements")

    def add(self, bundle: Bundle) -> Iterator[pa.RecordBatch]:
        for batch in bundle.elements:
            with blame(self.label):
                if batch.num_rows:
                    self._check(batch)
                    yield batch

    def finish(self) -> Iterator[pa.RecordBatch]:
        yield from ()

    def _check(self, batch: pa.RecordBatch) -> None:
        if TASK not in batch.schema.names or not pa.types.is_integer(batch.schema.field(TASK).type):
            raise ValueError(
                f"rows for tasks need a column {TASK!r} of whole numbers that says which task each is for; there are "
                f"{', '.join(map(repr, batch.schema.names))}"
            )
        span = pc.min_max(batch.column(TASK)).as_py()
        if batch.column(TASK).null_count or not 0 <= span["min"] <= span["max"] < self.tasks:
            raise ValueError(
                f"rows are for tasks 0 to {self.tasks - 1}, got {span['min']} to {span['max']}"
                f"{' and nulls' if batch.column(TASK).null_count else ''}"
            )


class ToTasks(ToShards):
    """Sends rows to the shards they name, and every shard the tidings. Batches need not have the same columns.

    A shard's rows of batches that follow one another and are alike travel as one, in their order.
    """

    def _by_shard(self) -> Iterator[tuple[int, pa.RecordBatch | None]]:
        sent: list[list[bytes]] = [[] for _ in self.dests]
        for alike in _runs(self.held):
            rows = alike[0] if len(alike) == 1 else pa.concat_batches(alike)
            task = np.asarray(rows.column(TASK))
            order = np.argsort(task, kind="stable")
            edges = np.searchsorted(task[order], np.arange(len(self.dests) + 1)).tolist()
            rows = rows.take(pa.array(order))
            for number, bodies in enumerate(sent):
                if count := edges[number + 1] - edges[number]:
                    bodies.append(arrow_bytes(rows.slice(edges[number], count)))
        self.held = []
        for dest, bodies in zip(self.dests, sent, strict=True):
            yield dest, pa.record_batch([pa.array(bodies, pa.binary())], schema=BLOCK_SCHEMA) if bodies else None


def _runs(batches: list[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Batches that follow one another and have the same columns."""
    run: list[pa.RecordBatch] = []
    for batch in batches:
        if run and not batch.schema.equals(run[0].schema, check_metadata=True):
            yield run
            run = []
        run.append(batch)
    if run:
        yield run


class TaskShard:
    """The shard of one task."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.clocks = Clocks()
        self.fractions: set[float] = set()
        self._blocks: dict[str, bytes] = {}  # as they were stored last

    def step(self, rows: pa.RecordBatch | None = None, clocks: Clocks | None = None) -> Step:
        """Runs the task once."""
        self.clocks = self.clocks.moved(clocks or Clocks())
        batches = [] if rows is None else [_batch(body) for body in rows.column(0)]
        given = [
            {"tag": tag, "time": self.clocks.now, "batch": arrow_bytes(batch)}
            for tag, batch in self.task.run(batches, self.clocks.now)
            if batch.num_rows
        ]
        body = pa.RecordBatch.from_pylist(given, schema=GIVEN)
        return Step(body, None, 0, self.clocks.watermark, len(self._blocks), counts=self.task.counts())

    def changes(self) -> list[bytes]:
        """The blocks that have changed since `dump`, `changes` or `load` was called last."""
        changed = self.task.changes()
        self._take(changed)
        return [self._packed(changed)]

    def dump(self) -> list[bytes]:
        """All blocks."""
        self._take(self.task.changes())
        return self.part(0, HASHES)

    def part(self, low: int, high: int) -> list[bytes]:
        """The blocks whose names' hashes are in a range."""
        names = list(self._blocks)
        hashes = hash_bytes(pa.array(names, pa.string()).cast(pa.binary())).tolist()
        return [
            self._packed({name: self._blocks[name] for name, at in zip(names, hashes, strict=True) if low <= at < high})
        ]

    def load(self, blocks: list[bytes]) -> None:
        """Takes over blocks in the order in which they were written, on top of those it has."""
        loaded: dict[str, bytes | None] = {}
        for block in blocks:
            table = pa.ipc.open_stream(block).read_all()
            watermark, now = map(int, table.schema.metadata[_CLOCKS].split())
            self.clocks = Clocks(watermark, now)
            loaded |= zip(table.column("name").to_pylist(), table.column("block").to_pylist(), strict=True)
        self._take(loaded)
        self.task.load(loaded)

    def _take(self, blocks: Blocks) -> None:
        for name, block in blocks.items():
            if block is None:
                self._blocks.pop(name, None)
            else:
                self._blocks[name] = block

    def _packed(self, blocks: Blocks) -> bytes:
        columns = [pa.array(list(blocks), pa.string()), pa.array(list(blocks.values()), pa.large_binary())]
        clocks = f"{self.clocks.watermark} {self.clocks.now}"
        return arrow_bytes(pa.record_batch(columns, schema=_BLOCKS), {_CLOCKS: clocks})


def _batch(body: pa.BinaryScalar) -> pa.RecordBatch:
    return pa.ipc.open_stream(body.as_buffer()).read_next_batch()


@dataclass(frozen=True)
class Tasking:
    """Runs tasks: the shards of it, by number."""

    make: Callable[[int, int], Task]
    tasks: int
    timed: bool
    windowing: Windowing = field(default=GLOBAL, repr=False)

    @property
    def needs_time(self) -> bool:
        return self.timed

    @property
    def retracts(self) -> bool:
        return False

    def processor(self, shard: int = 0) -> TaskShard:
        return TaskShard(self.make(shard, self.tasks))

    def bundles(self, given: pa.RecordBatch) -> Iterator[tuple[str | None, Bundle]]:
        tags, times = given.column("tag").to_pylist(), given.column("time").to_pylist()
        for tag, time, body in zip(tags, times, given.column("batch"), strict=True):
            yield tag, Bundle([_batch(body)], time=time)

    def describe(self) -> str:
        return f"{self.tasks} task{'' if self.tasks == 1 else 's'}"
