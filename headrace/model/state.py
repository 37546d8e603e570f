"""Declares the state and the timers of a stateful DoFn, which it has per key and window.

Only the declarations are here; the engine reads them to lay out state and to fire timers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from headrace.model.algebra import CombineFn, combine_fn
from headrace.model.times import DurationLike, duration, format_duration

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class StateSpec:
    """Declares a named piece of state per key and window.

    With `expires`, it is empty again when that much event time has passed since it was last written: for calls at that
    time or later, and for all calls once the watermark is there. The field is in microseconds.

    >>> import headrace as hr
    >>> hr.ValueState("last", expires="1 hour").expires
    3600000000
    """

    name: str
    expires: DurationLike | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise ValueError(f"a state's name must be an identifier, got {self.name!r}; use letters, digits and _")
        if self.expires is not None:
            object.__setattr__(self, "expires", _lifetime(self.name, self.expires))


@dataclass(frozen=True)
class ValueState(StateSpec):
    """Declares state that is a single value: `read()`, `write(value)`, `clear()`.

    >>> import headrace as hr
    >>> class Number(hr.DoFn):
    ...     count = hr.ValueState("count")
    ...     def process(self, pair, count=hr.DoFn.StateParam(count)):
    ...         number = (count.read() or 0) + 1
    ...         count.write(number)
    ...         yield pair[0], number
    >>> with hr.Pipeline() as p:
    ...     numbered = p | hr.Create([("a", "x"), ("a", "y")]) | hr.ParDo(Number()) | hr.Collect()
    >>> sorted(numbered)
    [('a', 1), ('a', 2)]
    """


@dataclass(frozen=True)
class ListState(StateSpec):
    """Declares state that is a list: `add(value)`, `read()`, `clear()`.

    >>> import headrace as hr
    >>> hr.ListState("waiting").name
    'waiting'
    """


@dataclass(frozen=True)
class SetState(StateSpec):
    """Declares state that is a set: `add(value)`, `read()`, `clear()`.

    >>> import headrace as hr
    >>> hr.SetState("users").name
    'users'
    """


@dataclass(frozen=True)
class MapState(StateSpec):
    """Declares state that is a map: `get(key)`, `put(key, value)`, `remove(key)`, `items()`, `clear()`.

    >>> import headrace as hr
    >>> hr.MapState("prices").name
    'prices'
    """


@dataclass(frozen=True)
class CombiningState(StateSpec):
    """Declares state that is an aggregate: `add(value)`, `read()` returns the result so far, `clear()`.

    >>> import headrace as hr
    >>> hr.CombiningState("total", sum).fn
    SumFn()
    """

    fn: CombineFn[Any, Any, Any] | Callable[..., Any] = sum

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "fn", combine_fn(self.fn))


@dataclass(frozen=True)
class TimerSpec:
    """Declares a timer per key and window, in event or processing time: `set(time)`, `after(duration)`, `clear()`.

    `read()` returns the time it is set to, None if it is not set; `time_after(duration)` what `after` would set it to.

    `after` counts from the time of the current element or timer, or from the current processing time. Outputs of the
    timer's method have the time of an event timer, or the event time at which a processing timer was set.

    >>> import headrace as hr
    >>> class Alarm(hr.DoFn):
    ...     due = hr.TimerSpec("due", "event")
    ...     def process(self, pair, due=hr.DoFn.TimerParam(due)):
    ...         due.set(pair[1])
    ...     @hr.on_timer(due)
    ...     def ring(self, key=hr.DoFn.ElementParam, time=hr.DoFn.TimestampParam):
    ...         yield f"{key} rang at {time // 1_000_000} s"
    >>> with hr.Pipeline() as p:
    ...     rung = p | hr.Create([("a", 7)]) | hr.ParDo(Alarm()) | hr.Collect()
    >>> list(rung)
    ['a rang at 7 s']
    """

    name: str
    domain: Literal["event", "processing"] = "event"

    def __post_init__(self) -> None:
        if self.domain not in ("event", "processing"):
            raise ValueError(f"a timer's domain must be 'event' or 'processing', got {self.domain!r}")


def _lifetime(name: str, expires: DurationLike) -> int:
    length = duration(expires)
    if length <= 0:
        raise ValueError(
            f"the state {name!r}: expires must be positive, got {format_duration(length)!r}; give e.g. '1 hour'"
        )
    return length


def on_timer(spec: TimerSpec) -> Callable[[F], F]:
    """Marks the method that runs when the timer fires.

    >>> import headrace as hr
    >>> due = hr.TimerSpec("due")
    >>> @hr.on_timer(due)
    ... def ring(self): ...
    >>> ring.fires.name
    'due'
    """

    def mark(method: F) -> F:
        method.fires = spec  # type: ignore[attr-defined]
        return method

    return mark
