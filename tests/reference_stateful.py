"""Reference implementation of a stateful DoFn in a stream: dicts, and a search for the next timer.

The elements of the DoFn are programs: lists of operations on its states and timers. `Scripted` in the tests runs them
on the engine's handles; here they run on a dict for each key and window.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from headrace.model.panes import Windowing
from headrace.model.times import MAX_TIME, MIN_TIME

EVENT, PROCESSING = ("due", "last"), ("wake", "nap")
TIMERS = ("due", "last", "wake", "nap")
EMPTY = {"value": None, "items": [], "kinds": set(), "prices": {}, "total": 0}
"""The states of Scripted, empty: a value, a list, a set, a map and a sum."""
LIFETIMES = {"value": 6_000_000, "prices": 15_000_000}
"""The lifetimes of the states that expire, after their last write."""

Op = tuple[Any, ...]


@dataclass
class Element:
    key: Any
    ops: list[Op]
    time: int
    window: tuple[int, int]


@dataclass
class Cell:
    """The states and timers of a key and window."""

    deadline: int
    states: dict[str, Any] = field(default_factory=lambda: {name: _copy(empty) for name, empty in EMPTY.items()})
    ends: dict[str, int] = field(default_factory=dict)  # when each state that expires is empty again
    timers: dict[str, int] = field(default_factory=dict)
    emitted: dict[str, int] = field(default_factory=dict)  # of processing timers: the event time they were set at
    watermark_holds: set[str] = field(
        default_factory=set
    )  # processing timers that hold the output watermark: not behind it when they were set

    @property
    def blank(self) -> bool:
        return self.states == EMPTY and not self.timers


def _copy(state: Any) -> Any:
    return state.copy() if isinstance(state, list | set | dict) else state


@dataclass
class Output:
    key: Any
    window: tuple[int, int]
    time: int
    value: Any


class Reference:
    def __init__(self, windowing: Windowing) -> None:
        self.lateness = windowing.allowed_lateness
        self.cells: dict[tuple[Any, tuple[int, int]], Cell] = {}
        self.watermark = self.now = self.low = MIN_TIME  # of the input, the clock, of the output

    def step(self, elements: list[Element], watermark: int, now: int) -> tuple[list[Output], int]:
        """Runs a step; returns its outputs and the number of late elements."""
        self.outputs: list[Output] = []
        self.now = max(self.now, now)
        late = 0
        for element in sorted(elements, key=lambda e: e.time):
            place, deadline = (element.key, element.window), min(element.window[1] + self.lateness, MAX_TIME)
            if deadline <= self.watermark:
                late += 1
                continue
            cell = self.cells.setdefault(place, Cell(deadline))
            self._call(place, cell, "process", element.time, element.time, element.time, element.ops)
        reached = max(self.watermark, watermark)
        for place, cell in self.cells.items():
            while (timer := self._due(cell, reached)) is not None:
                self._fire(place, cell, timer)
            if cell.deadline <= reached:
                self._close(place, cell)
        self.watermark = reached
        for cell in self.cells.values():
            self._expire(cell, reached)
        self.cells = {p: cell for p, cell in self.cells.items() if cell.deadline > reached and not cell.blank}
        holds = [cell.timers[name] for cell in self.cells.values() for name in EVENT if name in cell.timers]
        holds += [cell.emitted[name] for cell in self.cells.values() for name in cell.watermark_holds]
        self.low = max(self.low, min([reached, *holds]))
        return self.outputs, late

    def _due(self, cell: Cell, watermark: int) -> str | None:
        """Finds the next timer that is due: first by processing time, then by event time."""
        for names, until in ((PROCESSING, self.now), (EVENT, min(watermark, cell.deadline))):
            set_ = [(cell.timers[name], TIMERS.index(name)) for name in names if name in cell.timers]
            due = [(time, index) for time, index in set_ if time <= until]
            if due:
                return TIMERS[min(due)[1]]
        return None

    def _close(self, place: Any, cell: Cell) -> None:
        once = {n for n, time in cell.timers.items() if n in PROCESSING or time > cell.deadline}
        while True:
            in_time = [n for n in EVENT if n in cell.timers and cell.timers[n] <= cell.deadline]
            ready = in_time or [n for n in once if n in cell.timers]
            if not ready:
                return
            timer = min(ready, key=lambda n: (cell.timers[n], TIMERS.index(n)))
            if not in_time:
                once.discard(timer)
            self._fire(place, cell, timer)

    def _fire(self, place: Any, cell: Cell, timer: str) -> None:
        time = cell.timers.pop(timer)
        emitted = cell.emitted.pop(timer, time)
        cell.watermark_holds.discard(timer)
        event_time = time if timer in EVENT else max(self.watermark, emitted)
        self._call(place, cell, timer, time, event_time, emitted, None)

    def _call(
        self, place: Any, cell: Cell, callback: str, time: int, event_time: int, emitted: int, ops: list[Op] | None
    ) -> None:
        """Calls process or a timer at a time, which is `event_time` in event time; outputs have the time `emitted`."""
        self._expire(cell, event_time)
        if ops is None:  # a timer runs the operations that were planned for it
            ops = []
            if callback in cell.states["prices"]:
                ops = cell.states["prices"].pop(callback)
                self._wrote(cell, "prices", event_time)
                if not cell.states["prices"]:
                    del cell.ends["prices"]
        for op in ops:
            self._run(cell, op, event_time)
        states = {name: _copy(state) for name, state in cell.states.items()}
        self.outputs.append(Output(*place, emitted, (callback, time, states)))

    def _run(self, cell: Cell, op: Op, time: int) -> None:
        states = cell.states
        match op:
            case ("write", value):
                states["value"] = value
                self._wrote(cell, "value", time)
            case ("add", value):
                states["items"].append(value)
            case ("note", value):
                states["kinds"].add(value)
            case ("sum", value):
                states["total"] += value
            case ("plan", timer, ops):
                states["prices"][timer] = ops
                self._wrote(cell, "prices", time)
            case ("clear", name):
                states[name] = _copy(EMPTY[name])
                cell.ends.pop(name, None)
            case ("set", timer, at):
                self._set(cell, timer, at, time)
            case ("after", timer, length):
                self._set(cell, timer, (self.now if timer in PROCESSING else time) + length, time)
            case ("unset", timer):
                for times in (cell.timers, cell.emitted):
                    times.pop(timer, None)
                cell.watermark_holds.discard(timer)

    def _wrote(self, cell: Cell, name: str, time: int) -> None:
        cell.ends[name] = max(cell.ends.get(name, MIN_TIME), time + LIFETIMES[name])

    def _set(self, cell: Cell, timer: str, at: int, time: int) -> None:
        cell.timers[timer] = at
        if timer in PROCESSING:
            cell.emitted[timer] = time
            cell.watermark_holds.discard(timer)
            if time >= self.low:
                cell.watermark_holds.add(timer)

    def _expire(self, cell: Cell, time: int) -> None:
        for name, end in list(cell.ends.items()):
            if end <= time:
                cell.states[name] = _copy(EMPTY[name])
                del cell.ends[name]
