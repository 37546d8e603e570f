"""Tasks in a stream: how rows get to the task they name, the processor of a task's shard, and the work of it.

A task is a shard. Its blocks are stored as they are, behind one that says what time it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.engine.columns.arrowbytes import arrow_bytes
from headrace.engine.columns.hashing import HASHES
from headrace.engine.shard.clocks import Clocks
from headrace.engine.shard.identity import Identity
from headrace.engine.shard.processor import StepResult
from headrace.engine.shard.senders import ToShards
from headrace.engine.worker.blame import blame
from headrace.engine.worker.bundles import Bundle
from headrace.model.panes import GLOBAL, Windowing
from headrace.model.tasks import Task
from headrace.model.times import Int64Array

TASK: Final = "task"

EMITTED: Final = pa.schema([("tag", pa.string()), (TASK, pa.int64()), ("time", pa.int64()), ("batch", pa.binary())])
"""What a step gives: batches, by tag, with the task that each is for, and the time it was."""

_ROWS: Final = pa.schema([(TASK, pa.int64()), ("batch", pa.binary())])
_BLOCK: Final = b"#"  # before each block of the task's own


@dataclass
class TaskBatches:
    """Arrow batches with the tasks they are for, a row each."""

    label: str
    tasks: int

    def schema(self) -> pa.Schema:
        return _ROWS

    def add(self, bundle: Bundle) -> Iterator[pa.RecordBatch]:
        cursor = iter(bundle.elements)
        with blame(self.label, bundle.elements, cursor):
            rows = [{TASK: task, "batch": arrow_bytes(batch)} for task, batch in map(self._checked, cursor)]
        yield pa.RecordBatch.from_pylist(rows, schema=_ROWS)

    def finish(self) -> Iterator[pa.RecordBatch]:
        yield from ()

    def _checked(self, element: Any) -> tuple[int, pa.RecordBatch]:
        match element:
            case (int(task), pa.RecordBatch() as batch) if 0 <= task < self.tasks:
                return task, batch
        raise ValueError(
            f"what tasks read is pairs of a task, from 0 to {self.tasks - 1}, and an Arrow batch for it; this is "
            f"{'for task ' + repr(element[0]) if isinstance(element, tuple) and element else 'no pair'}"
        )


class ToTasks(ToShards):
    """Sends batches to the shards of the tasks they are for, and reports the clocks to every shard."""

    def _shards(self, rows: pa.RecordBatch) -> Int64Array:
        return np.asarray(rows.column(TASK))


class TaskShard:
    """The shard of one task, which begins with the blocks that `initial` gives, unless it is loaded."""

    def __init__(self, task: Task, initial: Callable[[], Sequence[bytes]] | None = None) -> None:
        self.task, self._initial = task, initial
        self._unwritten = False  # whether it has state that is not in its own blocks yet
        self.clocks = Clocks()
        self.fractions: set[float] = set()

    def step(self, rows: pa.RecordBatch | None = None, clocks: Clocks | None = None) -> StepResult:
        """Runs the task once."""
        self.clocks = self.clocks.moved(clocks or Clocks())
        if self._initial is not None:
            self.task.load(self._initial())
            self._initial, self._unwritten = None, True
        batches = [] if rows is None else [_batch(body) for body in rows.column("batch")]
        now = self.clocks.now
        given = [
            {"tag": tag, TASK: task, "time": now, "batch": arrow_bytes(batch)}
            for tag, task, batch in self.task.run(batches, now)
        ]
        body = pa.RecordBatch.from_pylist(given, schema=EMITTED)
        return StepResult(body, None, 0, self.clocks.watermark, 0, counts=self.task.counts())

    def changes(self) -> list[bytes]:
        """What has changed since it was called last, or `load` was."""
        if self._unwritten:
            return self.dump()
        return [self._told(), *(_BLOCK + block for block in self.task.changes())]

    def part(self, low: int, high: int) -> list[bytes]:
        """What the task has in a range of hashes."""
        return [self._told(), *(_BLOCK + block for block in self.task.part(low, high))]

    def dump(self) -> list[bytes]:
        """All there is."""
        self.task.changes()
        self._unwritten = False
        return self.part(0, HASHES)

    def load(self, blocks: list[bytes]) -> None:
        """Takes over blocks in the order in which they were written, on top of what it has."""
        self._initial = None
        told = [block for block in blocks if not block.startswith(_BLOCK)]
        watermark, now = map(int, told[-1].split())
        self.clocks = Clocks(watermark, now)
        self.task.load(task_blocks(blocks))

    def _told(self) -> bytes:
        return f"{self.clocks.watermark} {self.clocks.now}".encode()


def task_blocks(blocks: Iterable[bytes]) -> list[bytes]:
    """Of the blocks that a shard of a task wrote, those that are the task's own."""
    return [block[len(_BLOCK) :] for block in blocks if block.startswith(_BLOCK)]


def _batch(body: pa.BinaryScalar) -> pa.RecordBatch:
    return pa.ipc.open_stream(body.as_buffer()).read_next_batch()


@dataclass(frozen=True)
class TaskWork:
    """Runs tasks: the shards of it, by number."""

    make: Callable[[int, int], Task]
    tasks: int
    initial: Callable[[int], Sequence[bytes]] | None = None
    windowing: Windowing = field(default=GLOBAL, repr=False)

    @property
    def needs_time(self) -> bool:
        return False

    @property
    def retracts(self) -> bool:
        return False

    def processor(self, shard: int = 0) -> TaskShard:
        initial = None if self.initial is None else partial(self.initial, shard)
        return TaskShard(self.make(shard, self.tasks), initial)

    def bundles(self, given: pa.RecordBatch) -> Iterator[tuple[str | None, Bundle]]:
        tags, tasks, times = (given.column(name).to_pylist() for name in ("tag", TASK, "time"))
        for tag, task, time, body in zip(tags, tasks, times, given.column("batch"), strict=True):
            yield tag, Bundle([(task, _batch(body))], time=time)

    def identity(self) -> Identity:
        return {"kind": "tasks", "tasks": self.tasks}

    def describe(self) -> str:
        return f"{self.tasks} task{'' if self.tasks == 1 else 's'}"
