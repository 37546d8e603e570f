"""A computation as a stateful DoFn: one state for each Persistent, one timer for each clock.

The class of the DoFn is made for the computation, since a DoFn declares its states as parameters of `process`.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterable, Iterator
from typing import Any, Final

from headrace.dialects.millwheel.api.computation import COUNTS, Callback, Computation, persistents
from headrace.dialects.millwheel.api.persistent import check_returned
from headrace.dialects.millwheel.api.recordsandtimers import Clock, Record, Timer
from headrace.dialects.millwheel.graph.pendingtimers import add_timer, next_tag
from headrace.dialects.millwheel.graph.weakproductions import WeakProductions
from headrace.model.dofn import DoFn, TaggedOutput, TimestampedValue
from headrace.model.state import TimerSpec, ValueState
from headrace.model.times import DurationLike, Instant

TIMERS: Final = {"event": TimerSpec("_event", "event"), "wall": TimerSpec("_wall", "processing")}
"""The DoFn's timers, by clock."""
_MANY: Final = {"event": ValueState("_event_timers"), "wall": ValueState("_wall_timers")}
"""The states of keys that have more than one timer, by clock."""
_HANDLES: Final[dict[Clock, tuple[str, str]]] = {
    "event": (TIMERS["event"].name, _MANY["event"].name),
    "wall": (TIMERS["wall"].name, _MANY["wall"].name),
}
_made: Final[Any] = tuple.__new__  # of a Record, it takes half the time that the class itself does


class ComputationFn(DoFn):
    """Runs a computation; `computation_fn` makes the class with the states that it declares.

    Values of several inputs are pairs of stream and value. Outputs have their streams as tags, unless there is only
    one; `weak` takes them instead, if they are not to wait. After each bundle, counts of what happened in it follow.
    """

    def __init__(self, computation: Computation, weak: WeakProductions | None = None) -> None:
        self.computation, self.weak = computation, weak
        streams, outputs = list(computation.inputs), list(computation.outputs)
        self.stream = streams[0] if len(streams) == 1 else None
        self.main = outputs[0] if len(outputs) == 1 else None
        self.drops = computation.late == "drop"

    def setup(self) -> None:
        # A worker has a copy of the computation; what a callback changes must not be that of the class.
        self.callback = Callback()
        self.callback.set_timer = self._set_timer
        self._process_record, self._process_timer = self.computation.process_record, self.computation.process_timer
        object.__setattr__(self.computation, "_callback", self.callback)
        self.start_bundle()
        self.computation.setup()

    def start_bundle(self) -> None:
        self.records = self.late = self.set = self.fired = self.productions = 0
        self.callback.states = None  # if a callback of the last bundle failed
        self.callback.produced, self.callback.lent = [], {}

    def finish_bundle(self) -> Iterator[Any]:
        counts = {
            "records": self.records,
            "late": self.late,
            "timers_set": self.set,
            "timers_fired": self.fired,
            "produced": self.productions,
        }
        if self.weak is not None:
            self.weak.flush()
        if any(counts.values()):
            yield TaggedOutput(COUNTS, counts)

    def on_record(
        self, pair: tuple[Any, Any], *, timestamp: Instant, watermark: Instant, **states: Any
    ) -> Iterable[Any] | None:
        """Processes a record. The states are those of its key."""
        self.records += 1
        if timestamp < watermark:
            self.late += 1
            if self.drops:
                return None
        key, value = pair
        stream = self.stream
        if stream is None:
            stream, value = value
        callback = self.callback
        callback.low, callback.states = watermark, states
        callback.time = callback.floor = timestamp
        self._process_record(_made(Record, (key, value, timestamp, stream)))
        callback.states = None
        return self._outputs(timestamp) if callback.produced or callback.lent else None

    def on_timer(
        self, *, clock: Clock, key: Any, timestamp: Instant, watermark: Instant, **states: Any
    ) -> Iterable[Any] | None:
        """Processes the timer of a key that is due by a clock. The states are those of the key."""
        callback = self.callback
        callback.low, callback.states = watermark, states
        callback.time = callback.floor = timestamp if clock == "event" else watermark
        self.fired += 1
        timer, many = _HANDLES[clock]
        tag = next_tag(states[timer], states[many])
        self._process_timer(_made(Timer, (key, timestamp, tag, clock)))
        callback.states = None
        return self._outputs(callback.time) if callback.produced or callback.lent else None

    def _set_timer(self, clock: Clock, at: Instant | None, after: DurationLike | None, tag: str) -> None:
        states = self.callback.states
        assert states is not None
        name, many = _HANDLES[clock]
        timer = states[name]
        self.set += add_timer(timer, states[many], timer.time_after(after) if at is None else at, tag)

    def _outputs(self, time: Instant) -> Iterable[Any] | None:
        """Ends a callback; returns what it produced."""
        callback = self.callback
        produced = callback.produced
        if produced:
            callback.produced = []
            self.productions += len(produced)
        if callback.lent:
            check_returned(self.computation, callback.lent)
            callback.lent = {}
        if not produced:
            return None
        if self.weak is not None:
            self.weak.add(produced, time)
            return None
        timed = [
            (stream, value if timestamp is None else TimestampedValue(value, Instant(timestamp)))
            for stream, value, timestamp in produced
        ]
        return [value if self.main is not None else TaggedOutput(stream, value) for stream, value in timed]


def computation_fn(computation: Computation, weak: WeakProductions | None = None) -> ComputationFn:
    """Returns the DoFn of a computation."""
    clocks = computation._clocks
    states = [each.spec() for each in persistents(type(computation)).values()]
    own = [*states, *(_MANY[clock] for clock in clocks)]
    handles = {spec.name: DoFn.StateParam(spec) for spec in own}
    handles |= {TIMERS[clock].name: DoFn.TimerParam(TIMERS[clock]) for clock in clocks}
    if not own:  # without state or timers it would not be told the watermark
        handles = {"_none": DoFn.StateParam(ValueState("_none"))}
    asked = {"timestamp": DoFn.TimestampParam, "watermark": DoFn.WatermarkParam}

    process = _with_parameters(ComputationFn.on_record, ("self", "pair"), {**asked, **handles})
    methods: dict[str, Any] = {"process": process}
    for clock in clocks:
        parameters = {"key": DoFn.ElementParam, **asked, **handles}
        ring = methods[f"ring_{clock}"] = _with_parameters(ComputationFn.on_timer, ("self",), parameters)
        ring.__kwdefaults__ = {"clock": clock}
        ring.fires = TIMERS[clock]
    kind: type[ComputationFn] = type(f"{type(computation).__name__}Fn", (ComputationFn,), methods)
    return kind(computation, weak)


def _with_parameters(function: Any, first: tuple[str, ...], marked: dict[str, Any]) -> Any:
    """Returns a copy of a function with a signature that has these marked parameters, which it takes by name.

    A function that calls the other would take time for each record.
    """
    function = types.FunctionType(function.__code__, function.__globals__, function.__name__)
    either, by_name = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter(name, either) for name in first]
    parameters += [inspect.Parameter(name, by_name, default=mark) for name, mark in marked.items()]
    function.__signature__ = inspect.Signature(parameters)
    return function
