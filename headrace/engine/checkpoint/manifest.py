"""What a stream is, as its checkpoint remembers it: enough to tell whether a changed pipeline can go on from there.

Sources, groupings and sinks are known by their labels. Nothing here reads or writes files.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Final

from headrace.engine.plan.line import Line
from headrace.engine.plan.stages import shown
from headrace.engine.plan.taps import Tap
from headrace.model.errors import PipelineError, other_format

FORMAT: Final = 1
"""Of checkpoints: another number for state or logs that this version would misread, or an older one."""


@dataclass(frozen=True)
class Grouping:
    """A grouping: its number and level, whom it waits for, what must not change about it, and its settings."""

    number: int
    level: int
    upstream: list[str]
    work: str
    settings: str


@dataclass(frozen=True)
class Manifest:
    """What a stream is: an id, its shards and partitions; and by label its sources, groupings and sinks.

    Sources are in the order in which Spark's own checkpoint has them. `heartbeat`: the clock is one of them.

    >>> held = Manifest("a", shards=4, partitions=2, sources={"events": "Rate: Rate(5 a second)"})
    >>> Manifest.read(held.write()) == held, held.forked().stream == held.stream
    (True, False)
    """

    stream: str
    shards: int
    partitions: int
    heartbeat: bool = False
    sources: dict[str, str] = field(default_factory=dict)
    groupings: dict[str, Grouping] = field(default_factory=dict)
    sinks: dict[str, str] = field(default_factory=dict)

    @property
    def depth(self) -> int:
        """How many levels of groupings there are."""
        return max((each.level for each in self.groupings.values()), default=0)

    @property
    def numbers(self) -> dict[str, int]:
        """The numbers of groupings, which are part of where their state is."""
        return {label: each.number for label, each in self.groupings.items()}

    def of(self, line: Line, *, heartbeat: bool) -> Manifest:
        """That of a pipeline, under the same id."""
        return replace(
            self,
            heartbeat=heartbeat,
            sources={tap.name: _source(tap) for tap in line.taps},
            groupings={
                each.label: Grouping(
                    each.number,
                    each.level,
                    list(each.upstream),
                    _steady(each.work.describe()),
                    _steady(each.settings()),
                )
                for each in line.exchanges
            },
            sinks={outlet.node.label: shown(outlet.node.transform) for outlet in line.outlets},
        )

    def forked(self) -> Manifest:
        """The same pipeline as another stream, which has not written to any sink yet."""
        return replace(self, stream=uuid.uuid4().hex, sinks={})

    def in_order(self, taps: Iterable[Tap]) -> list[Tap]:
        """Sources in the order of this manifest."""
        order = list(self.sources)
        return sorted(taps, key=lambda tap: order.index(tap.name) if tap.name in order else len(order))

    def write(self) -> bytes:
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1).encode()

    @classmethod
    def read(cls, data: bytes, what: str = "the checkpoint") -> Manifest:
        """What `write` wrote, for `what`. Refuses that of another format."""
        read = json.loads(data)
        if (found := read.pop("format", 1)) != FORMAT:  # the first had no number
            raise PipelineError(other_format(what, found, FORMAT, "run with a new checkpoint"))
        read["groupings"] = {label: Grouping(**each) for label, each in read["groupings"].items()}
        return cls(**read)


def _source(tap: Tap) -> str:
    transform = tap.source.transform
    return f"{type(transform).__name__}: {shown(transform)}"


def _steady(text: str) -> str:
    """A description without what differs from process to process."""
    return re.sub(r" at 0x[0-9a-f]+", "", text)
