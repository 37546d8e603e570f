"""Reference implementation of windows, triggers and panes in a stream; tests compare the engine with it.

A `Reference` gets bundles and clock moves, and returns panes, one element and one window at a time. Everything is a
plain loop over plain objects: this is slow and easy to check, where headrace/engine is fast and less so.

Of sessions, and other windows that merge, it says two things. One whose trigger has finished is forgotten (`forgets`):
what comes later begins a session of its own. One that grew or merged so that its end is beyond the watermark is as if
the watermark had not passed its end before (`merge_trigger`): AfterWatermark is active again, early and then on time.
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
class WindowState:
    """The state of one window of one key."""

    key: Any
    window: Window
    deadline: int  # the watermark at which it ends, without lateness
    born: int  # the number of its first element
    values: list[Any] = field(default_factory=list)
    fresh: int = 0  # elements since the last pane
    times: list[int] = field(default_factory=list)  # timestamps that decide the timestamp of the next pane
    index: int = 0
    on_time_index: int = 0
    finished: bool = False
    due: bool = False  # whether the on-time pane is still to come: an element came before the end, and no pane after it
    trigger: dict[Path, int] = field(default_factory=dict)
    emitted: list[Emission] = field(default_factory=list)  # panes to be retracted


# Triggers. Each has at most one number per window: a count, a first arrival, whether it is late, the current child.


def on_element(trigger: Trigger, path: Path, state: WindowState, time: Time) -> None:
    match trigger:
        case AfterCount():
            state.trigger[path] = state.trigger.get(path, 0) + 1
        case AfterProcessingTime():
            state.trigger.setdefault(path, time.now)
        case AfterWatermark():
            part = 1 if state.trigger.get(path) else 0
            child = (trigger.early, trigger.late)[part]
            if child is not None:
                on_element(child, (*path, part), state, time)
        case AfterEach():
            turn = state.trigger.get(path, 0)
            if turn < len(trigger.triggers):
                on_element(trigger.triggers[turn], (*path, turn), state, time)
        case _:
            for number, child in enumerate(trigger.children()):
                on_element(child, (*path, number), state, time)


def timer_passed(trigger: Trigger, path: Path, state: WindowState, before: Time, after: Time) -> bool:
    match trigger:
        case DefaultTrigger():
            return before.watermark < state.deadline <= after.watermark
        case AfterPercentile():
            return before.percentile(trigger.q) < state.deadline <= after.percentile(trigger.q)
        case AfterProcessingTime():
            return path in state.trigger and before.now < state.trigger[path] + trigger.delay <= after.now
        case AfterWatermark():
            if state.trigger.get(path):
                return trigger.late is not None and timer_passed(trigger.late, (*path, 1), state, before, after)
            if state.deadline <= after.watermark:
                return before.watermark < state.deadline
            return trigger.early is not None and timer_passed(trigger.early, (*path, 0), state, before, after)
        case AfterEach():
            turn = state.trigger.get(path, 0)
            return turn < len(trigger.triggers) and timer_passed(
                trigger.triggers[turn], (*path, turn), state, before, after
            )
        case _:
            children = enumerate(trigger.children())
            return any(timer_passed(child, (*path, number), state, before, after) for number, child in children)


def is_ready(trigger: Trigger, path: Path, state: WindowState, time: Time) -> bool:
    match trigger:
        case AfterCount():
            return state.trigger.get(path, 0) >= trigger.n
        case AfterProcessingTime():
            return path in state.trigger and state.trigger[path] + trigger.delay <= time.now
        case DefaultTrigger():
            return state.deadline <= time.watermark
        case AfterPercentile():
            return state.deadline <= time.percentile(trigger.q)
        case AfterWatermark():
            if state.trigger.get(path):
                return trigger.late is not None and is_ready(trigger.late, (*path, 1), state, time)
            if state.deadline <= time.watermark:
                return True
            return trigger.early is not None and is_ready(trigger.early, (*path, 0), state, time)
        case Repeatedly():
            return is_ready(trigger.trigger, (*path, 0), state, time)
        case AfterAll():
            return all(is_ready(child, (*path, i), state, time) for i, child in enumerate(trigger.triggers))
        case AfterAny() | OrFinally():
            return any(is_ready(child, (*path, i), state, time) for i, child in enumerate(trigger.children()))
        case AfterEach():
            turn = state.trigger.get(path, 0)
            return turn < len(trigger.triggers) and is_ready(trigger.triggers[turn], (*path, turn), state, time)
        case Always():
            return True
    return False


def fire(trigger: Trigger, path: Path, state: WindowState, time: Time) -> bool:
    """Fires a trigger that is ready, and returns whether it has finished."""
    match trigger:
        case AfterCount() | AfterProcessingTime() | AfterPercentile():
            return True
        case AfterWatermark():
            if state.trigger.get(path):
                assert trigger.late is not None
                repeat(trigger.late, (*path, 1), state, time)
                return False
            if state.deadline <= time.watermark:
                reset((*path, 0), state)  # what the early part counted is in the on-time pane
                if trigger.late is not None:
                    state.trigger[path] = 1
                return trigger.late is None
            assert trigger.early is not None
            repeat(trigger.early, (*path, 0), state, time)
            return False
        case Repeatedly():
            repeat(trigger.trigger, (*path, 0), state, time)
            return False
        case AfterEach():
            turn = state.trigger.get(path, 0)
            if fire(trigger.triggers[turn], (*path, turn), state, time):
                state.trigger[path] = turn = turn + 1
            return turn == len(trigger.triggers)
        case AfterAny() | AfterAll() | OrFinally():
            fired = {
                number: fire(child, (*path, number), state, time)
                for number, child in enumerate(trigger.children())
                if is_ready(child, (*path, number), state, time)
            }
            if isinstance(trigger, OrFinally):
                return fired.get(0, False) or 1 in fired
            return (all if isinstance(trigger, AfterAll) else any)(fired.values())
    return False


def repeat(trigger: Trigger, path: Path, state: WindowState, time: Time) -> None:
    if fire(trigger, path, state, time):
        reset(path, state)


def reset(path: Path, state: WindowState) -> None:
    for place in [place for place in state.trigger if place[: len(path)] == path]:
        del state.trigger[place]


# A window that grew, or into which others merged. Its trigger goes on from what it had counted in the parts, but where
# the new end is beyond the watermark, what had waited for the watermark waits again, and what follows it starts anew.


def merge_trigger(trigger: Trigger, path: Path, parts: list[WindowState], merged: WindowState, time: Time) -> None:
    numbers = [part.trigger[path] for part in parts if path in part.trigger]
    match trigger:
        case AfterWatermark():
            # The on-time pane is to come (again) if it is in one of the parts, or if the end is beyond the watermark.
            late = len(numbers) == len(parts) and merged.deadline <= time.watermark
            if late:
                merged.trigger[path] = 1
            child = trigger.late if late else trigger.early
            if child is not None:
                merge_trigger(child, (*path, int(late)), parts, merged, time)
            return
        case AfterCount() if numbers:
            merged.trigger[path] = sum(numbers)
        case AfterProcessingTime() if numbers:
            merged.trigger[path] = min(numbers)
    for number, child in enumerate(trigger.children()):
        merge_trigger(child, (*path, number), parts, merged, time)
    if isinstance(trigger, AfterEach) and numbers:
        turn = 0
        while turn < max(numbers) and has_finished(trigger.triggers[turn], (*path, turn), merged, time):
            turn += 1
        merged.trigger[path] = turn
        for number in range(turn + 1, len(trigger.triggers)):
            reset((*path, number), merged)


def has_finished(trigger: Trigger, path: Path, state: WindowState, time: Time) -> bool:
    """Whether the condition with which a trigger finishes is true."""
    match trigger:
        case AfterCount() | AfterProcessingTime() | AfterPercentile():
            return is_ready(trigger, path, state, time)
        case AfterWatermark():
            return trigger.late is None and state.deadline <= time.watermark
        case AfterEach():
            return state.trigger.get(path, 0) == len(trigger.triggers)
        case AfterAny() | AfterAll():
            finished = (has_finished(child, (*path, i), state, time) for i, child in enumerate(trigger.triggers))
            return (all if isinstance(trigger, AfterAll) else any)(finished)
        case OrFinally():
            until = is_ready(trigger.until, (*path, 1), state, time)
            return until or has_finished(trigger.trigger, (*path, 0), state, time)
    return False


@dataclass
class Reference:
    """The definition of a shard: `step` gets a bundle and the clocks after it, and returns the panes."""

    windowing: Windowing
    time: Time = field(default_factory=Time)
    before: int = MIN_TIME  # the input watermark before the step
    output: int = MIN_TIME  # the output watermark
    states: list[WindowState] = field(default_factory=list)
    ordinals: dict[Any, int] = field(default_factory=dict)
    arrived: int = 0
    late: list[Element] = field(default_factory=list)
    refused: int = 0

    @property
    def count_size(self) -> int | None:
        window = self.windowing.window
        return window.n if isinstance(window, CountWindows) else None

    def step(self, bundle: list[Element], watermark: int, now: int, percentiles: dict[float, int]) -> list[Emission]:
        before = self.time
        self.before = before.watermark
        fractions = {q: max(time, before.percentiles.get(q, MIN_TIME)) for q, time in percentiles.items()}
        after = Time(max(before.watermark, watermark), max(before.now, now), before.percentiles | fractions)
        self.time = Time(before.watermark, after.now, before.percentiles)
        changed = self.add(bundle)
        self.time = after
        panes = []
        for state in sorted(self.states, key=lambda state: (state.window.end, state.window.start, state.born)):
            panes += self.evaluate(state, state in changed, before)
        self.states = [state for state in self.states if not self.over(state.deadline) and not self.forgets(state)]
        holds = [self.next_time(state) for state in self.states if state.times]
        self.output = max(self.output, min([after.watermark, *holds]))
        return panes

    def over(self, deadline: int) -> bool:
        lateness = 0 if self.count_size else self.windowing.allowed_lateness
        return min(deadline + lateness, MAX_TIME) <= self.time.watermark

    def forgets(self, state: WindowState) -> bool:
        """Whether a window is forgotten since its trigger has finished; those that do not merge refuse elements then.

        What comes to the place of a finished session, late or not, begins a session of its own. Beam's Java runner does
        the same, except that it drops an element whose own window has the very bounds of one that has finished.
        """
        return state.finished and self.windowing.window.merging

    # A bundle: its windows are merged with the open ones, then its elements are added.

    def add(self, bundle: list[Element]) -> list[WindowState]:
        pairs = [(element, window) for element in bundle for window in self.windows_of(element)]
        born = self.arrived
        for number, (element, window) in enumerate(pairs, born):
            if self.find(element.key, window) is None:
                deadline = window.end if self.count_size is None else MAX_TIME
                self.states.append(WindowState(element.key, window, deadline, number))
        self.arrived += len(pairs)
        if self.windowing.window.merging:
            self.merge({element.key for element, _ in pairs}, born)
        changed = []
        for element, window in pairs:
            state = self.find(element.key, window)
            assert state is not None
            if self.count_size is not None and self.ordinals[element.key] >= window.end:
                state.deadline = MIN_TIME
            if state.finished:
                self.refused += 1
                continue
            state.values.append(element.value)
            state.fresh += 1
            state.due |= self.count_size is not None or self.time.watermark < state.deadline
            time = element.time
            if self.windowing.timestamp_combiner == "end_of_window" and self.count_size is None:
                time = state.window.end - 1
            if time >= self.time.watermark or self.count_size is not None:
                state.times.append(time)
            on_element(self.windowing.trigger, (), state, self.time)
            changed.append(state)
        return changed

    def windows_of(self, element: Element) -> list[Window]:
        if self.count_size is not None:
            if self.time.watermark >= MAX_TIME:
                self.late.append(element)
                return []
            ordinal = self.ordinals.get(element.key, 0)
            self.ordinals[element.key] = ordinal + 1
            start = ordinal - ordinal % self.count_size
            return [Window(start, start + self.count_size)]
        windows = [Window(*bounds) for bounds in self.windowing.window.windows_of(element.time, element.key)]
        self.late += [element for window in windows if self.over(window.end)]
        return [window for window in windows if not self.over(window.end)]

    def find(self, key: Any, window: Window) -> WindowState | None:
        """Finds the state of a window, or of the merged window that contains it."""
        merging = self.windowing.window.merging
        for state in self.states:
            inside = state.window.start <= window.start and window.end <= state.window.end
            if state.key == key and (state.window == window or (merging and inside)):
                return state
        return None

    def merge(self, keys: set[Any], born: int) -> None:
        """Merges windows of these keys; those born since the number `born` have no elements yet."""
        for key in keys:
            of_key = [state for state in self.states if state.key == key]
            for group in self.windowing.window.merge([state.window for state in of_key]):
                if len(group) > 1:
                    parts = sorted((of_key[position] for position in group), key=lambda state: state.born)
                    self.states = [state for state in self.states if all(state is not part for part in parts)]
                    self.states.append(self.merge_states(key, parts, born))

    def merge_states(self, key: Any, parts: list[WindowState], born: int) -> WindowState:
        window = Window(min(part.window.start for part in parts), max(part.window.end for part in parts))
        merged = WindowState(key, window, window.end, parts[0].born)
        merged.values = [value for part in parts for value in part.values]
        merged.fresh = sum(part.fresh for part in parts)
        merged.times = [time for part in parts for time in part.times]
        merged.due = any(part.due for part in parts)
        merged.emitted = [pane for part in parts for pane in part.emitted]
        if older := [part for part in parts if part.born < born]:
            merge_trigger(self.windowing.trigger, (), older, merged, self.time)
        for part in parts:
            if part.window == window:
                merged.index, merged.on_time_index = part.index, part.on_time_index
        return merged

    # A trigger is tested if elements came or a time it waits for has passed; a window closes in any case in the end.

    def evaluate(self, state: WindowState, changed: bool, before: Time) -> list[Emission]:
        if state.finished:
            return []
        trigger, after = self.windowing.trigger, self.time
        tested = changed or timer_passed(trigger, (), state, before, after)
        fired = tested and is_ready(trigger, (), state, after)
        done = fired and fire(trigger, (), state, after)
        over = self.over(state.deadline)
        ended = state.deadline <= after.watermark
        on_time = fired and ended and state.due
        always = self.windowing.closing == "always"
        panes: list[Emission] = []
        if (fired and (state.fresh or on_time or (done and always))) or (over and (state.fresh or always)):
            panes = self.emit(state, ended, last=done or over)
        if done:
            state.finished = True
            self.empty(state)
        return panes

    def emit(self, state: WindowState, ended: bool, *, last: bool) -> list[Emission]:
        timing = "early"
        if ended:
            timing = "on_time" if state.due else "late"
        on_time_index = state.on_time_index if ended else -1
        values = list(state.values)
        info = (timing, state.index, on_time_index, state.index == 0, last, False)
        pane: Emission = (state.key, *state.window, values, self.next_time(state), *info)
        retractions = [(*back[:-1], True) for back in sorted(state.emitted, key=lambda back: back[1:3])]
        if self.windowing.accumulation == "retracting":
            state.emitted = [pane]
        if self.windowing.accumulation == "discarding":
            state.values = []
        if ended or self.windowing.accumulation == "discarding" or not promises_on_time(self.windowing.trigger):
            state.times = []
        state.fresh = 0
        state.index += 1
        state.on_time_index += ended
        state.due = state.due and not ended
        return [*retractions, pane]

    def next_time(self, state: WindowState) -> int:
        if not state.times:
            return state.window.end - 1 if self.count_size is None else self.before
        if self.windowing.timestamp_combiner == "end_of_window" and self.count_size is None:
            return state.window.end - 1
        return (min if self.windowing.timestamp_combiner == "earliest" else max)(state.times)

    def empty(self, state: WindowState) -> None:
        state.values, state.times, state.emitted, state.fresh = [], [], [], 0


def promises_on_time(trigger: Trigger) -> bool:
    return isinstance(trigger, AfterWatermark | DefaultTrigger) or any(map(promises_on_time, trigger.children()))
