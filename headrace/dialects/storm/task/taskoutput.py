"""The output of a task for one micro-batch: batches for other tasks, rows for the acker, errors and counts."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

import pyarrow as pa

from headrace.dialects.storm.api.failures import ErrorReport
from headrace.dialects.storm.task.router import TaskBatch


@dataclass
class TaskCounts:
    """Counts of a task. `emitted` counts tuples, `sent` their copies; `seconds` is the time spent in `execute`.

    - ticks_skipped: tick tuples that were due in a long pause and did not come
    - received: the number of tuples that arrived, by component and stream
    """

    executed: int = 0
    acked: int = 0
    failed: int = 0
    emitted: int = 0
    sent: int = 0
    errors: int = 0
    ticks: int = 0
    ticks_skipped: int = 0
    seconds: float = 0.0
    received: dict[str, int] = field(default_factory=dict)

    def add(self, more: TaskCounts) -> None:
        """Adds other counts to these.

        >>> counts = TaskCounts(executed=2, received={"words default": 2})
        >>> counts.add(TaskCounts(executed=3, received={"words default": 1, "rules default": 2}))
        >>> counts.executed, counts.received
        (5, {'words default': 3, 'rules default': 2})
        """
        for name in [count.name for count in fields(TaskCounts) if count.name != "received"]:
            setattr(self, name, getattr(self, name) + getattr(more, name))
        for source, count in more.received.items():
            self.received[source] = self.received.get(source, 0) + count


@dataclass(frozen=True)
class TaskOutput:
    """The output of a task: batches for other tasks, one batch of `acker.ACKS`, errors and counts."""

    batches: list[TaskBatch]
    acks: pa.RecordBatch
    errors: list[ErrorReport] = field(default_factory=list)
    counts: TaskCounts = field(default_factory=TaskCounts)
