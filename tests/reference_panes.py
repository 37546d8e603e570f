"""The definition of streaming semantics, one record and one window at a time; the engine is held to it.

A `Reference` takes bundles and clock moves and says which panes come out. Everything is a plain loop over plain
objects: what is slow and obvious here is fast and less obvious in headrace/engine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from headrace.model.panes import Windowing
from headrace.model.times import MAX_TIME, MIN_TIME
from headrace.model.triggers import (
    AfterAll,
    AfterAny,
    AfterCount,
    AfterEach,
    AfterPercentile,
    AfterProcessingTime,
    AfterWatermark,
    Always,
    DefaultTrigger,
    OrFinally,
    Repeatedly,
    Trigger,
)
from headrace.model.windows import CountWindows, Window

Path = tuple[int, ...]  # of a trigger inside a trigger
Emission = tuple[Any, ...]  # key, start, end, values, time, timing, index, on_time_index, first, last, retraction


@dataclass
class Element:
    key: Any
    value: Any
    time: int


@dataclass
class Time:
    watermark: int = MIN_TIME
    now: int = MIN_TIME
    percentiles: dict[float, int] = field(default_factory=dict)

    def percentile(self, q: float) -> int:
        return max(self.watermark, self.percentiles.get(q, MIN_TIME))


@dataclass(eq=False)
class Held:
    """What is kept of one window of one key."""

    key: Any
    window: Window
    deadline: int  # the watermark at which it ends
    born: int  # the number of its first element
    values: list[Any] = field(default_factory=list)
    fresh: int = 0  # elements since the last pane
    times: list[int] = field(default_factory=list)  # that decide the time of the next pane
    index: int = 0
    on_time_index: int = 0
    finished: bool = False
    due: bool = False  # its on-time pane: an element came before the end, and no pane after it
    trigger: dict[Path, int] = field(default_factory=dict)
    emitted: list[Emission] = field(default_factory=list)  # to be taken back


# Triggers. Each keeps at most one number per window: a count, a first arrival, whether it is late, whose turn it is.


def element_came(trigger: Trigger, path: Path, held: Held, time: Time) -> None:
    match trigger:
        case AfterCount():
            held.trigger[path] = held.trigger.get(path, 0) + 1
        case AfterProcessingTime():
            held.trigger.setdefault(path, time.now)
        case AfterWatermark():
            part = 1 if held.trigger.get(path) else 0
            child = (trigger.early, trigger.late)[part]
            if child is not None:
                element_came(child, (*path, part), held, time)
        case AfterEach():
            turn = held.trigger.get(path, 0)
            if turn < len(trigger.triggers):
                element_came(trigger.triggers[turn], (*path, turn), held, time)
        case _:
            for number, child in enumerate(trigger.children()):
                element_came(child, (*path, number), held, time)


def alarm_rang(trigger: Trigger, path: Path, held: Held, before: Time, after: Time) -> bool:
    match trigger:
        case DefaultTrigger():
            return before.watermark < held.deadline <= after.watermark
        case AfterPercentile():
            return before.percentile(trigger.q) < held.deadline <= after.percentile(trigger.q)
        case AfterProcessingTime():
            return path in held.trigger and before.now < held.trigger[path] + trigger.delay <= after.now
        case AfterWatermark():
            if held.trigger.get(path):
                return trigger.late is not None and alarm_rang(trigger.late, (*path, 1), held, before, after)
            if held.deadline <= after.watermark:
                return before.watermark < held.deadline
            return trigger.early is not None and alarm_rang(trigger.early, (*path, 0), held, before, after)
        case AfterEach():
            turn = held.trigger.get(path, 0)
            return turn < len(trigger.triggers) and alarm_rang(
                trigger.triggers[turn], (*path, turn), held, before, after
            )
        case _:
            children = enumerate(trigger.children())
            return any(alarm_rang(child, (*path, number), held, before, after) for number, child in children)


def is_ready(trigger: Trigger, path: Path, held: Held, time: Time) -> bool:
    match trigger:
        case AfterCount():
            return held.trigger.get(path, 0) >= trigger.n
        case AfterProcessingTime():
            return path in held.trigger and held.trigger[path] + trigger.delay <= time.now
        case DefaultTrigger():
            return held.deadline <= time.watermark
        case AfterPercentile():
            return held.deadline <= time.percentile(trigger.q)
        case AfterWatermark():
            if held.trigger.get(path):
                return trigger.late is not None and is_ready(trigger.late, (*path, 1), held, time)
            if held.deadline <= time.watermark:
                return True
            return trigger.early is not None and is_ready(trigger.early, (*path, 0), held, time)
        case Repeatedly():
            return is_ready(trigger.trigger, (*path, 0), held, time)
        case AfterAll():
            return all(is_ready(child, (*path, i), held, time) for i, child in enumerate(trigger.triggers))
        case AfterAny() | OrFinally():
            return any(is_ready(child, (*path, i), held, time) for i, child in enumerate(trigger.children()))
        case AfterEach():
            turn = held.trigger.get(path, 0)
            return turn < len(trigger.triggers) and is_ready(trigger.triggers[turn], (*path, turn), held, time)
        case Always():
            return True
    return False


def fire(trigger: Trigger, path: Path, held: Held, time: Time) -> bool:
    """Fires a trigger that is ready, and tells whether it has finished."""
    match trigger:
        case AfterCount() | AfterProcessingTime() | AfterPercentile():
            return True
        case AfterWatermark():
            if held.trigger.get(path):
                assert trigger.late is not None
                repeat(trigger.late, (*path, 1), held, time)
                return False
            if held.deadline <= time.watermark:
                if trigger.late is not None:
                    held.trigger[path] = 1
                return trigger.late is None
            assert trigger.early is not None
            repeat(trigger.early, (*path, 0), held, time)
            return False
        case Repeatedly():
            repeat(trigger.trigger, (*path, 0), held, time)
            return False
        case AfterEach():
            turn = held.trigger.get(path, 0)
            if fire(trigger.triggers[turn], (*path, turn), held, time):
                held.trigger[path] = turn = turn + 1
            return turn == len(trigger.triggers)
        case AfterAny() | AfterAll() | OrFinally():
            fired = {
                number: fire(child, (*path, number), held, time)
                for number, child in enumerate(trigger.children())
                if is_ready(child, (*path, number), held, time)
            }
            if isinstance(trigger, OrFinally):
                return fired.get(0, False) or 1 in fired
            return (all if isinstance(trigger, AfterAll) else any)(fired.values())
    return False


def repeat(trigger: Trigger, path: Path, held: Held, time: Time) -> None:
    if fire(trigger, path, held, time):
        for place in [place for place in held.trigger if place[: len(path)] == path]:
            del held.trigger[place]


def merged_trigger(trigger: Trigger, path: Path, parts: list[Held]) -> dict[Path, int]:
    numbers = [part.trigger[path] for part in parts if path in part.trigger]
    merge = sum if isinstance(trigger, AfterCount) else min if isinstance(trigger, AfterProcessingTime) else max
    merged = {path: merge(numbers)} if numbers else {}
    children = (
        [(0, trigger.early), (1, trigger.late)]
        if isinstance(trigger, AfterWatermark)
        else list(enumerate(trigger.children()))
    )
    for number, child in children:
        if child is not None:
            merged |= merged_trigger(child, (*path, number), parts)
    return merged


@dataclass
class Reference:
    """A shard, defined. `step` takes a bundle and the clocks after it, and returns the panes."""

    windowing: Windowing
    time: Time = field(default_factory=Time)
    before: int = MIN_TIME  # the input watermark before the step
    output: int = MIN_TIME  # the output watermark
    held: list[Held] = field(default_factory=list)
    ordinals: dict[Any, int] = field(default_factory=dict)
    came: int = 0
    late: list[Element] = field(default_factory=list)
    refused: int = 0

    @property
    def counted(self) -> int | None:
        window = self.windowing.window
        return window.n if isinstance(window, CountWindows) else None

    def step(self, bundle: list[Element], watermark: int, now: int, percentiles: dict[float, int]) -> list[Emission]:
        before = self.time
        self.before = before.watermark
        fractions = {q: max(time, before.percentiles.get(q, MIN_TIME)) for q, time in percentiles.items()}
        after = Time(max(before.watermark, watermark), max(before.now, now), before.percentiles | fractions)
        self.time = Time(before.watermark, after.now, before.percentiles)
        touched = self.add(bundle)
        self.time = after
        panes = []
        for held in sorted(self.held, key=lambda held: (held.window.end, held.window.start, held.born)):
            panes += self.judge(held, held in touched, before)
        self.held = [held for held in self.held if not self.over(held.deadline)]
        holds = [self.next_time(held) for held in self.held if held.times]
        self.output = max(self.output, min([after.watermark, *holds]))
        return panes

    def over(self, deadline: int) -> bool:
        lateness = 0 if self.counted else self.windowing.allowed_lateness
        return min(deadline + lateness, MAX_TIME) <= self.time.watermark

    # A bundle: its windows are merged with those held, then its elements are added.

    def add(self, bundle: list[Element]) -> list[Held]:
        pairs = [(element, window) for element in bundle for window in self.windows_of(element)]
        born = self.came
        for number, (element, window) in enumerate(pairs, born):
            if self.find(element.key, window) is None:
                deadline = window.end if self.counted is None else MAX_TIME
                self.held.append(Held(element.key, window, deadline, number))
        self.came += len(pairs)
        if self.windowing.window.merging:
            self.merge({element.key for element, _ in pairs})
        touched = []
        for element, window in pairs:
            held = self.find(element.key, window)
            assert held is not None
            if self.counted is not None and self.ordinals[element.key] >= window.end:
                held.deadline = MIN_TIME
            if held.finished:
                self.refused += 1
                continue
            held.values.append(element.value)
            held.fresh += 1
            held.due |= self.counted is not None or self.time.watermark < held.deadline
            time = element.time
            if self.windowing.timestamp_combiner == "end_of_window" and self.counted is None:
                time = held.window.end - 1
            if time >= self.time.watermark or self.counted is not None:
                held.times.append(time)
            element_came(self.windowing.trigger, (), held, self.time)
            touched.append(held)
        return touched

    def windows_of(self, element: Element) -> list[Window]:
        if self.counted is not None:
            if self.time.watermark >= MAX_TIME:
                self.late.append(element)
                return []
            ordinal = self.ordinals.get(element.key, 0)
            self.ordinals[element.key] = ordinal + 1
            start = ordinal - ordinal % self.counted
            return [Window(start, start + self.counted)]
        windows = [Window(*bounds) for bounds in self.windowing.window.windows_of(element.time, element.key)]
        self.late += [element for window in windows if self.over(window.end)]
        return [window for window in windows if not self.over(window.end)]

    def find(self, key: Any, window: Window) -> Held | None:
        """The window, or the merged one that took its place."""
        merging = self.windowing.window.merging
        for held in self.held:
            inside = held.window.start <= window.start and window.end <= held.window.end
            if held.key == key and (held.window == window or (merging and inside)):
                return held
        return None

    def merge(self, keys: set[Any]) -> None:
        for key in keys:
            mine = [held for held in self.held if held.key == key]
            for group in self.windowing.window.merge([held.window for held in mine]):
                if len(group) > 1:
                    parts = sorted((mine[position] for position in group), key=lambda held: held.born)
                    self.held = [held for held in self.held if all(held is not part for part in parts)]
                    self.held.append(self.united(key, parts))

    def united(self, key: Any, parts: list[Held]) -> Held:
        window = Window(min(part.window.start for part in parts), max(part.window.end for part in parts))
        whole = Held(key, window, window.end, parts[0].born)
        whole.values = [value for part in parts for value in part.values]
        whole.fresh = sum(part.fresh for part in parts)
        whole.times = [time for part in parts for time in part.times]
        whole.finished = any(part.finished for part in parts)
        whole.due = any(part.due for part in parts)
        whole.emitted = [pane for part in parts for pane in part.emitted]
        whole.trigger = merged_trigger(self.windowing.trigger, (), parts)
        for part in parts:
            if part.window == window:
                whole.index, whole.on_time_index = part.index, part.on_time_index
        if whole.finished:
            self.refused += whole.fresh
            self.empty(whole)
        return whole

    # A window is judged if elements came or an alarm rang; it closes, judged or not, when its lateness is used up.

    def judge(self, held: Held, touched: bool, before: Time) -> list[Emission]:
        if held.finished:
            return []
        trigger, after = self.windowing.trigger, self.time
        judged = touched or alarm_rang(trigger, (), held, before, after)
        fired = judged and is_ready(trigger, (), held, after)
        done = fired and fire(trigger, (), held, after)
        over = self.over(held.deadline)
        ended = held.deadline <= after.watermark
        on_time = fired and ended and held.due
        always = self.windowing.closing == "always"
        panes: list[Emission] = []
        if (fired and (held.fresh or on_time or (done and always))) or (over and (held.fresh or always)):
            panes = self.emit(held, ended, last=done or over)
        if done:
            held.finished = True
            self.empty(held)
        return panes

    def emit(self, held: Held, ended: bool, *, last: bool) -> list[Emission]:
        timing = "early"
        if ended:
            timing = "on_time" if held.due else "late"
        on_time_index = held.on_time_index if ended else -1
        values = list(held.values)
        described = (timing, held.index, on_time_index, held.index == 0, last, False)
        pane: Emission = (held.key, *held.window, values, self.next_time(held), *described)
        retractions = [(*back[:-1], True) for back in sorted(held.emitted, key=lambda back: back[1:3])]
        if self.windowing.accumulation == "retracting":
            held.emitted = [pane]
        if self.windowing.accumulation == "discarding":
            held.values = []
        if ended or self.windowing.accumulation == "discarding" or not promises_on_time(self.windowing.trigger):
            held.times = []
        held.fresh = 0
        held.index += 1
        held.on_time_index += ended
        held.due = held.due and not ended
        return [*retractions, pane]

    def next_time(self, held: Held) -> int:
        if not held.times:
            return held.window.end - 1 if self.counted is None else self.before
        if self.windowing.timestamp_combiner == "end_of_window" and self.counted is None:
            return held.window.end - 1
        return (min if self.windowing.timestamp_combiner == "earliest" else max)(held.times)

    def empty(self, held: Held) -> None:
        held.values, held.times, held.emitted, held.fresh = [], [], [], 0


def promises_on_time(trigger: Trigger) -> bool:
    return isinstance(trigger, AfterWatermark | DefaultTrigger) or any(map(promises_on_time, trigger.children()))
