"""Tasks: a stream's rows go to numbered tasks, each by the number it names, and a task keeps state of its own.

Where a grouping sends a row where its key is, here whoever makes the row decides. A task sees all its rows of a
micro-batch at once, as Arrow, and its state is named blocks, of which only those that changed are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol

import pyarrow as pa

from headrace.model.errors import PipelineError
from headrace.model.panes import GLOBAL, Windowing
from headrace.model.pipeline import PCollection, Primitive

TASK: Final = "__task"
"""The column that says which task a row is for: whole numbers from 0."""

Given = tuple[str | None, pa.RecordBatch]
"""What a task gives: rows, and the tag of the output they belong to."""

Blocks = Mapping[str, bytes | None]
"""Blocks of a task's state by name; None for one that is gone."""


class Task(Protocol):
    """One task. It must depend on nothing but its rows, the time it is told, and its blocks: a batch may run again."""

    def run(self, batches: Sequence[pa.RecordBatch], now: int) -> Iterable[Given]:
        """Takes in all rows of a micro-batch, at its time in microseconds; what one sender sent is in its order."""

    def changes(self) -> Blocks:
        """The blocks that are other than when it was asked last, or were loaded."""

    def counts(self) -> Mapping[str, float]:
        """Numbers about itself, for whoever watches: `status().exchanges[label].counts` of the stream's handle."""

    def load(self, blocks: Blocks) -> None:
        """Takes over blocks: a new task all there are, others those that have changed elsewhere since."""


class Tasks(Primitive):
    """Sends rows to `tasks` tasks, which `task(number, of)` makes; for streams only.

    Elements of the inputs are Arrow batches with a column TASK of whole numbers. Elements of the outputs are the
    batches that tasks give, by the tags in `outputs`, at the time of the micro-batch. With `timed`, tasks also run as
    time passes without rows.

    >>> import headrace as hr
    >>> class Total:
    ...     def __init__(self, number, of):
    ...         self.number, self.total = number, 0
    ...     def run(self, batches, now):
    ...         for rows in batches:
    ...             self.total += sum(rows["n"].to_pylist())
    ...             yield None, pa.record_batch({"task": [self.number], "total": [self.total]})
    ...     def changes(self):
    ...         return {"total": str(self.total).encode()}
    ...     def counts(self):
    ...         return {"total": self.total}
    ...     def load(self, blocks):
    ...         self.total = int(blocks["total"])
    >>> rows = pa.record_batch({TASK: pa.array([0, 1, 1], pa.int32()), "n": [1, 2, 3]})
    >>> p = hr.Pipeline()
    >>> totals = p | hr.TestStream().add([rows]).add([rows]).finish() | Tasks(Total, tasks=2)
    >>> out = totals | hr.Map(lambda batch: tuple(batch.to_pylist()[0].values())) | hr.Collect()
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
        timed: bool = False,
    ) -> None:
        if not callable(task):
            raise PipelineError(f"Tasks takes a class or function that makes a task, task(number, of), got {task!r}")
        if type(tasks) is not int or tasks < 1:
            raise PipelineError(f"Tasks: tasks is how many there are, at least 1, got {tasks!r}")
        if not outputs or len(set(outputs)) != len(outputs):
            raise PipelineError(f"Tasks: outputs are tags that differ, at least one, got {outputs!r}")
        self.task, self.tasks, self.outputs, self.timed = task, tasks, tuple(outputs), timed

    def default_label(self) -> str:
        return f"Tasks({getattr(self.task, '__name__', type(self.task).__name__)})"

    def functions(self) -> tuple[object, ...]:
        return (self.task,)

    def windowing_from(self, inputs: tuple[PCollection, ...]) -> Windowing:
        return GLOBAL
