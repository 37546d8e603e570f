"""Single times of Beam's as Headrace's, and back; `border.py` converts whole arrays."""

from __future__ import annotations

import numpy as np
from apache_beam.utils.timestamp import Timestamp

from headrace.dialects.beam.border import from_times, to_times


def to_micros(time: Timestamp) -> int:
    """Converts a time of Beam's to microseconds.

    >>> to_micros(Timestamp(seconds=2))
    2000000
    """
    return int(to_times([time.micros])[0])


def to_timestamp(us: int) -> Timestamp:
    """Converts microseconds to a time of Beam's.

    >>> to_timestamp(2_000_000)
    Timestamp(2)
    """
    return Timestamp(micros=from_times(np.array([us], np.int64))[0])
