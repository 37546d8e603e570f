"""Tasks: a stream's Arrow batches are sent to numbered tasks, and each task has its own state.

In a grouping, the key decides where a row goes; here, the producer of a batch names its task. A task gets all its
batches of a micro-batch at once. Its state is stored as blocks of bytes, with what has changed in a micro-batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol

import pyarrow as pa

from headrace.model.errors import PipelineError
from headrace.model.panes import GLOBAL, Windowing
from headrace.model.pipeline import PCollection, Primitive

TaskOutput = tuple[str | None, int, pa.RecordBatch]
"""An output of a task: the tag of its collection, the number of the task that gets it, and the rows."""

NEXT: Final = "next"
"""The tag of what a task sends to a task of the same `Tasks`, which gets it in the next micro-batch."""


class Task(Protocol):
    """Processes the batches of one task; it depends only on them, on `now` and on its state: a batch may run again."""

    def run(self, batches: Sequence[pa.RecordBatch], now: int) -> Iterable[TaskOutput]:
        """Processes all batches of a micro-batch of the time `now`; the batches of one sender are in its order."""

    def counts(self) -> Mapping[str, float]:
        """Returns metrics of the task, shown as `status().exchanges[label].counts` of the stream's handle."""

    def changes(self) -> list[bytes]:
        """Returns blocks with the state that has changed since the last call, or since state was loaded."""

    def part(self, low: int, high: int) -> list[bytes]:
        """Returns blocks with all state whose hash, of 0 to 2**64 - 1, is in a range; `changes` is not affected."""

    def load(self, blocks: Sequence[bytes]) -> None:
        """Loads blocks, in the order in which they were returned, on top of the state that the task has."""


def checked_shards(shards: object) -> int:
    """Returns a number of shards, if it is one.

    >>> checked_shards(0)
    Traceback (most recent call last):
    headrace.model.errors.PipelineError: shards must be a whole number, at least 1, got 0
    """
    if type(shards) is not int or shards < 1:
        raise PipelineError(f"shards must be a whole number, at least 1, got {shards!r}")
    return shards


class Tasks(Primitive):
    """Sends Arrow batches to a number of tasks, which `task(number, of)` makes; for streams only.

    The elements of the inputs are pairs (task number from 0, Arrow batch). The elements of the outputs are such pairs,
    too: a task yields them with one of the tags in `outputs`, and they have the time of the micro-batch. If a
    checkpoint has no state of a task yet, the task starts with the blocks that `initial(number)` returns. `explain`
    shows the `note`.

    With `rounds`, tasks send batches to each other, by the tag NEXT, which arrive in the next micro-batch; it begins at
    once, also without input. What is on its way is in the checkpoint.

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
        note: str = "",
        rounds: bool = False,
    ) -> None:
        if not callable(task):
            raise PipelineError(f"Tasks takes a class or function that makes a task, task(number, of), got {task!r}")
        if type(tasks) is not int or tasks < 1:
            raise PipelineError(f"Tasks: tasks must be a number of tasks, at least 1, got {tasks!r}")
        if not outputs or len(set(outputs)) != len(outputs):
            raise PipelineError(f"Tasks: outputs must be different tags, at least one, got {outputs!r}")
        if rounds and NEXT in outputs:
            raise PipelineError(
                f"Tasks: {NEXT!r} is the tag of what tasks send to each other; call the output otherwise"
            )
        self.task, self.tasks, self.outputs, self.initial, self.note = task, tasks, tuple(outputs), initial, note
        self.rounds = rounds

    def default_label(self) -> str:
        return f"Tasks({getattr(self.task, '__name__', type(self.task).__name__)})"

    def functions(self) -> tuple[object, ...]:
        return (self.task,) if self.initial is None else (self.task, self.initial)

    def windowing_from(self, inputs: tuple[PCollection, ...]) -> Windowing:
        return GLOBAL
