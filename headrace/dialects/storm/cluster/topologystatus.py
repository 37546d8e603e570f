"""The status of a topology: its components and tasks, as values, as JSON and as a table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from headrace.dialects.storm.api.groupings import describe_grouping
from headrace.dialects.storm.graph.enginetasks import FROM

if TYPE_CHECKING:
    from headrace.dialects.storm.api.topology import Topology
    from headrace.dialects.storm.cluster.spouthost import SpoutHost

State = Literal["active", "inactive", "rebalancing", "killed", "failed"]
"""The state of a topology; a killed one ends once its pending tuples are done."""


@dataclass(frozen=True)
class TaskStatus:
    """The status of one task. Spouts count since their last start, bolts since the topology was submitted.

    - execute_ms: for a bolt, milliseconds of `execute` for each tuple
    - complete_ms: for a spout, milliseconds from emit to ack; p50 and p99 are of its latest 10,000 tuples
    - queued: for a spout, tuples in the log that are not read yet; for a bolt, the tuples of its last micro-batch,
      which is what a micro-batch has instead of a queue, and None before the first
    - pending: for a spout, tuples whose trees are not complete
    - throttled: whether a spout may not emit now, because too many of its tuples are pending or not read yet;
      throttled_seconds: for how long in all
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
    complete_p50_ms: float | None = None
    complete_p99_ms: float | None = None
    queued: int | None = None
    pending: int | None = None
    throttled: bool | None = None
    throttled_seconds: float | None = None


@dataclass(frozen=True)
class InputStatus:
    """An input of a bolt: the source and its stream, the grouping, and how many tuples have arrived."""

    source: str
    stream: str
    grouping: str
    tuples: int = 0


@dataclass(frozen=True)
class ComponentStatus:
    """The status of a component: its kind, its number of tasks and its inputs."""

    id: str
    kind: Literal["spout", "bolt"]
    tasks: int
    inputs: tuple[InputStatus, ...] = ()


@dataclass(frozen=True)
class TopologyStatus:
    """The status of a topology: its state, the micro-batches of this run, the length of the last, and its tasks.

    `trees` is the number of pending trees, `components` is the graph of the topology, `error` why it failed.

    >>> print(TopologyStatus("words", "active", 3, 0.5, 0, (TaskStatus("count", 2, emitted=7, executed=7, acked=7),)))
    words is active: 3 micro-batches, the last in 0.50 s, 0 pending trees
    component  task  emitted  executed  acked  failed  errors ...
    count         2        7         7      7       0       0 ...
    """

    name: str
    state: State
    batches: int
    batch_seconds: float | None
    trees: int
    tasks: tuple[TaskStatus, ...]
    components: tuple[ComponentStatus, ...] = ()
    error: str | None = None

    def of(self, component: str) -> tuple[TaskStatus, ...]:
        """Returns the tasks of a component."""
        return tuple(task for task in self.tasks if task.component == component)

    def record(self) -> dict[str, Any]:
        """Returns it as an object of JSON."""
        return asdict(self)

    @staticmethod
    def read(record: Mapping[str, Any]) -> TopologyStatus:
        """Reads what `record` returned.

        >>> status = TopologyStatus("words", "active", 3, 0.5, 0, (TaskStatus("count", 2),))
        >>> TopologyStatus.read(status.record()) == status
        True
        """
        components = [
            ComponentStatus(**{**component, "inputs": tuple(InputStatus(**read) for read in component["inputs"])})
            for component in record["components"]
        ]
        tasks = tuple(TaskStatus(**task) for task in record["tasks"])
        return TopologyStatus(**{**record, "tasks": tasks, "components": tuple(components)})

    def __str__(self) -> str:
        took = "" if self.batch_seconds is None else f", the last in {self.batch_seconds:.2f} s"
        rows = [["component", "task", *(head for head, _ in _COLUMNS)]]
        for task in self.tasks:
            cells = [_cell(getattr(task, name)) for _, name in _COLUMNS]
            rows.append([task.component, str(task.task), *cells])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(
                cell.rjust(width) if at else cell.ljust(width)
                for at, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            for row in rows
        ]
        head = f"{self.name} is {self.state}: {self.batches:,} micro-batches{took}, {self.trees:,} pending trees"
        failure = [] if self.error is None else [f"it failed: {self.error}"]
        return "\n".join([head, *failure, *lines])


_COLUMNS = (
    ("emitted", "emitted"),
    ("executed", "executed"),
    ("acked", "acked"),
    ("failed", "failed"),
    ("errors", "errors"),
    ("execute ms", "execute_ms"),
    ("complete ms", "complete_ms"),
    ("p99 ms", "complete_p99_ms"),
    ("queued", "queued"),
    ("pending", "pending"),
    ("throttled s", "throttled_seconds"),
)


def _cell(number: float | None) -> str:
    return "-" if number is None else f"{number:,}" if isinstance(number, int) else f"{number:,.3f}"


def spout_status(host: SpoutHost) -> TaskStatus:
    """Returns the status of a spout's task."""
    counts = host.counts
    latest = sorted(list(counts.latest))  # a copy first: the thread of the spout goes on
    throttled, microseconds = host.throttled
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
        complete_p50_ms=_quantile(latest, 0.5),
        complete_p99_ms=_quantile(latest, 0.99),
        queued=host.unread,
        pending=len(host.pending),
        throttled=throttled,
        throttled_seconds=microseconds / 1e6,
    )


def _quantile(ordered: list[float], share: float) -> float | None:
    """Returns a quantile of sorted seconds, in milliseconds."""
    return 1000 * ordered[math.ceil(len(ordered) * share) - 1] if ordered else None


def bolt_status(component: str, task: int, counts: Mapping[str, float]) -> TaskStatus:
    """Returns the status of a bolt's task from its counts."""
    emitted, executed, acked, failed, errors = (
        int(counts.get(name, 0)) for name in ("emitted", "executed", "acked", "failed", "errors")
    )
    return TaskStatus(
        component,
        task,
        emitted,
        executed,
        acked,
        failed,
        errors,
        execute_ms=1000 * counts["seconds"] / executed if executed else None,
        queued=int(counts["queued"]) if "queued" in counts else None,
    )


def component_statuses(
    topology: Topology, counts: Mapping[str, Iterable[Mapping[str, float]]]
) -> tuple[ComponentStatus, ...]:
    """Returns the status of all components, from the counts of the bolts' tasks."""
    components = [ComponentStatus(node.id, "spout", node.tasks) for node in topology.spouts]
    for node in topology.bolts:
        tasks = list(counts.get(node.id, ()))
        inputs = tuple(
            InputStatus(
                read.source,
                read.stream,
                describe_grouping(read.grouping),
                int(sum(task.get(f"{FROM}{read.source} {read.stream}", 0) for task in tasks)),
            )
            for read in node.inputs
        )
        components.append(ComponentStatus(node.id, "bolt", node.tasks, inputs))
    return tuple(components)
