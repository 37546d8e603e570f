"""Calls a stateful DoFn for elements and timers, one key and window at a time, and collects its outputs.

Arguments that differ from call to call are filled in; everything else is prepared once. Batch and stream share this;
each decides when there are elements and what the clocks are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from headrace.engine.stateful.records import EMPTY, HANDLES, Cursor, Record, StateHandle
from headrace.engine.stateful.statefulfn import StatefulFn
from headrace.engine.stateful.timers import NEVER, ProcessingTimer, Timer, TimerQueue
from headrace.engine.worker.blame import blame
from headrace.engine.worker.bundles import BUNDLE_SIZE, Bundle
from headrace.engine.worker.operators import Call, Tagged, split_by_tag
from headrace.engine.worker.sidevalues import SideValue
from headrace.model.dofn import DoFn
from headrace.model.panes import NO_PANE, PaneInfo
from headrace.model.state import StateSpec, TimerSpec
from headrace.model.times import MAX_TIME, MIN_TIME, Instant
from headrace.model.windows import CountWindows, Window

_NO_TIMES: Final[list[int]] = []  # shared by all records without times


class StateLayout:
    """The states and timers of a DoFn, and the places of their times in `Record.due`.

    There is a place for each timer, then for the watermark hold of each processing timer, then for the end of each
    state that expires.
    """

    def __init__(self, fn: DoFn) -> None:
        specs = fn.specs()
        self.states = [spec for spec in specs if isinstance(spec, StateSpec)]
        self.timers = [spec for spec in specs if isinstance(spec, TimerSpec)]
        self.processing = [index for index, spec in enumerate(self.timers) if spec.domain == "processing"]
        self.expiring = [index for index, spec in enumerate(self.states) if spec.expires is not None]
        self.hold_of = {index: len(self.timers) + place for place, index in enumerate(self.processing)}
        first = len(self.timers) + len(self.processing)
        self.end_of = {index: first + place for place, index in enumerate(self.expiring)}
        self.state_at = {place: index for index, place in self.end_of.items()}
        self.times = first + len(self.expiring)

    def names(self) -> list[str]:
        """Returns a name for each place in `Record.due`."""
        timers = [spec.name for spec in self.timers]
        holds = [f"{self.timers[index].name}.hold" for index in self.processing]
        return [*timers, *holds, *(f"{self.states[index].name}.end" for index in self.expiring)]


class PreparedCall:
    """A user function with its arguments resolved once: a call fills in only what differs from the one before."""

    def __init__(self, call: Call, handles: dict[str, Any], at: Cursor) -> None:
        self._call, self._at = call, at
        self._stamp = self._low = Instant(MIN_TIME)  # those of the last call, which are often those of the next
        self._fn = call.fn
        self._handles = {name: handles[p.spec.name] for name, p in call.params.items() if p.spec is not None}
        self._asked = [(n, p.kind) for n, p in call.params.items() if p.spec is None and n not in call.kwargs]
        self._windowed = call.sides_windowed
        self.renew()

    def renew(self) -> None:
        """Resolves side inputs again before the next call."""
        self._window: Window | None = None
        self._args: list[Any] = []
        self._kwargs: dict[str, Any] = {}

    def __call__(self, first: tuple[Any, ...], element: Any, time: int, window: Window, pane: PaneInfo) -> Any:
        if self._window is None or (self._windowed and window != self._window):
            self._fill(window)
        kwargs = self._kwargs
        for name, what in self._asked:
            if what == "timestamp":
                if self._stamp != time:
                    self._stamp = Instant(time)
                kwargs[name] = self._stamp
            elif what == "window":
                kwargs[name] = window
            elif what == "watermark":
                if self._low != self._at.watermark:
                    self._low = Instant(self._at.watermark)
                kwargs[name] = self._low
            else:
                kwargs[name] = element if what == "element" else pane
        return self._fn(*first, *self._args, **kwargs)

    def _fill(self, window: Window) -> None:
        def value(argument: Any) -> Any:
            return argument.value(window) if isinstance(argument, SideValue) else argument

        self._window = window
        self._args = list(map(value, self._call.args))
        self._kwargs = {**self._handles, **{name: value(argument) for name, argument in self._call.kwargs.items()}}


class PaneOutputs:
    """Outputs of calls that share a pane, with the time, window and number of outputs of each call."""

    __slots__ = ("counts", "elements", "times", "windows")

    def __init__(self) -> None:
        self.elements: list[Any] = []
        self.counts: list[int] = []
        self.times: list[int] = []
        self.windows: list[Window] = []


class Outputs:
    """Collects the outputs of calls in bundles."""

    def __init__(self, fn: StatefulFn) -> None:
        self._fn = fn
        self._ready: list[Tagged] = []
        self._begin()

    def _begin(self) -> None:
        self._by_pane: dict[PaneInfo, PaneOutputs] = {NO_PANE: PaneOutputs()}
        self._pane, self._now = NO_PANE, self._by_pane[NO_PANE]

    def add(self, results: Iterable[Any] | None, time: int, window: Window, pane: PaneInfo) -> None:
        """Adds the outputs of a call at this time."""
        if results is None:
            return
        if pane is not self._pane:
            self._pane, self._now = pane, self._by_pane.setdefault(pane, PaneOutputs())
        outputs = self._now
        elements = outputs.elements
        before = len(elements)
        elements.extend(results)
        count = len(elements) - before
        if count:
            outputs.counts.append(count)
            outputs.times.append(time)
            outputs.windows.append(window)
            if len(elements) >= BUNDLE_SIZE:
                self._finish(pane)

    def ready(self) -> list[Tagged]:
        """Returns the bundles that are complete, each once."""
        ready, self._ready = self._ready, []
        return ready

    def rest(self) -> list[Tagged]:
        """Returns all remaining outputs as bundles."""
        for pane in self._by_pane:
            self._finish(pane)
        self._begin()
        return self.ready()

    def _finish(self, pane: PaneInfo) -> None:
        outputs = self._by_pane[pane]
        if not outputs.elements:
            return
        self._by_pane[pane] = PaneOutputs()
        self._now = self._by_pane[self._pane]
        counts = np.array(outputs.counts, np.int64)
        bundle = Bundle(outputs.elements, np.repeat(np.array(outputs.times, np.int64), counts), pane=pane)
        if not self._fn.windowing.is_global:
            bundle.starts, bundle.ends = np.repeat(np.array(outputs.windows, np.int64), counts, axis=0).T
        self._ready += split_by_tag(bundle, self._fn.tags)


class Calls:
    """Calls a DoFn for elements and timers, and tracks changed records and timers that are set."""

    def __init__(self, fn: StatefulFn) -> None:
        self.label, self.layout = fn.label, StateLayout(fn.dofn)
        self.at = Cursor()
        self.pane = NO_PANE  # of timers
        self.changed: dict[int, Record] = {}
        self.event, self.processing, self.holds, self.expiring = TimerQueue(), TimerQueue(), TimerQueue(), TimerQueue()
        self.outputs = Outputs(fn)
        self.states = [
            HANDLES[type(spec)](spec, index, self.at, self.changed, self.layout.end_of.get(index, NEVER), self.expiring)
            for index, spec in enumerate(self.layout.states)
        ]
        handles: dict[str, StateHandle | Timer] = {
            spec.name: handle for spec, handle in zip(self.layout.states, self.states, strict=True)
        }
        for index, spec in enumerate(self.layout.timers):
            handles[spec.name] = self._timer(index)
        methods = fn.dofn.timer_methods()
        self._process = PreparedCall(fn.call, handles, self.at)
        self._callbacks = [PreparedCall(Call(methods[spec.name]), handles, self.at) for spec in self.layout.timers]
        self._windowing = fn.windowing
        self._element: list[Any] = [None]  # what is being processed, for messages about failures

    def record(
        self, key: Any, window: Window, seq: int = 0, bucket: int = 0, name: bytes = b"", spelling: bytes | None = None
    ) -> Record:
        """Makes a new record."""
        counted = isinstance(self._windowing.window, CountWindows)  # whose bounds are no times
        deadline = MAX_TIME if counted else min(window.end + self._windowing.allowed_lateness, MAX_TIME)
        states, due = [EMPTY] * len(self.layout.states), [NEVER] * self.layout.times if self.layout.times else _NO_TIMES
        return Record(seq, bucket, name, key, spelling, window, deadline, states, due)

    def element(self, record: Record, element: Any, time: int, pane: PaneInfo) -> None:
        """Calls `process` for an element."""
        at = self.at
        at.record, at.time = record, time
        self._element[0] = element
        if self.layout.expiring:
            self._expire(record, time)
        self.outputs.add(self._process((element,), element, time, record.window, pane), time, record.window, pane)

    def ring(self, watermark: int, now: int) -> None:
        """Fires timers that are due, also those set meanwhile: first in processing time, then in event time."""
        while (due := self.processing.pop(now) or self.event.pop(watermark)) is not None:
            self._fire(*due)

    def close(self, record: Record) -> None:
        """Fires all timers of a record that ends.

        Event timers up to its deadline may be set again meanwhile; others fire once.
        """
        timers, deadline, due = len(self.layout.timers), record.deadline, record.due
        once = {
            index
            for index in range(timers)
            if due[index] != NEVER and (due[index] > deadline or index in self.layout.hold_of)
        }
        while True:
            in_time = [(due[i], i) for i in range(timers) if due[i] <= deadline and i not in self.layout.hold_of]
            ready = min(in_time or [(due[i], i) for i in once if due[i] != NEVER], default=None)
            if ready is None:
                return
            time, index = ready
            if not in_time:
                once.discard(index)
            due[index] = NEVER
            self._fire(record, index, time)

    def expire(self, watermark: int) -> None:
        """Empties all states that have expired by the watermark."""
        while (end := self.expiring.pop(watermark)) is not None:
            record, place, _ = end
            record.states[self.layout.state_at[place]] = EMPTY
            self.changed[record.seq] = record

    def note(self, record: Record) -> None:
        """Puts the times of a loaded record into the queues."""
        timers = len(self.layout.timers)
        for place, time in enumerate(record.due):
            if time == NEVER:
                continue
            if place in self.layout.state_at:
                self.expiring.note(record, place)
            elif place >= timers:
                if time >= self.at.low:
                    self.holds.note(record, place)
            elif place in self.layout.hold_of:
                self.processing.note(record, place)
            elif time <= record.deadline:
                self.event.note(record, place)

    def blamed(self) -> Any:
        """Returns a context in which failures name the element or key that was being processed."""
        return blame(self.label, self._element, iter(()))

    def _fire(self, record: Record, index: int, time: int) -> None:
        at, hold = self.at, self.layout.hold_of.get(index)
        at.record, at.time, emitted = record, time, time
        if hold is not None:
            emitted, record.due[hold] = record.due[hold], NEVER
            at.time = max(at.watermark, emitted)
        self._element[0] = record.key
        self.changed[record.seq] = record
        if self.layout.expiring:
            self._expire(record, at.time)
        results = self._callbacks[index]((), record.key, time, record.window, self.pane)
        self.outputs.add(results, emitted, record.window, self.pane)

    def _expire(self, record: Record, time: int) -> None:
        for index, end in self.layout.end_of.items():
            if record.due[end] <= time:
                record.due[end], record.states[index] = NEVER, EMPTY
                self.changed[record.seq] = record

    def _timer(self, index: int) -> Timer:
        hold = self.layout.hold_of.get(index)
        if hold is None:
            return Timer(index, self.at, self.changed, self.event)
        return ProcessingTimer(index, self.at, self.changed, self.processing, hold, self.holds)

    def renew(self) -> None:
        """Resolves side inputs again; called before a bundle."""
        for prepared in (self._process, *self._callbacks):
            prepared.renew()
