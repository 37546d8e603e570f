"""Tasks in a stream: the output that sends batches to tasks, the processor of a task's shard, and the work.

A task is a shard. Its blocks are stored as they are, behind a block with the clocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, ClassVar, Final, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from headrace.engine.columns.arrowbytes import arrow_bytes
from headrace.engine.columns.hashing import HASHES
from headrace.engine.shard.clocks import Clocks
from headrace.engine.shard.identity import Identity
from headrace.engine.shard.processor import StepResult
from headrace.engine.shard.reports import ClockReport, TaskClocks, WaitingWindow
from headrace.engine.shard.senders import ToShards
from headrace.engine.shard.wire import ROUNDS, WIRE, pack, sink_dest, wire
from headrace.engine.worker.blame import blame
from headrace.engine.worker.bundles import Bundle
from headrace.model.panes import GLOBAL, Windowing
from headrace.model.tasks import Task, TaskOutput
from headrace.model.times import Int64Array

TASK: Final = "task"

EMITTED: Final = pa.schema([("tag", pa.string()), (TASK, pa.int64()), ("time", pa.int64()), ("batch", pa.binary())])
"""The schema of what a step emits: batches, with tag, the task that each is for, and processing time."""

_ROWS: Final = pa.schema([(TASK, pa.int64()), ("batch", pa.binary())])
_BLOCK: Final = b"#"  # before each block of the task; the block of the clocks has none


@dataclass
class TaskBatches:
    """Encodes pairs of a task and an Arrow batch as rows."""

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


@dataclass
class ToNextBatch:
    """Encodes batches that tasks send to each other as rows in flight, which the next micro-batch begins with."""

    batches: TaskBatches
    dests: tuple[int, ...]
    clocks: TaskClocks = field(default_factory=TaskClocks)  # those of the task, which its program sets
    sent: int = 0

    def schema(self) -> pa.Schema:
        return WIRE

    def add(self, bundle: Bundle) -> Iterator[pa.RecordBatch]:
        for rows in self.batches.add(bundle):
            for number, task in enumerate(rows.column(TASK).to_pylist()):
                self.sent += 1
                level, hop = self.clocks.station
                report = ClockReport((level, hop, self.clocks.partition, self.sent))
                row = wire([(self.dests[task], pack(report.dump(), rows.slice(number, 1)))])
                yield wire([(sink_dest(ROUNDS, self.clocks.partition), pack({}, row))])

    def finish(self) -> Iterator[pa.RecordBatch]:
        yield from ()


class ToTasks(ToShards):
    """Sends batches to the shards of the tasks they are for, and reports the clocks to every shard."""

    def _shards(self, rows: pa.RecordBatch) -> Int64Array:
        return np.asarray(rows.column(TASK))


@runtime_checkable
class EventTimeTask(Protocol):
    """A task that follows event time: after its batches it gets the watermark, which came with them."""

    def advance(self, watermark: int) -> Iterable[TaskOutput]:
        """Processes what is complete by the watermark."""

    def hold(self) -> int:
        """Returns the earliest event time that a later output may have."""

    def waiting(self) -> WaitingWindow | None:
        """Returns what waits for the watermark, and why."""


class TaskShard:
    """The processor of one task's shard; a new one loads the blocks that `initial` returns."""

    def __init__(self, task: Task, initial: Callable[[], Sequence[bytes]] | None = None) -> None:
        self.task, self._initial = task, initial
        self._unwritten = False  # whether the state of `initial` was not written yet
        self.clocks = Clocks()
        self.fractions: set[float] = set()

    def step(self, rows: pa.RecordBatch | None = None, clocks: Clocks | None = None) -> StepResult:
        """Runs the task once."""
        self.clocks = self.clocks.moved(clocks or Clocks())
        if self._initial is not None:
            self.task.load(self._initial())
            self._initial, self._unwritten = None, True
        batches = [] if rows is None else [_batch(body) for body in rows.column("batch")]
        now, watermark = self.clocks.now, self.clocks.watermark
        outputs = self.task.run(batches, now)
        timed = self.task if isinstance(self.task, EventTimeTask) else None
        if timed is not None:
            outputs = chain(outputs, timed.advance(watermark))
        emitted = [{"tag": tag, TASK: task, "time": now, "batch": arrow_bytes(batch)} for tag, task, batch in outputs]
        body = pa.RecordBatch.from_pylist(emitted, schema=EMITTED)
        if timed is None:
            return StepResult(body, None, 0, watermark, 0, counts=self.task.counts())
        low = min(watermark, timed.hold())
        return StepResult(body, None, 0, low, 0, waiting=timed.waiting(), counts=self.task.counts())

    def changes(self) -> list[bytes]:
        """Encodes the state delta since it or `load` was last called."""
        if self._unwritten:
            return self.dump()
        return [self._clocks_block(), *(_BLOCK + block for block in self.task.changes())]

    def part(self, low: int, high: int) -> list[bytes]:
        """Encodes the state of the task in a range of hashes."""
        return [self._clocks_block(), *(_BLOCK + block for block in self.task.part(low, high))]

    def dump(self) -> list[bytes]:
        """Encodes the whole state."""
        self.task.changes()
        self._unwritten = False
        return self.part(0, HASHES)

    def load(self, blocks: list[bytes]) -> None:
        """Loads blocks in the order in which they were written, on top of the state it has."""
        self._initial = None
        clocks = [block for block in blocks if not block.startswith(_BLOCK)]
        watermark, now = map(int, clocks[-1].split())
        self.clocks = Clocks(watermark, now)
        self.task.load(task_blocks(blocks))

    def _clocks_block(self) -> bytes:
        return f"{self.clocks.watermark} {self.clocks.now}".encode()


def task_blocks(blocks: Iterable[bytes]) -> list[bytes]:
    """Returns the task's blocks of those that its shard wrote."""
    return [block[len(_BLOCK) :] for block in blocks if block.startswith(_BLOCK)]


def _batch(body: pa.BinaryScalar) -> pa.RecordBatch:
    return pa.ipc.open_stream(body.as_buffer()).read_next_batch()


@dataclass(frozen=True)
class TaskWork:
    """Runs tasks: each shard is the task of its number."""

    make: Callable[[int, int], Task]
    tasks: int
    initial: Callable[[int], Sequence[bytes]] | None = None
    note: str = ""
    rounds: bool = False
    windowing: Windowing = field(default=GLOBAL, repr=False)

    needs_time: ClassVar[bool] = False
    retracts: ClassVar[bool] = False

    def processor(self, shard: int = 0) -> TaskShard:
        initial = None if self.initial is None else partial(self.initial, shard)
        return TaskShard(self.make(shard, self.tasks), initial)

    def bundles(self, emitted: pa.RecordBatch) -> Iterator[tuple[str | None, Bundle]]:
        tags, tasks, times = (emitted.column(name).to_pylist() for name in ("tag", TASK, "time"))
        for tag, task, time, body in zip(tags, tasks, times, emitted.column("batch"), strict=True):
            yield tag, Bundle([(task, _batch(body))], time=time)

    def identity(self) -> Identity:
        return {"kind": "tasks", "tasks": self.tasks}

    def describe(self) -> str:
        return f"{self.tasks} task{'' if self.tasks == 1 else 's'}" + (f", {self.note}" if self.note else "")
