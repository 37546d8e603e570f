"""Computations: user code that runs per key, for records and timers, with the state of that key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, Literal, get_args

from headrace.dialects.millwheel.api.keyextractor import Key
from headrace.dialects.millwheel.api.persistent import Lent, Persistent
from headrace.dialects.millwheel.api.recordsandtimers import Clock, ComputationError, Record, Timer
from headrace.model.times import DurationLike, Instant, InstantLike, instant

Late = Literal["drop", "process"]
"""What becomes of records that come behind the low watermark."""

Productions = Literal["strong", "weak"]
"""Whether output waits for the checkpoint of what it is made of."""

COUNTS: Final = "counts"
"""The tag of a computation's own counts, which no output may have."""


class Callback:
    """The callback that a computation is in: the state and the timers of its key, and the records it produces.

    Without `states`, no callback runs. `floor` is the earliest time of what it may produce.
    """

    __slots__ = ("floor", "lent", "low", "produced", "set_timer", "states", "time")

    def __init__(self) -> None:
        self.states: Mapping[str, Any] | None = None
        self.set_timer: Callable[[Clock, Instant | None, DurationLike | None, str], None] | None = None
        self.time = self.floor = self.low = Instant(0)
        self.produced: list[tuple[str, Any, int | None]] = []
        self.lent: Lent = {}


class Computation:
    """A computation: override `process_record`, and `process_timer` if it sets timers.

    - inputs: the streams it subscribes to, each with a key extractor: {"queries": mw.key("query")}
    - outputs: the names of the streams it produces; as a dict, each with the key of what is written to it
    - late: whether records behind the low watermark are dropped or processed; they are counted either way
    - productions: "weak" lets output leave before the state it belongs to is stored: after a crash, it may come again
    - wall_timers: whether it sets timers by the clock on the wall, which costs a micro-batch each second

    Attributes that are `Persistent` are state of the key. Others can be set in `__init__` and `setup`, which a worker
    calls before it uses the computation, but not in callbacks: keys would share them, and nothing would store them.

    >>> from headrace import millwheel as mw
    >>> class Windower(mw.Computation):
    ...     inputs = {"queries": mw.key("query")}
    ...     outputs = ("counts-by-second",)
    ...     buckets = mw.Persistent(dict)
    ...     def process_record(self, record):
    ...         second = record.timestamp // 1_000_000
    ...         self.buckets[second] = self.buckets.get(second, 0) + 1
    ...         self.set_timer(at=mw.Instant((second + 1) * 1_000_000))
    ...     def process_timer(self, timer):
    ...         second = timer.timestamp // 1_000_000 - 1
    ...         self.produce("counts-by-second", {"query": timer.key, "n": self.buckets.pop(second)})
    >>> Windower()
    <Windower: queries -> counts-by-second>
    """

    inputs: ClassVar[Mapping[str, Key]] = {}
    outputs: ClassVar[tuple[str, ...] | Mapping[str, Any]] = ()
    late: ClassVar[Late] = "drop"
    productions: ClassVar[Productions] = "strong"
    wall_timers: ClassVar[bool] = False

    _callback: Callback = Callback()
    _persistents: ClassVar[frozenset[str]] = frozenset()
    _clocks: ClassVar[tuple[Clock, ...]] = ()  # by which it may set timers

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._persistents = frozenset(persistents(cls))
        if cls.inputs or "inputs" in vars(cls):  # others are there to be inherited from
            check_computation(cls)
            if cls.process_timer is not Computation.process_timer:
                cls._clocks = ("event", "wall") if cls.wall_timers else ("event",)

    def setup(self) -> None:
        """Prepares what callbacks need besides their state; called in each worker."""

    def process_record(self, record: Record) -> None:
        """Processes a record of an input."""
        raise NotImplementedError(f"{type(self).__name__} must override process_record(record)")

    def process_timer(self, timer: Timer) -> None:
        """Processes a timer that fires."""
        raise NotImplementedError(f"{type(self).__name__} sets timers and must override process_timer(timer)")

    @property
    def low_watermark(self) -> Instant:
        """The low watermark of the input before this callback: no record before it is expected."""
        self._check_running("low_watermark")
        return self._callback.low

    def set_timer(
        self,
        at: InstantLike | None = None,
        *,
        after: DurationLike | None = None,
        clock: Clock = "event",
        tag: str = "",
    ) -> None:
        """Sets a timer of this key: `at` a time, or `after` so long, from the callback's time or from now on the wall.

        An event timer fires when the low watermark has reached it, and the output's low watermark waits for it; at the
        earliest when the records of the micro-batch are processed. A key may have many; one with the same time, clock
        and tag is one.
        """
        callback = self._callback
        if callback.states is None or clock not in self._clocks or (at is None) == (after is None):
            raise self._timer_refusal(clock)
        assert callback.set_timer is not None
        time = None if at is None else at if type(at) is Instant else Instant(instant(at))
        callback.set_timer(clock, time, after, tag)

    def _timer_refusal(self, clock: Clock) -> ComputationError:
        name = type(self).__name__
        self._check_running("set_timer")
        if type(self).process_timer is Computation.process_timer:
            return ComputationError(f"{name}: it sets a timer, but has no process_timer(self, timer)")
        if clock not in get_args(Clock):
            return ComputationError(f"{name}: a timer's clock is 'event' or 'wall', got {clock!r}")
        if clock not in self._clocks:
            return ComputationError(f"{name}: set_timer(clock='wall') needs wall_timers = True in the class")
        return ComputationError(f"{name}: set_timer takes at=TIME or after=DURATION, one of them")

    def produce(self, stream: str, value: Any, *, timestamp: InstantLike | None = None) -> None:
        """Produces a record, at the time of this callback's record or timer, or later, if a `timestamp` says so.

        What a wall timer produces has the event time at which it was set.
        """
        callback = self._callback
        if callback.states is None:
            self._check_running("produce")
        if stream not in self.outputs:
            raise ComputationError(
                f"{type(self).__name__}: produce({stream!r}) is for none of its outputs, which are "
                f"{', '.join(self.outputs) or 'none'}; declare outputs = ({stream!r}, ...)"
            )
        if timestamp is None:
            callback.produced.append((stream, value, None))
            return
        time = instant(timestamp)
        if time < callback.floor:
            raise ComputationError(
                f"{type(self).__name__}: produce(timestamp={Instant(time)}) is before {callback.floor}, the time of "
                "this callback, of which the low watermark of the output may be ahead; give that time, or a later one"
            )
        callback.produced.append((stream, value, time))

    def _check_running(self, what: str) -> None:
        if self._callback.states is None:
            raise ComputationError(
                f"{type(self).__name__}.{what} is for callbacks: use it in process_record or process_timer"
            )

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._persistents and self._callback.states is not None:
            raise ComputationError(
                f"{type(self).__name__}.{name} is set in a callback, but is not Persistent: all keys of a worker would "
                f"share it, and it would be lost with the worker; declare {name} = "
                f"mw.Persistent({type(value).__name__})"
            )
        object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        outputs = ", ".join(self.outputs) or "nothing"
        return f"<{type(self).__name__}: {', '.join(self.inputs)} -> {outputs}>"


def persistents(kind: type[Computation]) -> dict[str, Persistent[Any]]:
    """Returns the state that a computation declares, by name, in the order of the declarations."""
    declared: dict[str, Persistent[Any]] = {}
    for each in reversed(kind.__mro__):
        declared |= {name: value for name, value in vars(each).items() if isinstance(value, Persistent)}
    return declared


def check_computation(kind: type[Computation]) -> None:
    """Raises an error if the declarations of a computation are wrong."""
    name = kind.__name__
    if not isinstance(kind.inputs, Mapping) or not kind.inputs:
        raise ComputationError(
            f"{name}: inputs maps the streams it subscribes to to keys, got {kind.inputs!r}; write e.g. "
            'inputs = {"queries": mw.key("query")}'
        )
    for stream, key in kind.inputs.items():
        if not isinstance(key, Key):
            raise ComputationError(f"{name}: the input {stream!r} needs a key, got {key!r}; write mw.key(...)")
    outputs = kind.outputs
    if isinstance(outputs, str) or not isinstance(outputs, tuple | list | Mapping):
        raise ComputationError(f"{name}: outputs is a tuple of names, got {outputs!r}; write outputs = ({outputs!r},)")
    if len(set(outputs)) != len(outputs) or COUNTS in outputs:
        raise ComputationError(f"{name}: outputs must differ, and none is called {COUNTS!r}, got {tuple(outputs)}")
    if kind.productions == "weak" and (kafka := [stream for stream in outputs if stream.startswith("kafka:")]):
        raise ComputationError(
            f"{name}: weak productions are appended by workers, which cannot be fenced in Kafka, and {kafka[0]!r} is a "
            "topic of it; leave productions = 'weak' out, or produce to a stream of the log"
        )
    if both := sorted(set(outputs) & set(kind.inputs)):
        raise ComputationError(
            f"{name}: {both[0]!r} is an input and an output, so that its low watermark would wait for itself; choose "
            "another name"
        )
    for attribute, allowed in (("late", Late), ("productions", Productions)):
        if getattr(kind, attribute) not in get_args(allowed):
            choice = " or ".join(map(repr, get_args(allowed)))
            raise ComputationError(f"{name}: {attribute} is {choice}, got {getattr(kind, attribute)!r}")
    if kind.process_record is Computation.process_record:
        raise ComputationError(f"{name}: it has no process_record(self, record); define it")
    for state in persistents(kind):
        if state.startswith("_") or hasattr(Computation, state):
            raise ComputationError(f"{name}: a state cannot be called {state!r}; choose another name")
