"""Reports that cross processes in a stream: tasks report clocks to shards, and shards report their progress.

Each report is the header of a body on the wire (see `wire.pack`), and `dump` and `load` are its only JSON form.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Self

from headrace.engine.shard.clocks import WHOLE
from headrace.engine.shard.delays import Sketch
from headrace.engine.shard.wire import Station
from headrace.model.metriccells import Cells, dump_cells, load_cells
from headrace.model.times import MIN_TIME
from headrace.model.watermarks import WatermarkPolicy

Sender = tuple[int, int, int, int]
"""The station and partition of a task, and the number of the body among those it sent."""

NO_SENDER: Final[Sender] = (0, 0, 0, 0)


@dataclass(frozen=True)
class ClockReport:
    """The clocks of a task, as it sends them to the shards of an exchange with or without rows.

    - sender: gives the bodies of a micro-batch an order that is the same in every replay
    - now: the time of the micro-batch; None if no source said one
    - lows: the low watermark by upstream, None for one that had data but cannot tell its watermark
    - partitions: low watermarks by upstream and partition
    - disorder: sketches by upstream and partition, where the watermark depends on the disorder of elements
    - delays: counts by delay bucket, where the exchange has to know how late its input comes

    >>> report = ClockReport((1, 0, 3, 1), now=9, lows={"events": 7})
    >>> report.dump()
    {'from': (1, 0, 3, 1), 'now': 9, 'lows': {'events': 7}}
    >>> ClockReport.load(report.dump()) == report
    True
    """

    sender: Sender = NO_SENDER
    now: int | None = None
    lows: Mapping[str, int | None] = field(default_factory=dict)
    partitions: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    disorder: Mapping[str, Mapping[str, Sketch]] = field(default_factory=dict)
    delays: tuple[tuple[int, int], ...] = ()

    def dump(self) -> dict[str, Any]:
        """Returns the report as JSON has it; what is empty is left out."""
        header = {"from": self.sender, "now": self.now, "lows": self.lows}
        more = {"partitions": self.partitions, "disorder": self.disorder, "delays": self.delays}
        return header | {name: value for name, value in more.items() if value}

    @classmethod
    def load(cls, header: Mapping[str, Any]) -> Self:
        """Reads what `dump` returned."""
        level, hop, partition, number = header["from"]
        return cls(
            (level, hop, partition, number),
            header["now"],
            header["lows"],
            header.get("partitions", {}),
            header.get("disorder", {}),
            tuple((bucket, count) for bucket, count in header.get("delays", ())),
        )

    def watermarks(self) -> Iterator[tuple[str, str, int]]:
        """Yields the low watermarks that are known: upstream, partition (or WHOLE), time."""
        yield from ((name, WHOLE, low) for name, low in self.lows.items() if low is not None)
        for name, lows in self.partitions.items():
            yield from ((name, partition, low) for partition, low in lows.items())

    def sketches(self) -> Iterator[tuple[str, str, Sketch]]:
        """Yields the sketches of disorder: upstream, partition (or WHOLE), sketch."""
        for name, sketches in self.disorder.items():
            yield from ((name, partition, sketch) for partition, sketch in sketches.items())


@dataclass(frozen=True)
class WaitingWindow:
    """A window that has not fired yet: its key, its bounds and why, in words, and the watermark that ends it."""

    key: str
    window: str
    why: str
    deadline: int


@dataclass(frozen=True)
class ShardReport:
    """The progress of a shard after a micro-batch, as it sends it along with its panes.

    - name: which shard of which exchange it is, e.g. "2/0"
    - now: the time of the micro-batch
    - watermark: of its output; input_watermark: of its input
    - held: how many windows have state
    - idle: the sources and partitions that it does not wait for now
    - late, refused: how many elements came too late, or to finished triggers, ever
    - copies: how often a worker had the newest state in memory, an older one, or none
    - counts: numbers that a task tells about itself
    - waiting: the earliest window with elements that it has not fired yet, if that is known
    - lows: the low watermarks of what it reads from; only the first shard of an exchange reports them
    - metrics: what functions recorded in this micro-batch
    - again: the processing time at which it wants to be stepped again, if it does

    >>> report = ShardReport("2/0", now=9, watermark=5, input_watermark=7, held=1, idle=(("events", "a"),))
    >>> ShardReport.load(report.dump()) == report
    True
    """

    name: str
    now: int
    watermark: int
    input_watermark: int
    held: int = 0
    idle: tuple[tuple[str, str], ...] = ()
    late: int = 0
    refused: int = 0
    copies: Mapping[str, int] = field(default_factory=dict)
    counts: Mapping[str, float] = field(default_factory=dict)
    waiting: WaitingWindow | None = None
    lows: Mapping[str, int] = field(default_factory=dict)
    metrics: Cells = field(default_factory=dict)
    again: int | None = None

    def dump(self) -> dict[str, Any]:
        """Returns the report as JSON has it."""
        waiting = None if self.waiting is None else asdict(self.waiting)
        return {**vars(self), "waiting": waiting, "metrics": dump_cells(self.metrics)}

    @classmethod
    def load(cls, header: Mapping[str, Any]) -> Self:
        """Reads what `dump` returned."""
        idle = tuple((name, partition) for name, partition in header["idle"])
        waiting = None if header["waiting"] is None else WaitingWindow(**header["waiting"])
        return cls(**{**header, "idle": idle, "waiting": waiting, "metrics": load_cells(header["metrics"])})


@dataclass
class TaskClocks:
    """Collects the clocks of what one task reads: the time of the batch, and low watermarks by upstream.

    Each task has one. Its program makes it when the task begins and hands it to what it reads with and to all of its
    outputs, so that outputs report at the end what was read since.

    `lows` has an entry for every upstream that had data in this task, None if it cannot tell its watermark. Of those in
    `followed` the watermark is by the times of the rows that reach an exchange.
    """

    station: Station = (0, 0)
    partition: int = 0
    now: int | None = None
    lows: dict[str, int | None] = field(default_factory=dict)
    partitions: dict[str, dict[str, int]] = field(default_factory=dict)
    disorder: dict[str, dict[str, Sketch]] = field(default_factory=dict)
    followed: dict[str, WatermarkPolicy] = field(default_factory=dict)
    skewed: int = 0  # elements too far ahead of the clock to be believed

    def observe(self, name: str, low: int | None, now: int | None, partition: str = WHOLE) -> None:
        """Notes that an upstream, or a partition of it, has come to `low`, in a batch of the time `now`."""
        if partition == WHOLE:
            before = self.lows.get(name)
            self.lows[name] = low if before is None else before if low is None else max(before, low)
        else:
            self.lows.setdefault(name, None)
            lows = self.partitions.setdefault(name, {})
            lows[partition] = max(lows.get(partition, MIN_TIME), MIN_TIME if low is None else low)
        if now is not None:
            self.now = now if self.now is None else max(self.now, now)
