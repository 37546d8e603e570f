"""Reference implementation of a computation: a record at a time, dicts, and a search for the next timer.

The values of records are programs: lists of operations on state, timers and outputs. `Scripted` in the tests runs them
as a computation; here they run on a dict for each key.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from headrace.model.times import MIN_TIME

Op = tuple[Any, ...]


class Given(NamedTuple):
    """A record that comes: its key, its program and its event time."""

    key: Any
    ops: list[Op]
    time: int


class Produced(NamedTuple):
    """What a callback produced; what wall timers produce has no time that is compared."""

    key: Any
    stream: str
    value: Any
    time: int | None


@dataclass
class Key:
    """The state and the timers of a key: (clock, time, tag)."""

    total: int = 0
    items: list[Any] = field(default_factory=list)
    plans: dict[str, list[Op]] = field(default_factory=dict)
    timers: set[tuple[str, int, str]] = field(default_factory=set)


class Reference:
    def __init__(self, *, drops_late: bool) -> None:
        self.drops_late = drops_late
        self.keys: dict[Any, Key] = {}
        self.watermark = self.low = self.now = MIN_TIME
        self.counts = {"records": 0, "late": 0, "timers_set": 0, "timers_fired": 0, "produced": 0}

    def step(self, records: list[Given], watermark: int, now: int) -> list[Produced]:
        """Processes records and then timers, as the clocks have moved."""
        self.now = max(self.now, now)
        produced: list[Produced] = []
        for record in sorted(records, key=lambda each: each.time):
            self.counts["records"] += 1
            if record.time < self.watermark:
                self.counts["late"] += 1
                if self.drops_late:
                    continue
            key = self.keys.setdefault(record.key, Key())
            produced += self._call(record.key, key, "record", record.ops, record.time)
        self.watermark_before, self.watermark = self.watermark, max(self.watermark, watermark)
        for name, key in self.keys.items():
            while (timer := self._due(key)) is not None:
                key.timers.discard(timer)
                self.counts["timers_fired"] += 1
                clock, time, tag = timer
                called = self._call(name, key, f"{clock} {tag}", key.plans.pop(tag, []), time)
                produced += called if clock == "event" else [each._replace(time=None) for each in called]
        pending = [time for key in self.keys.values() for clock, time, _ in key.timers if clock == "event"]
        self.low = max(self.low, min([self.watermark, *pending]))
        self.counts["produced"] += len(produced)
        return produced

    def _due(self, key: Key) -> tuple[str, int, str] | None:
        """Finds the next timer that is due: first by the wall, then by the low watermark."""
        for clock, until in (("wall", self.now), ("event", self.watermark)):
            due = [timer for timer in key.timers if timer[0] == clock and timer[1] <= until]
            if due:
                return min(due)
        return None

    def _call(self, name: Any, key: Key, callback: str, ops: list[Op], time: int) -> list[Produced]:
        produced = []
        for op in ops:
            match op:
                case ("add", number):
                    key.total += number
                case ("note", value):
                    key.items.append(value)
                case ("forget",):
                    key.total, key.items = 0, []
                case ("plan", tag, planned):
                    key.plans[tag] = planned
                case ("timer", clock, at, tag):
                    if (clock, at, tag) not in key.timers:
                        key.timers.add((clock, at, tag))
                        self.counts["timers_set"] += 1
                case ("produce", stream, value, later):
                    produced.append(Produced(name, stream, value, time + later))
        produced.append(Produced(name, "seen", [callback, key.total, list(key.items)], time))
        return produced
