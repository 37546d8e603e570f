"""DoFn: a function over elements with a life cycle, its marked parameters, and the wrappers of its outputs.

The engine fills in the parameters of `process`, and of functions for Map, FlatMap and Filter, whose default is one of
the markers below.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from headrace.model.state import StateSpec, TimerSpec
from headrace.model.times import instant


@dataclass(frozen=True)
class Param:
    """Marks a parameter that the engine fills in: the element's timestamp, window or pane, a state or a timer.

    Of a DoFn with state also the watermark of its input.
    """

    kind: str
    spec: StateSpec | TimerSpec | None = None


class DoFn:
    """A function over elements: override `process`, which returns or yields any number of outputs.

    A worker calls `setup` before it first uses the object and `teardown` when it is done. A bundle is a block of
    elements of one task: `start_bundle` is called before each and `finish_bundle` after it. `finish_bundle` may yield
    outputs too, as TimestampedValue where windows matter.

    >>> import headrace as hr
    >>> class Ends(hr.DoFn):
    ...     def process(self, word, timestamp=hr.DoFn.TimestampParam):
    ...         yield word[0]
    ...         yield word[-1]
    >>> with hr.Pipeline() as p:
    ...     ends = p | hr.Create(["mill"]) | hr.ParDo(Ends()) | hr.Collect()
    >>> list(ends)
    ['m', 'l']
    """

    TimestampParam = Param("timestamp")
    WindowParam = Param("window")
    PaneInfoParam = Param("pane")
    ElementParam = Param("element")
    WatermarkParam = Param("watermark")
    """Marks a parameter for the watermark of the input, before what the call belongs to: for DoFns with state.

    An element whose time is before it is late. In a batch, elements come in the order of their times, and each is its
    own watermark.
    """

    @staticmethod
    def StateParam(spec: StateSpec) -> Any:
        """Marks a parameter for the state that `spec` declares, of the element's key and window."""
        return Param("state", spec)

    @staticmethod
    def TimerParam(spec: TimerSpec) -> Any:
        """Marks a parameter for the timer that `spec` declares, of the element's key and window."""
        return Param("timer", spec)

    def setup(self) -> None: ...

    def start_bundle(self) -> None: ...

    def process(self, element: Any, *args: Any, **kwargs: Any) -> Iterable[Any] | None:
        raise NotImplementedError(f"{type(self).__name__} must override process(element)")

    def finish_bundle(self) -> Iterable[Any] | None: ...

    def teardown(self) -> None: ...

    def specs(self) -> tuple[StateSpec | TimerSpec, ...]:
        """Returns the states and timers that `process` and the timer callbacks declare, each once."""
        methods = [getattr(type(self), name) for name in dir(type(self))]
        callbacks = [m for m in methods if m is type(self).process or hasattr(m, "fires")]
        declared = [param.spec for m in callbacks for param in params_of(m).values() if param.spec is not None]
        fired = [m.fires for m in callbacks if hasattr(m, "fires")]
        return tuple({spec.name: spec for spec in [*declared, *fired]}.values())

    def timer_methods(self) -> dict[str, Callable[..., Any]]:
        """Returns the methods that timers call, by the names of the timers."""
        methods = (getattr(self, name) for name in dir(type(self)) if hasattr(getattr(type(self), name), "fires"))
        return {method.fires.name: method for method in methods}


def params_of(fn: Callable[..., Any]) -> dict[str, Param]:
    """Returns the marked parameters of a function, by name.

    >>> params_of(lambda x, t=DoFn.TimestampParam: t)
    {'t': Param(kind='timestamp', spec=None)}
    """
    try:
        parameters = inspect.signature(fn).parameters
    except (TypeError, ValueError):  # builtins without a signature take no markers
        return {}
    return {name: p.default for name, p in parameters.items() if isinstance(p.default, Param)}


class Wrapped:
    """Base of the wrappers of an output, which give it a tag or a timestamp.

    `used` is whether this process has made or unpickled any: where none is used, outputs need not be searched for them.
    """

    used: ClassVar[bool] = False

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        Wrapped.used = True
        return super().__new__(cls)


@dataclass(frozen=True)
class TaggedOutput(Wrapped):
    """An output for a tagged collection instead of the main one; see `ParDo.with_outputs`.

    >>> import headrace as hr
    >>> hr.TaggedOutput("bad", "not a number")
    TaggedOutput(tag='bad', value='not a number')
    """

    tag: str
    value: Any


@dataclass(frozen=True, init=False)
class TimestampedValue(Wrapped):
    """A value with its event time: functions emit it, and Create takes it, to set an element's timestamp.

    >>> import headrace as hr
    >>> hr.TimestampedValue("a", "2026-01-01T00:00:00Z").timestamp
    1767225600000000
    """

    value: Any
    timestamp: int

    def __init__(self, value: Any, timestamp: Any) -> None:
        object.__setattr__(self, "value", value)
        object.__setattr__(self, "timestamp", instant(timestamp))
