"""The status of a computation: its low watermarks, how far it is behind, its keys and timers, what was late."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from headrace.dialects.millwheel.graph.computationgraph import counts_topic
from headrace.log import Log
from headrace.model.times import MAX_TIME, MIN_TIME, format_duration, format_instant


@dataclass(frozen=True)
class ComputationStatus:
    """The status of a computation.

    - state: "running", "waiting" for a process that runs it, or "failed"
    - owner: the process that runs it; token: how often it was taken over
    - low_watermark: of its input; output_watermark: of what it produces, which waits for its oldest timer
    - behind: how many records follow those it has read; lag: how far its low watermark is behind the clock
    - keys: how many have state or timers; timers: how many wait
    - counts: records, late ones, timers and productions since it was added, up to `counts_offset` of their topic

    >>> print(ComputationStatus("windower", "running", 42, low_watermark=60_000_000, keys=3, counts={"records": 8,
    ...     "late": 2, "timers_set": 5, "timers_fired": 1}))
    windower: running in process 42, low watermark 1970-01-01T00:01:00Z, 3 keys, 4 timers, 2 of 8 records late (25 %)
    """

    name: str
    state: str = "waiting"
    owner: int | None = None
    token: int = 0
    low_watermark: int | None = None
    output_watermark: int | None = None
    behind: int | None = None
    lag: int | None = None
    keys: int = 0
    batches: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    counts_offset: int = 0
    error: str | None = None

    @property
    def timers(self) -> int:
        return self.counts.get("timers_set", 0) - self.counts.get("timers_fired", 0)

    @property
    def late_share(self) -> float:
        """The share of records that came behind the low watermark."""
        return self.counts.get("late", 0) / max(self.counts.get("records", 0), 1)

    def row(self) -> list[str]:
        """Returns the cells of its row in a table of HEADS."""
        return [
            self.name,
            self.state,
            "-" if self.owner is None else str(self.owner),
            *map(_instant, (self.low_watermark, self.output_watermark)),
            "-" if self.lag is None else format_duration(self.lag // 100_000 * 100_000),
            "-" if self.behind is None else f"{self.behind:,}",
            f"{self.keys:,}",
            f"{self.timers:,}",
            f"{self.counts.get('records', 0):,}",
            f"{self.counts.get('late', 0):,} ({self.late_share:.2%})",
        ]

    def __str__(self) -> str:
        records, late = self.counts.get("records", 0), self.counts.get("late", 0)
        parts = [
            f"{self.name}: {self.state}" + ("" if self.owner is None else f" in process {self.owner}"),
            *([f"low watermark {_instant(self.low_watermark)}"] if self.low_watermark is not None else []),
            f"{self.keys:,} keys",
            f"{self.timers:,} timers",
            f"{late:,} of {records:,} records late ({100 * self.late_share:.3g} %)",
            *([self.error] if self.error is not None else []),
        ]
        return ", ".join(parts)


HEADS = (
    "computation",
    "state",
    "owner",
    "low watermark",
    "output",
    "lag",
    "behind",
    "keys",
    "timers",
    "records",
    "late",
)


def table(statuses: Iterable[ComputationStatus]) -> str:
    """Formats the status of computations as a table, and errors below it.

    >>> print(table([ComputationStatus("windower"), ComputationStatus("dips", "failed", error="no such column")]))
    computation  state    owner  low watermark  output  lag  behind  keys  timers  records  late
    windower     waiting  -      -              -       -    -       0     0       0        0 (0.00%)
    dips         failed   -      -              -       -    -       0     0       0        0 (0.00%)
    dips: no such column
    """
    statuses = list(statuses)
    rows = [list(HEADS), *(status.row() for status in statuses)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines += [f"{status.name}: {status.error}" for status in statuses if status.error is not None]
    return "\n".join(lines)


@dataclass
class Counts:
    """The counts of a computation, summed up from its topic as it grows; `offset` is where it goes on."""

    log: str
    name: str
    total: Counter[str] = field(default_factory=Counter)
    offset: int = 0

    def read(self) -> dict[str, int]:
        """Reads what is new; returns all counts."""
        topic = Log(self.log).topic(counts_topic(self.name))
        for record in topic.read(0, max(self.offset, topic.partition(0).earliest())):
            self.total.update(record.value)
            self.offset = record.offset + 1
        return dict(self.total)


def _instant(time: int | None) -> str:
    if time is None:
        return "-"
    return format_instant(time if not MIN_TIME < time < MAX_TIME else time // 1000 * 1000)
