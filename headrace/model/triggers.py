"""Triggers: when the results of a window are emitted. Declarations only; the engine runs them.

Each firing of a trigger emits a pane. Once-triggers finish with their first firing; what arrives in a window
whose trigger has finished is dropped. Conditions are judged when a bundle of input has been added or a clock
has moved: a bundle of five elements satisfies AfterCount(2) once, not twice.
"""

from dataclasses import dataclass, field
from operator import index as as_int

import numpy as np

from headrace.model.times import DurationLike, duration, format_duration


@dataclass(frozen=True)
class Trigger:
    """When a window fires. Triggers nest; `children` are the triggers inside one.

    >>> Repeatedly(AfterAny(AfterCount(100), AfterProcessingTime("1 min"))).children()
    (AfterAny(AfterCount(100), AfterProcessingTime('1 min')),)
    """

    def children(self) -> tuple["Trigger", ...]:
        """The triggers directly inside this one."""
        return ()


@dataclass(frozen=True, repr=False)
class AfterWatermark(Trigger):
    """On time: once, when the watermark passes the end of the window.

    Until then `early` fires, over and over as if in Repeatedly; from then on `late` does in the same way, for
    late data. Without `late` the trigger finishes with its on-time pane, and late data is dropped.

    >>> AfterWatermark(early=AfterProcessingTime("10 seconds"), late=AfterCount(1))
    AfterWatermark(early=AfterProcessingTime('10 s'), late=AfterCount(1))
    """

    early: Trigger | None = None
    late: Trigger | None = None

    def __post_init__(self) -> None:
        for name in ("early", "late"):
            if getattr(self, name) is not None:
                _check_trigger(f"AfterWatermark: {name}", getattr(self, name))

    def children(self) -> tuple[Trigger, ...]:
        return tuple(child for child in (self.early, self.late) if child is not None)

    def __repr__(self) -> str:
        named = {"early": self.early, "late": self.late}
        shown = (f"{name}={child!r}" for name, child in named.items() if child is not None)
        return f"AfterWatermark({', '.join(shown)})"


@dataclass(frozen=True, init=False, repr=False)
class AfterProcessingTime(Trigger):
    """Once, when processing time has moved on by `delay` since the pane's first element arrived.

    >>> AfterProcessingTime("1 minute").delay  # microseconds
    60000000
    """

    delay: int = field(init=False)

    def __init__(self, delay: DurationLike = 0) -> None:
        us = duration(delay)
        if us < 0:
            raise ValueError(
                f"AfterProcessingTime: delay must not be negative, got {format_duration(us)}; "
                "give the time to wait after the first element, such as '10 seconds'"
            )
        object.__setattr__(self, "delay", us)

    def __repr__(self) -> str:
        return f"AfterProcessingTime({format_duration(self.delay)!r})"


@dataclass(frozen=True, init=False, repr=False)
class AfterCount(Trigger):
    """Once, at the end of the first bundle with which the pane holds at least `n` elements, perhaps many more.

    It is judged once per bundle, which in a stream is what a micro-batch brings.

    >>> AfterCount(0)
    Traceback (most recent call last):
    ...
    ValueError: AfterCount: n must be a positive int, got 0; give a number of elements
    """

    n: int = field(init=False)

    def __init__(self, n: int) -> None:
        if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
            raise ValueError(f"AfterCount: n must be a positive int, got {n!r}; give a number of elements")
        object.__setattr__(self, "n", as_int(n))

    def __repr__(self) -> str:
        return f"AfterCount({self.n})"


@dataclass(frozen=True, repr=False)
class AfterPercentile(Trigger):
    """Once, when the watermark of the fastest fraction `q` of the input passes the end of the window.

    It does not wait for the slowest stragglers: 0.99 ignores the slowest hundredth of the input, 1 is the
    watermark itself.

    >>> AfterPercentile(99)
    Traceback (most recent call last):
    ...
    ValueError: AfterPercentile: q must be a fraction with 0 < q <= 1, got 99; for 99 % write 0.99
    """

    q: float

    def __post_init__(self) -> None:
        if isinstance(self.q, bool) or not isinstance(self.q, int | float | np.integer | np.floating):
            raise TypeError(f"AfterPercentile: q must be a number, got {self.q!r}; write 0.99 for 99 %")
        if not 0 < self.q <= 1:
            percent = 1 < self.q <= 100
            remedy = f"for {self.q} % write {self.q / 100:g}" if percent else "write 0.99 for 99 %"
            raise ValueError(f"AfterPercentile: q must be a fraction with 0 < q <= 1, got {self.q}; {remedy}")
        object.__setattr__(self, "q", float(self.q))

    def __repr__(self) -> str:
        return f"AfterPercentile({self.q})"


@dataclass(frozen=True, repr=False)
class Repeatedly(Trigger):
    """Whenever `trigger` fires; when that finishes, it starts afresh. Never finishes.

    >>> finishes(AfterCount(10)), finishes(Repeatedly(AfterCount(10)))
    (True, False)
    """

    trigger: Trigger

    def __post_init__(self) -> None:
        _check_trigger("Repeatedly: trigger", self.trigger)

    def children(self) -> tuple[Trigger, ...]:
        return (self.trigger,)

    def __repr__(self) -> str:
        return f"Repeatedly({self.trigger!r})"


@dataclass(frozen=True, init=False, repr=False)
class _Several(Trigger):
    """What AfterAny, AfterAll and AfterEach share: one trigger or more, in order."""

    triggers: tuple[Trigger, ...] = field(init=False)

    def __init__(self, *triggers: Trigger) -> None:
        name = type(self).__name__
        if not triggers:
            raise ValueError(f"{name}: needs at least one trigger, got none; write {name}(AfterCount(9), ...)")
        for position, trigger in enumerate(triggers, 1):
            _check_trigger(f"{name}: argument {position}", trigger)
        object.__setattr__(self, "triggers", triggers)

    def children(self) -> tuple[Trigger, ...]:
        return self.triggers

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.triggers))})"


class AfterAny(_Several):
    """Whenever at least one of `triggers` is ready to fire. Finishes when one of them finishes.

    >>> AfterAny(AfterCount(100), AfterProcessingTime("1 min"))
    AfterAny(AfterCount(100), AfterProcessingTime('1 min'))
    """


class AfterAll(_Several):
    """When all of `triggers` are ready to fire at once. Finishes when all of them have finished.

    >>> AfterAll(AfterCount(100), AfterWatermark())
    AfterAll(AfterCount(100), AfterWatermark())
    """


class AfterEach(_Several):
    """Whenever the current one of `triggers` fires; when that finishes, the next is current.

    Finishes with the last.

    >>> AfterEach(AfterCount(1), Repeatedly(AfterCount(100)))  # a first answer at once, then larger panes
    AfterEach(AfterCount(1), Repeatedly(AfterCount(100)))
    """


@dataclass(frozen=True, repr=False)
class OrFinally(Trigger):
    """Whenever `trigger` fires, until `until` fires: that fires one last pane and finishes.

    It also finishes when `trigger` does.

    >>> OrFinally(Repeatedly(AfterCount(100)), until=AfterWatermark())
    OrFinally(Repeatedly(AfterCount(100)), until=AfterWatermark())
    """

    trigger: Trigger
    until: Trigger

    def __post_init__(self) -> None:
        _check_trigger("OrFinally: trigger", self.trigger)
        _check_trigger("OrFinally: until", self.until)

    def children(self) -> tuple[Trigger, ...]:
        return (self.trigger, self.until)

    def __repr__(self) -> str:
        return f"OrFinally({self.trigger!r}, until={self.until!r})"


@dataclass(frozen=True)
class Always(Trigger):
    """After every bundle that brought the window an element. Never finishes.

    >>> Always()
    Always()
    """


@dataclass(frozen=True)
class Never(Trigger):
    """Not at all: what the window holds comes out, if at all, in the pane that closes it. Never finishes.

    >>> Never()
    Never()
    """


@dataclass(frozen=True)
class DefaultTrigger(Trigger):
    """When the watermark passes the end of the window, then after every bundle with late data.

    Never finishes, so no data is lost.

    >>> DefaultTrigger()
    DefaultTrigger()
    """


def finishes(trigger: Trigger) -> bool:
    """Whether a trigger may finish, after which what still arrives in the window is dropped.

    >>> finishes(AfterWatermark()), finishes(AfterWatermark(late=AfterCount(1)))
    (True, False)
    """
    match trigger:
        case Repeatedly() | Always() | Never() | DefaultTrigger():
            return False
        case AfterWatermark():
            return trigger.late is None
        case AfterAny():
            return any(finishes(child) for child in trigger.triggers)
        case AfterAll() | AfterEach():
            return all(finishes(child) for child in trigger.triggers)
        case _:
            return True


def _check_trigger(place: str, value: object) -> None:
    if not isinstance(value, Trigger):
        example = f"{value.__name__}(...)" if isinstance(value, type) else "for instance AfterCount(100)"
        raise TypeError(f"{place} must be a trigger, got {value!r}; write {example}")
