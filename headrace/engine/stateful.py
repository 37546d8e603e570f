"""Stateful DoFns over a batch: each key and window on its own, its elements in the order of their times.

The elements are their own watermark: a timer fires before the first element that is not earlier than it, and what is
still set fires when the elements are through.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headrace.engine.bundles import Bundle
from headrace.engine.failures import blame
from headrace.engine.ops import ParDoOp, Tagged, sorted_out
from headrace.engine.side import SideValue
from headrace.model.algebra import combine_fn
from headrace.model.dofn import Param, params_of
from headrace.model.state import (
    CombiningState,
    ListState,
    MapState,
    SetState,
    StateSpec,
    TimerSpec,
    ValueState,
)
from headrace.model.times import Instant, instant
from headrace.model.windows import Window


class ValueCell:
    """A single value."""

    def __init__(self, spec: StateSpec) -> None:
        self._value: Any = None

    def read(self) -> Any:
        return self._value

    def write(self, value: Any) -> None:
        self._value = value

    def clear(self) -> None:
        self._value = None


class ListCell:
    """A list that grows."""

    def __init__(self, spec: StateSpec) -> None:
        self._items: list[Any] = []

    def add(self, value: Any) -> None:
        self._items.append(value)

    def read(self) -> list[Any]:
        return list(self._items)

    def clear(self) -> None:
        self._items.clear()


class SetCell:
    """A set that grows."""

    def __init__(self, spec: StateSpec) -> None:
        self._items: set[Any] = set()

    def add(self, value: Any) -> None:
        self._items.add(value)

    def read(self) -> set[Any]:
        return set(self._items)

    def clear(self) -> None:
        self._items.clear()


class MapCell:
    """A map."""

    def __init__(self, spec: StateSpec) -> None:
        self._items: dict[Any, Any] = {}

    def get(self, key: Any, default: Any = None) -> Any:
        return self._items.get(key, default)

    def put(self, key: Any, value: Any) -> None:
        self._items[key] = value

    def remove(self, key: Any) -> None:
        self._items.pop(key, None)

    def items(self) -> list[tuple[Any, Any]]:
        return list(self._items.items())

    def clear(self) -> None:
        self._items.clear()


class CombiningCell:
    """An aggregation."""

    def __init__(self, spec: StateSpec) -> None:
        assert isinstance(spec, CombiningState)
        self._fn = combine_fn(spec.fn)
        self._acc = self._fn.zero()

    def add(self, value: Any) -> None:
        self._acc = self._fn.add(self._acc, value)

    def read(self) -> Any:
        return self._fn.finish(self._acc)

    def clear(self) -> None:
        self._acc = self._fn.zero()


CELLS: dict[type[StateSpec], Callable[[StateSpec], Any]] = {
    ValueState: ValueCell,
    ListState: ListCell,
    SetState: SetCell,
    MapState: MapCell,
    CombiningState: CombiningCell,
}


@dataclass
class Timers:
    """The timers of one key and window: when each is due, if it is set."""

    due: dict[str, int] = field(default_factory=dict)

    def next(self, specs: dict[str, TimerSpec], until: int | None) -> tuple[str, int] | None:
        """The earliest timer that fires before `until` (event time only), or at the end if there is none such limit."""
        ready = [
            (at, name)
            for name, at in self.due.items()
            if until is None or (specs[name].domain == "event" and at <= until)
        ]
        if not ready:
            return None
        at, name = heapq.nsmallest(1, ready)[0]
        del self.due[name]
        return name, at


@dataclass
class Timer:
    """What a DoFn holds of a timer."""

    timers: Timers
    name: str

    def set(self, time: Any) -> None:
        self.timers.due[self.name] = instant(time)

    def clear(self) -> None:
        self.timers.due.pop(self.name, None)


@dataclass
class StatefulOp(ParDoOp):
    """Runs a DoFn with state over (key, [(time, value), ...]) groups."""

    def _processed(self, bundle: Bundle) -> Iterator[Tagged]:
        for (key, values), window in zip(bundle.elements, bundle.windows(), strict=True):
            yield from _KeyRun(self, bundle, key, Window(*window)).outputs(values)


class _KeyRun:
    """One key and window: its states, its timers, and the calls that use them."""

    def __init__(self, op: StatefulOp, bundle: Bundle, key: Any, window: Window) -> None:
        self.op, self.bundle, self.key, self.window = op, bundle, key, window
        specs = op.fn.specs()
        self.timer_specs = {spec.name: spec for spec in specs if isinstance(spec, TimerSpec)}
        self.timers = Timers()
        states = {spec.name: CELLS[type(spec)](spec) for spec in specs if isinstance(spec, StateSpec)}
        self.held = {**states, **{name: Timer(self.timers, name) for name in self.timer_specs}}
        self.callbacks = {
            method.fires.name: method
            for method in (getattr(op.fn, name) for name in dir(type(op.fn)))
            if hasattr(method, "fires")
        }

    def outputs(self, values: Iterable[tuple[int, Any]]) -> Iterator[Tagged]:
        for time, value in values:
            yield from self._fire(until=time)
            element = (self.key, value)
            with blame(self.op.label, [element], iter(())):
                yield from self._emitted(self._process(element, time), time)
        yield from self._fire(until=None)

    def _process(self, element: Any, time: int) -> Any:
        call = self.op.call
        args = [a.value(self.window) if isinstance(a, SideValue) else a for a in call.args]
        kwargs = {n: a.value(self.window) if isinstance(a, SideValue) else a for n, a in call.kwargs.items()}
        return call.fn(element, *args, **{**self._filled(call.params, element, time), **kwargs})

    def _fire(self, until: int | None) -> Iterator[Tagged]:
        at_end = set(self.timers.due) if until is None else set()
        while (timer := self.timers.next(self.timer_specs, until)) is not None:
            name, time = timer
            if until is None and self.timer_specs[name].domain == "processing":
                if name not in at_end:
                    continue  # one that a callback set after the end: processing time has stopped, too
                at_end.discard(name)
            method = self.callbacks[name]
            with blame(self.op.label, [self.key], iter(())):
                yield from self._emitted(method(**self._filled(params_of(method), self.key, time)), time)

    def _filled(self, params: dict[str, Param], element: Any, time: int) -> dict[str, Any]:
        context = {"timestamp": Instant(time), "window": self.window, "pane": self.bundle.pane, "element": element}
        return {name: self.held[p.spec.name] if p.spec is not None else context[p.what] for name, p in params.items()}

    def _emitted(self, results: Iterable[Any] | None, time: int) -> Iterator[Tagged]:
        elements = list(results or ())
        if not elements:
            return
        bundle = Bundle(elements, np.full(len(elements), time, np.int64), pane=self.bundle.pane)
        if self.bundle.starts is not None:
            bundle.starts, bundle.ends = (np.full(len(elements), edge, np.int64) for edge in self.window)
        yield from sorted_out(bundle, self.op.tags)
