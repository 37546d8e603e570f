"""Triggers: declare when a window emits its results. The engine runs them.

Each firing of a trigger emits a pane. Some triggers finish with their first firing; elements that arrive in a window
whose trigger has finished are dropped, and in sessions begin another session. Conditions are tested when a bundle of
input has been added or a clock has moved: a bundle of five elements satisfies AfterCount(2) once, not twice.
"""

from dataclasses import dataclass, field
from operator import index as as_int

import numpy as np

from headrace.model.times import DurationLike, duration, format_duration


@dataclass(frozen=True)
class Trigger:
    """Declares when a window fires. Triggers can be nested; `children()` are the triggers inside one.

    >>> Repeatedly(AfterAny(AfterCount(100), AfterProcessingTime("1 min"))).children()
    (AfterAny(AfterCount(100), AfterProcessingTime('1 min')),)
    """

    def children(self) -> tuple["Trigger", ...]:
        """The triggers directly inside this one."""
        return ()


@dataclass(frozen=True, repr=False)
class AfterWatermark(Trigger):
    """Fires once on time: when the watermark passes the end of the window.

    Before that, `early` fires repeatedly, as if in Repeatedly; after it, `late` does so for late data. Without `late`,
    the trigger finishes with its on-time pane, and late data is dropped; in sessions it begins another session. A
    session that grows or merges, so that its end is beyond the watermark again, is early and then on time once more.

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
        arguments = (f"{name}={child!r}" for name, child in named.items() if child is not None)
        return f"AfterWatermark({', '.join(arguments)})"


@dataclass(frozen=True, init=False, repr=False)
class AfterProcessingTime(Trigger):
    """Fires once, when `delay` of processing time has passed since the pane's first element arrived.

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
    """Fires once, at the end of the first bundle after which the pane has at least `n` elements, maybe many more.

    The number is tested once per bundle; in a stream, a bundle is the elements of a micro-batch.

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
    """Fires once, when the watermark of the fastest fraction `q` of the input passes the end of the window.

    It does not wait for the slowest elements: 0.99 ignores the slowest hundredth of the input, 1 is the watermark
    itself.

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
    """Fires whenever `trigger` fires, and restarts it when it finishes. Never finishes.

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
    """Base of AfterAny, AfterAll and AfterEach: one trigger or more, in order."""

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
    """Fires whenever at least one of `triggers` is ready to fire. Finishes when one of them finishes.

    >>> AfterAny(AfterCount(100), AfterProcessingTime("1 min"))
    AfterAny(AfterCount(100), AfterProcessingTime('1 min'))
    """


class AfterAll(_Several):
    """Fires when all of `triggers` are ready to fire at the same time. Finishes when all of them have finished.

    >>> AfterAll(AfterCount(100), AfterWatermark())
    AfterAll(AfterCount(100), AfterWatermark())
    """


class AfterEach(_Several):
    """Fires whenever the current one of `triggers` fires; when that one finishes, the next becomes current.

    Finishes with the last one.

    >>> AfterEach(AfterCount(1), Repeatedly(AfterCount(100)))  # a first answer at once, then larger panes
    AfterEach(AfterCount(1), Repeatedly(AfterCount(100)))
    """


@dataclass(frozen=True, repr=False)
class OrFinally(Trigger):
    """Fires whenever `trigger` fires, until `until` fires: then it fires a last pane and finishes.

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
    """Fires after every bundle with elements of the window. Never finishes.

    >>> Always()
    Always()
    """


@dataclass(frozen=True)
class Never(Trigger):
    """Does not fire: a window's elements are emitted, if at all, in the pane that closes it. Never finishes.

    >>> Never()
    Never()
    """


@dataclass(frozen=True)
class DefaultTrigger(Trigger):
    """Fires when the watermark passes the end of the window, then after every bundle with late data.

    Never finishes, so it drops no data.

    >>> DefaultTrigger()
    DefaultTrigger()
    """


def finishes(trigger: Trigger) -> bool:
    """Returns whether a trigger may finish; elements that arrive after that are dropped or begin another session.

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
