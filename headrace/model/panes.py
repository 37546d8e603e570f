"""Panes: the results that a window emits, and the windowing that declares how it does.

`Windowing` is all that a collection declares about its windows; `PaneInfo` is attached to each element and says which
firing it came from; `Pane` is one firing, as tests get it.
"""

from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal, get_args

from headrace.model.times import DurationLike, duration, format_duration
from headrace.model.triggers import DefaultTrigger, Trigger
from headrace.model.windows import GlobalWindows, WindowFn

Timing = Literal["early", "on_time", "late", "unknown"]
Accumulation = Literal["discarding", "accumulating", "retracting"]
TimestampCombiner = Literal["end_of_window", "earliest", "latest"]
Closing = Literal["always", "non_empty"]

WINDOW_BOUNDS: Final = ("window_start", "window_end")
"""Columns in which sinks write the bounds of an element's window, unless its own columns have these names."""
PANE, TIMING, OP = "pane", "timing", "op"
"""Columns in which files have the index of an element's pane, its timing, and whether it is a retraction."""


@dataclass(frozen=True)
class PaneInfo:
    """The pane that an element came from: which of its window's firings.

    `index` counts the panes of the window from 0; `on_time_index` counts from the on-time pane, and is -1 before it.

    >>> ONLY_PANE
    PaneInfo(timing='on_time', index=0, on_time_index=0, is_first=True, is_last=True)
    """

    timing: Timing
    index: int
    on_time_index: int
    is_first: bool
    is_last: bool


# The pane of elements that were never grouped, and the only pane of a window in a batch.
NO_PANE = PaneInfo("unknown", index=0, on_time_index=0, is_first=True, is_last=True)
ONLY_PANE = PaneInfo("on_time", index=0, on_time_index=0, is_first=True, is_last=True)


@dataclass(frozen=True)
class Pane:
    """One firing of one window of one key, as a scripted test gets it; times are in the script's seconds.

    A retraction takes back the values of an earlier pane; the pane that replaces it follows.

    >>> Pane("k", window=(0, 10), values=[1, 2], timestamp=9.999999, timing="on_time", index=0,
    ...      on_time_index=0, is_first=True, is_last=False).retraction
    False
    """

    key: Any
    window: tuple[float, float]
    values: list[Any]
    timestamp: float
    timing: Timing
    index: int
    on_time_index: int
    is_first: bool
    is_last: bool
    retraction: bool = False


@dataclass(frozen=True, init=False, repr=False)
class Windowing:
    """The windowing of a collection: its windows, when results are emitted, and how panes accumulate.

    - accumulation: a pane has what is new ("discarding"), all so far ("accumulating"), or all so far after a
      retraction of the pane before ("retracting").
    - allowed_lateness: how long after its end, by the watermark, a window still accepts late data. The constructor
      accepts what `duration` does; the field is in microseconds.
    - timestamp_combiner: the timestamp of a result: "end_of_window", or that of its "earliest" or "latest" element.
    - closing: whether a window that expires emits its last pane "always", or only if "non_empty".

    >>> from headrace.model.windows import FixedWindows
    >>> Windowing(FixedWindows("1 min"), accumulation="accumulating", allowed_lateness="2 days")
    Windowing(FixedWindows('1 min'), accumulation='accumulating', allowed_lateness='2 d')
    >>> GLOBAL.is_global
    True
    """

    # init=False: dataclasses.replace must refuse, instead of reading microseconds of lateness as seconds.
    window: WindowFn = field(init=False)
    trigger: Trigger = field(init=False, default=DefaultTrigger())
    accumulation: Accumulation = field(init=False, default="discarding")
    allowed_lateness: int = field(init=False, default=0)
    timestamp_combiner: TimestampCombiner = field(init=False, default="end_of_window")
    closing: Closing = field(init=False, default="non_empty")

    def __init__(
        self,
        window: WindowFn,
        trigger: Trigger = DefaultTrigger(),
        accumulation: Accumulation = "discarding",
        allowed_lateness: DurationLike = 0,
        timestamp_combiner: TimestampCombiner = "end_of_window",
        closing: Closing = "non_empty",
    ) -> None:
        _check_instance("window", window, WindowFn, "FixedWindows('1 minute')")
        _check_instance("trigger", trigger, Trigger, "AfterWatermark()")
        _check_choice("accumulation", accumulation, get_args(Accumulation))
        _check_choice("timestamp_combiner", timestamp_combiner, get_args(TimestampCombiner))
        _check_choice("closing", closing, get_args(Closing))
        lateness = duration(allowed_lateness)
        if lateness < 0:
            raise ValueError(
                f"Windowing: allowed_lateness must not be negative, got {format_duration(lateness)}; "
                "give 0 to drop late data, or a duration such as '1 hour'"
            )
        object.__setattr__(self, "window", window)
        object.__setattr__(self, "trigger", trigger)
        object.__setattr__(self, "accumulation", accumulation)
        object.__setattr__(self, "allowed_lateness", lateness)
        object.__setattr__(self, "timestamp_combiner", timestamp_combiner)
        object.__setattr__(self, "closing", closing)

    @property
    def is_global(self) -> bool:
        """Whether all elements are in the one global window."""
        return isinstance(self.window, GlobalWindows)

    def __repr__(self) -> str:
        parts = [repr(self.window)]
        for item in fields(self)[1:]:
            value = getattr(self, item.name)
            if value != item.default:
                argument = format_duration(value) if item.name == "allowed_lateness" else value
                parts.append(f"{item.name}={argument!r}")
        return f"Windowing({', '.join(parts)})"


def _check_instance(name: str, value: object, kind: type, example: str) -> None:
    if not isinstance(value, kind):
        remedy = f"{value.__name__}(...)" if isinstance(value, type) else f"for instance {example}"
        raise TypeError(f"Windowing: {name} must be a {kind.__name__}, got {value!r}; write {remedy}")


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"Windowing: {name} must be one of {', '.join(map(repr, choices))}, got {value!r}")


GLOBAL = Windowing(GlobalWindows())
