"""Timers of stateful DoFns: the handle a DoFn sets them by, and the queue that says which one is next.

A queue never searches the records: an entry counts only while its record still has that time, so that a timer is moved
or cleared by writing to the record, and what is out of date is dropped when it comes up.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, Final

from headrace.model.times import MAX_TIME, duration, instant

if TYPE_CHECKING:
    from headrace.engine.stateful.records import Cursor, Record

NEVER: Final = MAX_TIME + 1
"""The time of a timer that is not set."""

_FEW: Final = 1024


class TimerQueue:
    """Times of records, the earliest first; of equal times that of the older record, then the timer declared first."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int, Record]] = []
        self._limit = _FEW

    def put(self, record: Record, index: int, time: int) -> None:
        """Moves a time of a record."""
        if record.due[index] != time:
            record.due[index] = time
            self.note(record, index)

    def note(self, record: Record, index: int) -> None:
        """Takes up a time that the record has."""
        heappush(self._heap, (record.due[index], record.seq, index, record))
        if len(self._heap) > self._limit:
            self._heap = list({entry for entry in self._heap if entry[3].due[entry[2]] == entry[0]})
            heapify(self._heap)
            self._limit = 2 * len(self._heap) + _FEW

    def first(self) -> int:
        """The earliest time, NEVER if there is none."""
        heap = self._heap
        while heap:
            time, _, index, record = heap[0]
            if record.due[index] == time:
                return time
            heappop(heap)
        return NEVER

    def pop(self, until: int) -> tuple[Record, int, int] | None:
        """The record, index and time of the earliest that is not after `until`, which is no longer set then."""
        if self.first() > until:
            return None
        time, _, index, record = heappop(self._heap)
        record.due[index] = NEVER
        return record, index, time

    def clear(self) -> None:
        """Forgets all times."""
        self._heap.clear()


class Timer:
    """A timer of the record that the cursor is at."""

    __slots__ = ("_at", "_changed", "_index", "_queue")

    def __init__(self, index: int, at: Cursor, changed: dict[int, Record], queue: TimerQueue) -> None:
        self._index, self._at, self._changed, self._queue = index, at, changed, queue

    def set(self, time: Any) -> None:
        self._put(instant(time))

    def after(self, length: Any) -> None:
        self._put(self._at.time + duration(length))

    def clear(self) -> None:
        record = self._at.record
        record.due[self._index] = NEVER
        self._changed[record.seq] = record

    def _put(self, time: int) -> None:
        record = self._at.record
        self._changed[record.seq] = record
        if time <= record.deadline:
            self._queue.put(record, self._index, time)
        else:  # it fires when the record ends, however far the watermark goes then
            record.due[self._index] = min(time, MAX_TIME)


class ProcessingTimer(Timer):
    """A timer in processing time. What its method gives has the event time it was set at, which is held until then."""

    __slots__ = ("_hold", "_holds")

    def __init__(
        self, index: int, at: Cursor, changed: dict[int, Record], queue: TimerQueue, hold: int, holds: TimerQueue
    ) -> None:
        super().__init__(index, at, changed, queue)
        self._hold, self._holds = hold, holds

    def after(self, length: Any) -> None:
        self._put(self._at.now + duration(length))

    def clear(self) -> None:
        super().clear()
        self._at.record.due[self._hold] = NEVER

    def _put(self, time: int) -> None:
        record, at = self._at.record, self._at
        self._changed[record.seq] = record
        self._queue.put(record, self._index, min(time, MAX_TIME))
        if record.due[self._hold] != at.time:
            record.due[self._hold] = at.time
            if at.time >= at.low:  # what is behind the output already holds nothing back
                self._holds.note(record, self._hold)
