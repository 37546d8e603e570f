"""Tasks: a stream's batches go to numbered tasks, each to the one it names, and a task keeps state of its own.

Where a grouping sends a row where its key is, here whoever makes a batch decides. A task sees all its batches of a
micro-batch at once, as Arrow. Its state is stored as blocks of bytes, of what has changed in a micro-batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from headrace.model.errors import PipelineError
from headrace.model.panes import GLOBAL, Windowing
from headrace.model.pipeline import PCollection, Primitive

TaskOutput = tuple[str | None, int, pa.RecordBatch]
"""What a task gives: the tag of the output it belongs to, the task that is to get it, if any is, and rows."""


class Task(Protocol):
    """One task. It depends on nothing but its batches, the time it is told, and its state: a batch may run again."""

    def run(self, batches: Sequence[pa.RecordBatch], now: int) -> Iterable[TaskOutput]:
        """Takes in all that came in a micro-batch of this time, in microseconds; what one sent is in its order."""

    def counts(self) -> Mapping[str, float]:
        """Numbers about itself, for whoever watches: `status().exchanges[label].counts` of the stream's handle."""

    def changes(self) -> list[bytes]:
        """Blocks of what has changed since this was asked last, or state was loaded."""

    def part(self, low: int, high: int) -> list[bytes]:
        """Blocks of all the state whose hashes, from 0 to 2**64 - 1, are in a range. It does not count as asked."""

    def load(self, blocks: Sequence[bytes]) -> None:
        """Takes over blocks in the order in which they were given, on top of the state it has, if any."""


class Tasks(Primitive):
    """Sends batches to `tasks` tasks, which `task(number, of)` makes; for streams only.

    Elements of the inputs are pairs (task, Arrow batch), tasks counted from 0. Elements of the outputs are such pairs,
    too, which tasks give for the tags in `outputs`, at the time of the micro-batch. Where a checkpoint has no state of
    a task yet, it begins with the blocks that `initial(number)` gives, if that is there.

    >>> import headrace as hr
    >>> class Total:
    ...     def __init__(self, number, of):
    ...         self.number, self.total = number, 0
    ...     def run(self, batches, now):
    ...         for rows in batches:
    ...             self.total += sum(rows["n"].to_pylist())
    ...             yield None, 0, pa.record_batch({"task": [self.number], "total": [self.total]})
    ...     def counts(self):
    ...         return {"total": self.total}
    ...     def changes(self):
    ...         return [str(self.total).encode()]
    ...     def part(self, low, high):
    ...         return self.changes() if low == 0 else []
    ...     def load(self, blocks):
    ...         self.total = int(blocks[-1])
    >>> batches = [(0, pa.record_batch({"n": [1]})), (1, pa.record_batch({"n": [2, 3]}))]
    >>> p = hr.Pipeline()
    >>> totals = p | hr.TestStream().add(batches).add(batches).finish() | Tasks(Total, tasks=2)
    >>> out = totals | hr.MapTuple(lambda _, batch: tuple(batch.to_pylist()[0].values())) | hr.Collect()
    >>> handle = p.run(stream=True)
    >>> status = handle.wait()
    >>> sorted(out), status.exchanges["Tasks(Total)"].counts
    ([(0, 1), (0, 2), (1, 5), (1, 10)], {0: {'total': 2}, 1: {'total': 10}})
    """

    def __init__(
        self,
        task: Callable[[int, int], Task],
        *,
        tasks: int,
        outputs: tuple[str | None, ...] = (None,),
        initial: Callable[[int], Sequence[bytes]] | None = None,
    ) -> None:
        if not callable(task):
            raise PipelineError(f"Tasks takes a class or function that makes a task, task(number, of), got {task!r}")
        if type(tasks) is not int or tasks < 1:
            raise PipelineError(f"Tasks: tasks is how many there are, at least 1, got {tasks!r}")
        if not outputs or len(set(outputs)) != len(outputs):
            raise PipelineError(f"Tasks: outputs are tags that differ, at least one, got {outputs!r}")
        self.task, self.tasks, self.outputs, self.initial = task, tasks, tuple(outputs), initial

    def default_label(self) -> str:
        return f"Tasks({getattr(self.task, '__name__', type(self.task).__name__)})"

    def functions(self) -> tuple[object, ...]:
        return (self.task,) if self.initial is None else (self.task, self.initial)

    def windowing_from(self, inputs: tuple[PCollection, ...]) -> Windowing:
        return GLOBAL
