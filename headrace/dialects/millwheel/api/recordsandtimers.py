"""Records and timers, which the callbacks of a computation get, and the error that breaking a rule raises."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from headrace.model.errors import PipelineError
from headrace.model.times import Instant

Clock = Literal["event", "wall"]
"""By what a timer fires: the low watermark, or the clock on the wall."""


class ComputationError(PipelineError):
    """A computation breaks a rule of its declaration or of its callbacks; the message says which, and what to do."""


class Record(NamedTuple):
    """A record of a stream: its key by the computation's own extractor, its value, its event time and its stream.

    >>> from headrace import millwheel as mw
    >>> mw.Record("mill", {"query": "mill"}, mw.Instant(7_000_000), "queries").key
    'mill'
    """

    key: Any
    value: Any
    timestamp: Instant
    stream: str = ""


class Timer(NamedTuple):
    """A timer that fires: its key, the time it was set to, its tag, and the clock that it goes by.

    >>> from headrace import millwheel as mw
    >>> timer = mw.Timer("mill", mw.Instant(8_000_000))
    >>> timer.tag, timer.clock
    ('', 'event')
    """

    key: Any
    timestamp: Instant
    tag: str = ""
    clock: Clock = "event"
