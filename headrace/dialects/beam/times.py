"""Times of Beam as times of Headrace, and back.

Both count microseconds. Beam's range is the wider one: its ends are Headrace's ends, the last instant of its global
window is that of Headrace's, and what lies beyond is cut off.
"""

from __future__ import annotations

from typing import Final

from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import MAX_TIMESTAMP, MIN_TIMESTAMP, Timestamp

from headrace.model.times import MAX_TIME, MIN_TIME

_LAST: Final = GlobalWindow().max_timestamp()
_FIRST_US, _LAST_US, _END_US = MIN_TIMESTAMP.micros, _LAST.micros, MAX_TIMESTAMP.micros


def to_micros(time: Timestamp) -> int:
    """Converts a time of Beam's to microseconds.

    >>> to_micros(Timestamp(seconds=2)), to_micros(MAX_TIMESTAMP) == MAX_TIME
    (2000000, True)
    """
    us = time.micros
    if MIN_TIME < us < MAX_TIME - 1:
        return us
    if us < 0:
        return MIN_TIME
    return MAX_TIME if us > _LAST_US else MAX_TIME - 1


def to_timestamp(us: int) -> Timestamp:
    """Converts microseconds to a time of Beam's.

    >>> to_timestamp(2_000_000), to_timestamp(MIN_TIME) == MIN_TIMESTAMP
    (Timestamp(2), True)
    >>> to_timestamp(MAX_TIME - 1) == GlobalWindow().max_timestamp()
    True
    """
    if MIN_TIME < us < MAX_TIME - 1:
        return Timestamp(micros=us)
    if us < 0:
        return MIN_TIMESTAMP
    return MAX_TIMESTAMP if us >= MAX_TIME else _LAST
