"""Timers of stateful DoFns: the handles that set them, and the queue of times.

A queue never searches the records: an entry counts only while its record still has that time. So a timer is moved or
cleared by writing to the record, and an outdated entry is dropped when it comes first.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, Final

from headrace.model.times import MAX_TIME, Instant, duration, instant

if TYPE_CHECKING:
    from headrace.engine.stateful.records import Cursor, Record

NEVER: Final = MAX_TIME + 1
"""The time of a timer that is not set."""

_FEW: Final = 1024


class TimerQueue:
    """A queue of records' times, earliest first; of equal times, the older record and the timer declared first."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int, Record]] = []
        self._limit = _FEW

    def put(self, record: Record, index: int, time: int) -> None:
        """Sets a time of a record."""
        if record.due[index] != time:
            record.due[index] = time
            self.note(record, index)

    def note(self, record: Record, index: int) -> None:
        """Adds a time that the record has."""
        heappush(self._heap, (record.due[index], record.seq, index, record))
        if len(self._heap) > self._limit:
            self._heap = list({entry for entry in self._heap if entry[3].due[entry[2]] == entry[0]})
            heapify(self._heap)
            self._limit = 2 * len(self._heap) + _FEW

    def first(self) -> int:
        """Returns the earliest time, NEVER if there is none."""
        heap = self._heap
        while heap:
            time, _, index, record = heap[0]
            if record.due[index] == time:
                return time
            heappop(heap)
        return NEVER

    def pop(self, until: int) -> tuple[Record, int, int] | None:
        """Unsets the earliest time that is not after `until`; returns its record, index and time."""
        if self.first() > until:
            return None
        time, _, index, record = heappop(self._heap)
        record.due[index] = NEVER
        return record, index, time

    def clear(self) -> None:
        """Removes all times."""
        self._heap.clear()


class Timer:
    """The handle of an event timer of the record that the cursor points to."""

    __slots__ = ("_at", "_changed", "_index", "_queue")

    def __init__(self, index: int, at: Cursor, changed: dict[int, Record], queue: TimerQueue) -> None:
        self._index, self._at, self._changed, self._queue = index, at, changed, queue

    def set(self, time: Any) -> None:
        self._put(instant(time))

    def after(self, length: Any) -> None:
        self._put(int(self.time_after(length)))  # a time of a record is a plain number: an Instant adds seconds

    def time_after(self, length: Any) -> Instant:
        return Instant(self._at.time + duration(length))

    def read(self) -> Instant | None:
        time = self._at.record.due[self._index]
        return None if time == NEVER else Instant(time)

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
    """The handle of a processing timer. Its outputs have the event time it was set at, which holds the watermark."""

    __slots__ = ("_hold", "_holds")

    def __init__(
        self, index: int, at: Cursor, changed: dict[int, Record], queue: TimerQueue, hold: int, holds: TimerQueue
    ) -> None:
        super().__init__(index, at, changed, queue)
        self._hold, self._holds = hold, holds

    def time_after(self, length: Any) -> Instant:
        return Instant(self._at.now + duration(length))

    def clear(self) -> None:
        super().clear()
        self._at.record.due[self._hold] = NEVER

    def _put(self, time: int) -> None:
        record, at = self._at.record, self._at
        self._changed[record.seq] = record
        self._queue.put(record, self._index, min(time, MAX_TIME))
        if record.due[self._hold] != at.time:
            record.due[self._hold] = at.time
            if at.time >= at.low:  # a time behind the output watermark holds nothing back
                self._holds.note(record, self._hold)
