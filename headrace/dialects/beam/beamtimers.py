"""Timers of Beam's stateful DoFns: what is set, the handles that set it, and the queues of what is due.

A timer belongs to a record, under its family and its dynamic tag. Setting it again replaces it and clearing removes it:
a queue's entry counts only while the record still has that very timer.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from apache_beam.transforms import userstate
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import PaneInfo

from headrace.dialects.beam.beamtimes import to_micros, to_timestamp
from headrace.model.times import MAX_TIME

if TYPE_CHECKING:
    from headrace.dialects.beam.userstate import Cursor, Record

NEVER: Final = MAX_TIME + 1
"""The time of a queue in which nothing is."""

_FEW: Final = 1024


@dataclass(eq=False, slots=True)
class SetTimer:
    """A timer that is set: when it fires, the time that its outputs have until then, and the pane it was set in."""

    family: str
    tag: str
    event: bool
    fire: int
    hold: int
    pane: PaneInfo

    def data(self, record: Record) -> userstate.Timer:
        """Returns the timer as Beam's DoFn runner takes it when it fires."""
        return userstate.Timer(
            user_key=record.user_key,
            dynamic_timer_tag=self.tag,
            windows=(record.window,),
            clear_bit=False,
            fire_timestamp=to_timestamp(self.fire),
            hold_timestamp=to_timestamp(self.hold),
            paneinfo=self.pane,
        )


class TimerQueue:
    """Timers by one of their times, earliest first; of equal times, the one that was set first."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Record, SetTimer]] = []
        self._numbers = count()
        self._limit = _FEW

    def put(self, time: int, record: Record, timer: SetTimer) -> None:
        """Adds a timer that the record has."""
        heappush(self._heap, (time, next(self._numbers), record, timer))
        if len(self._heap) > self._limit:
            self._heap = [entry for entry in self._heap if _is_set(entry[2], entry[3])]
            heapify(self._heap)
            self._limit = 2 * len(self._heap) + _FEW

    def first(self) -> int:
        """Returns the earliest time, NEVER if there is none."""
        heap = self._heap
        while heap:
            time, _, record, timer = heap[0]
            if _is_set(record, timer):
                return time
            heappop(heap)
        return NEVER

    def pop(self, until: int) -> tuple[Record, SetTimer] | None:
        """Unsets and returns the earliest timer that is not after `until`, with its record."""
        if self.first() > until:
            return None
        _, _, record, timer = heappop(self._heap)
        del record.timers[timer.family, timer.tag]
        return record, timer


def _is_set(record: Record, timer: SetTimer) -> bool:
    return record.timers.get((timer.family, timer.tag)) is timer


class Timers:
    """All timers of a shard's records, in event time and processing time, and the watermark they hold back.

    >>> from apache_beam.transforms.window import GlobalWindow
    >>> from headrace.dialects.beam.userstate import Record
    >>> timers, record = Timers(), Record(b"k", "k", GlobalWindow(), 0, MAX_TIME)
    >>> timers.set(record, SetTimer("flush", "", True, 10, 7, None))
    >>> timers.set(record, SetTimer("flush", "", True, 20, 9, None))
    >>> timers.hold(), timers.due(watermark=15, now=0), timers.due(watermark=20, now=0)[1].fire
    (9, None, 20)
    """

    def __init__(self) -> None:
        self.event, self.processing, self.holds = TimerQueue(), TimerQueue(), TimerQueue()

    def set(self, record: Record, timer: SetTimer) -> None:
        """Sets a timer of a record, in place of the one it has under this family and tag."""
        record.timers[timer.family, timer.tag] = timer
        self.note(record, timer)

    def note(self, record: Record, timer: SetTimer) -> None:
        """Adds a timer that the record has."""
        (self.event if timer.event else self.processing).put(timer.fire, record, timer)
        self.holds.put(timer.hold, record, timer)

    def due(self, *, watermark: int, now: int) -> tuple[Record, SetTimer] | None:
        """Unsets and returns the next timer that is due: the earliest, by processing time before event time."""
        return self.processing.pop(now) or self.event.pop(watermark)

    def hold(self) -> int:
        """Returns the time that the watermark must not pass, NEVER if there is none."""
        return self.holds.first()


class TimerHandle(userstate.BaseTimer):
    """The handle by which a DoFn sets and clears a timer of the record that the cursor points to."""

    __slots__ = ("_at", "_pane", "_spec", "_time")

    def __init__(self, spec: userstate.TimerSpec, at: Cursor, time: Timestamp, pane: PaneInfo) -> None:
        self._spec, self._at, self._time, self._pane = spec, at, time, pane

    def set(self, timestamp: Any, dynamic_timer_tag: str = "") -> None:
        """Sets the timer with this tag to a time."""
        fire, event = to_micros(Timestamp.of(timestamp)), self._spec.time_domain == TimeDomain.WATERMARK
        hold = fire if event else to_micros(self._time)
        timer = SetTimer(self._spec.name, dynamic_timer_tag, event, fire, hold, self._pane)
        self._at.timers.set(self._at.touched(), timer)

    def clear(self, dynamic_timer_tag: str = "") -> None:
        """Unsets the timer with this tag."""
        self._at.touched().timers.pop((self._spec.name, dynamic_timer_tag), None)
