"""How far a topology is, task by task: as values, and as a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.dialects.storm.hosts import SpoutHost


@dataclass(frozen=True)
class TaskStatus:
    """One task. Those of spouts count since they were started, those of bolts in all their life.

    - execute_ms: milliseconds of `execute` a tuple, of a bolt; complete_ms: from emit to ack, of a spout
    - queued: tuples in the log that are not read yet, and pending those that are under way, of a spout
    """

    component: str
    task: int
    emitted: int = 0
    executed: int = 0
    acked: int = 0
    failed: int = 0
    errors: int = 0
    replayed: int = 0
    dead: int = 0
    execute_ms: float | None = None
    complete_ms: float | None = None
    queued: int | None = None
    pending: int | None = None


@dataclass(frozen=True)
class TopologyStatus:
    """A topology: its state, the micro-batches of this run, how long the last one took, trees under way, and tasks.

    >>> print(TopologyStatus("words", "active", 3, 0.5, 0, (TaskStatus("count", 2, emitted=7, executed=7, acked=7),)))
    words is active: 3 micro-batches, the last in 0.50 s, 0 trees under way
    component  task  emitted  executed  acked  failed  errors  execute ms  complete ms  queued  pending
    count         2        7         7      7       0       0           -            -       -        -
    """

    name: str
    state: str
    batches: int
    batch_seconds: float | None
    trees: int
    tasks: tuple[TaskStatus, ...]

    def of(self, component: str) -> tuple[TaskStatus, ...]:
        """The tasks of a component."""
        return tuple(task for task in self.tasks if task.component == component)

    def __str__(self) -> str:
        took = "" if self.batch_seconds is None else f", the last in {self.batch_seconds:.2f} s"
        heads = ["component", "task", "emitted", "executed", "acked", "failed", "errors", "execute ms", "complete ms"]
        rows = [[*heads, "queued", "pending"]]
        for task in self.tasks:
            numbers = (task.emitted, task.executed, task.acked, task.failed, task.errors)
            times = (task.execute_ms, task.complete_ms)
            waits = (task.queued, task.pending)
            rows.append(
                [
                    task.component,
                    str(task.task),
                    *(f"{number:,}" for number in numbers),
                    *("-" if each is None else f"{each:,.3f}" for each in times),
                    *("-" if each is None else f"{each:,}" for each in waits),
                ]
            )
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(
                cell.rjust(width) if at else cell.ljust(width)
                for at, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            for row in rows
        ]
        head = f"{self.name} is {self.state}: {self.batches:,} micro-batches{took}, {self.trees:,} trees under way"
        return "\n".join([head, *lines])


def spout_status(host: SpoutHost) -> TaskStatus:
    """That of a spout's task."""
    counts = host.counts
    return TaskStatus(
        host.context.component,
        host.context.task,
        emitted=counts.emitted,
        acked=counts.acked,
        failed=counts.failed,
        errors=counts.errors,
        replayed=counts.replayed,
        dead=counts.dead,
        complete_ms=1000 * counts.latency / counts.timed if counts.timed else None,
        queued=host.behind,
        pending=len(host.pending),
    )


def bolt_status(component: str, task: int, told: Mapping[str, float]) -> TaskStatus:
    """That of a bolt's task, from what it tells of itself."""
    numbers = {name: int(told.get(name, 0)) for name in ("emitted", "executed", "acked", "failed", "errors")}
    executed = numbers["executed"]
    return TaskStatus(component, task, **numbers, execute_ms=1000 * told["seconds"] / executed if executed else None)
