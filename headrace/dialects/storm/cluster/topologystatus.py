"""How far a topology is, task by task, and what it is made of: as values, as JSON, and as a table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from headrace.dialects.storm.api.groupings import described
from headrace.dialects.storm.graph.enginetasks import FROM

if TYPE_CHECKING:
    from headrace.dialects.storm.api.topology import Topology
    from headrace.dialects.storm.cluster.spouthost import SpoutHost

State = Literal["active", "inactive", "rebalancing", "killed", "failed"]
"""What a topology does; one that is killed ends once what is under way is done."""


@dataclass(frozen=True)
class TaskStatus:
    """One task. Those of spouts count since they were started, those of bolts in all their life.

    - execute_ms: milliseconds of `execute` a tuple, of a bolt; complete_ms: from emit to ack, of a spout, and of its
      latest 10,000 tuples what half of them and 99 of 100 of them took at most
    - queued: of a spout, tuples in the log that are not read yet; of a bolt, those that it was handed in the last
      micro-batch, which is what a micro-batch has for a queue, and None until it has told of one
    - pending: tuples of a spout that are under way
    - throttled: whether a spout may not emit now, since too much of it is under way or not read yet; and for how many
      seconds that was so in all
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
    """What a bolt reads: a stream of a component's, how its tuples are shared among tasks, and how many have come."""

    source: str
    stream: str
    grouping: str
    tuples: int = 0


@dataclass(frozen=True)
class ComponentStatus:
    """A spout or a bolt, how many tasks it has, and what it reads."""

    id: str
    kind: Literal["spout", "bolt"]
    tasks: int
    inputs: tuple[InputStatus, ...] = ()


@dataclass(frozen=True)
class TopologyStatus:
    """A topology: its state, the micro-batches of this run, how long the last one took, trees under way, and tasks.

    `components` are what it is made of, so that it can be drawn; `error` is what it failed with.

    >>> print(TopologyStatus("words", "active", 3, 0.5, 0, (TaskStatus("count", 2, emitted=7, executed=7, acked=7),)))
    words is active: 3 micro-batches, the last in 0.50 s, 0 trees under way
    component  task  emitted  executed  acked  failed  errors  execute ms  complete ms  p99 ms  queued  pending  held s
    count         2        7         7      7       0       0           -            -       -       -        -       -
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
        """The tasks of a component."""
        return tuple(task for task in self.tasks if task.component == component)

    def told(self) -> dict[str, Any]:
        """The same, ready to be written as JSON."""
        return asdict(self)

    @staticmethod
    def read(told: Mapping[str, Any]) -> TopologyStatus:
        """What `told` gave.

        >>> status = TopologyStatus("words", "active", 3, 0.5, 0, (TaskStatus("count", 2),))
        >>> TopologyStatus.read(status.told()) == status
        True
        """
        components = [
            ComponentStatus(**{**each, "inputs": tuple(InputStatus(**one) for one in each["inputs"])})
            for each in told["components"]
        ]
        tasks = tuple(TaskStatus(**each) for each in told["tasks"])
        return TopologyStatus(**{**told, "tasks": tasks, "components": tuple(components)})

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
        head = f"{self.name} is {self.state}: {self.batches:,} micro-batches{took}, {self.trees:,} trees under way"
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
    ("held s", "throttled_seconds"),
)


def _cell(number: float | None) -> str:
    return "-" if number is None else f"{number:,}" if isinstance(number, int) else f"{number:,.3f}"


def spout_status(host: SpoutHost) -> TaskStatus:
    """That of a spout's task."""
    counts = host.counts
    latest = sorted(list(counts.latest))  # a copy first: its thread goes on
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
        queued=host.behind,
        pending=len(host.pending),
        throttled=throttled,
        throttled_seconds=microseconds / 1e6,
    )


def _quantile(ordered: list[float], share: float) -> float | None:
    """What so large a share of these took at most, in milliseconds."""
    return 1000 * ordered[math.ceil(len(ordered) * share) - 1] if ordered else None


def bolt_status(component: str, task: int, told: Mapping[str, float]) -> TaskStatus:
    """That of a bolt's task, from what it tells of itself."""
    emitted, executed, acked, failed, errors = (
        int(told.get(name, 0)) for name in ("emitted", "executed", "acked", "failed", "errors")
    )
    return TaskStatus(
        component,
        task,
        emitted,
        executed,
        acked,
        failed,
        errors,
        execute_ms=1000 * told["seconds"] / executed if executed else None,
        queued=int(told["queued"]) if "queued" in told else None,
    )


def component_statuses(
    topology: Topology, told: Mapping[str, Iterable[Mapping[str, float]]]
) -> tuple[ComponentStatus, ...]:
    """What a topology is made of, with what tasks of its bolts tell of themselves."""
    found = [ComponentStatus(node.id, "spout", node.tasks) for node in topology.spouts]
    for node in topology.bolts:
        tasks = list(told.get(node.id, ()))
        inputs = tuple(
            InputStatus(
                each.source,
                each.stream,
                described(each.grouping),
                int(sum(task.get(f"{FROM}{each.source} {each.stream}", 0) for task in tasks)),
            )
            for each in node.inputs
        )
        found.append(ComponentStatus(node.id, "bolt", node.tasks, inputs))
    return tuple(found)
