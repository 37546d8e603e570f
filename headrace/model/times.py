"""Parses and formats durations and instants.

Inside, every time is an int (or an int64 array) of microseconds since the epoch, in UTC. This is the only module that
parses what people write; computations with times are in the modules of windows and watermarks.
"""

import calendar
import re
import time
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Int64Array: TypeAlias = npt.NDArray[np.int64]
Seconds: TypeAlias = int | float | Decimal | np.integer[Any] | np.floating[Any]
DurationLike: TypeAlias = str | timedelta | np.timedelta64 | Seconds
InstantLike: TypeAlias = str | datetime | date | np.datetime64 | Seconds

SECOND = 1_000_000
DAY = 86_400 * SECOND

# Far enough from the ends of int64 that an instant plus or minus a duration never overflows.
MIN_TIME = -(2**62)
MAX_TIME = 2**62

_NUMBERS = (int, float, Decimal, np.integer, np.floating)
_UNITS = (("d", DAY), ("h", 3_600 * SECOND), ("min", 60 * SECOND), ("s", SECOND), ("ms", 1_000), ("us", 1))

# Spellings that people use and pandas.Timedelta does not accept, or accepts with a warning.
_SPELLINGS = {
    **dict.fromkeys(("week", "weeks", "wk", "wks"), "W"),
    **dict.fromkeys(("h", "hrs"), "h"),
    **dict.fromkeys(("mins",), "min"),
    **dict.fromkeys(("s", "secs"), "s"),
}
_ISO = re.compile(r"[-+]?P")
# In ISO 8601, an M before the T is a month; pandas takes it for a minute.
_ISO_MONTHS = re.compile(r"P[^T]*[MY]")
_MONTHS = re.compile(r"\d\s*(?:[MyY]|(?i:mon?|months?|quarters?|yrs?|years?))(?![A-Za-z])")
# What pandas.Timedelta misreads: "10" as nanoseconds, "10 1h" as 101 hours, "1.5.2h" as a sum, "PT1H30" as one hour.
_WITHOUT_UNIT = re.compile(r"^[-+]?[\d.,\s]+$|\d\s+[\d.]|\.\d*\.|P.*\d$")


def duration(value: DurationLike) -> int:
    """Converts a duration to microseconds: text, a timedelta, or a number of seconds.

    >>> duration("1 hour 30 min"), duration("PT1H30M"), duration(5400)
    (5400000000, 5400000000, 5400000000)
    >>> duration("250ms"), duration(0.25), duration(timedelta(milliseconds=250))
    (250000, 250000, 250000)
    >>> duration("1 month")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    ValueError: duration: months and years have no fixed length, got '1 month'; give days, or use ...
    """
    if isinstance(value, str | np.timedelta64):
        result = _read_duration(value)
    elif isinstance(value, timedelta):
        result = _microseconds(value)
    elif isinstance(value, _NUMBERS) and not isinstance(value, bool):
        result = _from_seconds("duration", value)
    else:
        raise TypeError(
            f"duration: expected text, a timedelta or a number of seconds, got {value!r} "
            f"({type(value).__name__}); write for instance '90 seconds'"
        )
    return _in_range("duration", value, result)


def instant(value: InstantLike) -> int:
    """Converts an instant to microseconds since the epoch: ISO 8601 text, a datetime, a date, or seconds.

    Without a time zone it is in UTC; numbers are seconds since the epoch.

    >>> instant("1970-01-01T00:01:00"), instant("1970-01-01T02:01:00+02:00"), instant(60)
    (60000000, 60000000, 60000000)
    >>> instant(date(1970, 1, 2)) == DAY
    True
    """
    if isinstance(value, Instant):
        return int(value)
    if isinstance(value, str):
        try:
            result = _from_datetime(datetime.fromisoformat(value.strip()))
        except ValueError as error:
            raise ValueError(
                f"instant: expected an ISO 8601 date and time, got {value!r}; write for instance '2026-01-31T12:00:00Z'"
            ) from error
    elif isinstance(value, np.datetime64):
        result = _from_datetime64(value)
    elif isinstance(value, datetime):
        result = _from_datetime(value)
    elif isinstance(value, date):
        result = _from_datetime(datetime(value.year, value.month, value.day))
    elif isinstance(value, _NUMBERS) and not isinstance(value, bool):
        result = _from_seconds("instant", value)
    else:
        raise TypeError(
            f"instant: expected ISO 8601 text, a datetime, a date or seconds since the epoch, got {value!r} "
            f"({type(value).__name__}); write for instance '2026-01-31T12:00:00Z'"
        )
    return _in_range("instant", value, result)


class Instant(int):
    """An event time as functions get it: microseconds since the epoch, with `+` and `-` for durations.

    >>> time = Instant(60_000_000)
    >>> print(time + 60, time + "5 minutes", time - timedelta(seconds=60))
    1970-01-01T00:02:00Z 1970-01-01T00:06:00Z 1970-01-01T00:00:00Z
    >>> (time + 60) - time
    datetime.timedelta(seconds=60)
    >>> instant(time) == time
    True
    """

    def __add__(self, other: DurationLike) -> "Instant":
        return Instant(int(self) + duration(other))

    def __sub__(self, other: Any) -> Any:
        if isinstance(other, Instant):
            return timedelta(microseconds=int(self) - int(other))
        return Instant(int(self) - duration(other))

    def __str__(self) -> str:
        return format_instant(self)


def format_instant(us: int) -> str:
    """Formats an instant as ISO 8601 in UTC; the ends of time as infinities.

    >>> format_instant(1_767_268_800_000_000), format_instant(1_500_000), format_instant(MIN_TIME)
    ('2026-01-01T12:00:00Z', '1970-01-01T00:00:01.5Z', '-inf')
    """
    if us <= MIN_TIME:
        return "-inf"
    if us >= MAX_TIME:
        return "+inf"
    seconds, fraction = divmod(int(us), SECOND)
    # numpy, unlike datetime, also writes years beyond 9999.
    to_second = np.datetime_as_string(np.datetime64(seconds, "s"))
    return to_second + (f".{fraction:06d}".rstrip("0") if fraction else "") + "Z"


def format_duration(us: int) -> str:
    """Formats a duration in days, hours, minutes and so on; `duration` parses it.

    >>> format_duration(5_400_000_000), format_duration(2 * DAY), format_duration(250_000)
    ('1 h 30 min', '2 d', '250 ms')
    """
    rest, parts = abs(int(us)), []
    for unit, length in _UNITS:
        count, rest = divmod(rest, length)
        if count:
            parts.append(f"{count} {unit}")
    return ("-" if us < 0 else "") + (" ".join(parts) or "0 s")


@lru_cache(maxsize=1024)  # functions over elements write the same durations again and again
def _read_duration(value: str | np.timedelta64) -> int:
    import pandas  # slow to import, and needed for text only

    text = value
    if isinstance(value, str):
        text = value.strip()
        is_iso = _ISO.match(text)
        if (_ISO_MONTHS if is_iso else _MONTHS).search(text):
            raise ValueError(
                f"duration: months and years have no fixed length, got {value!r}; give days, or use CalendarWindows"
            )
        if _WITHOUT_UNIT.search(text):
            raise ValueError(
                f"duration: every number needs a unit, got {value!r}; "
                "write for instance '90 seconds', or pass a number of seconds"
            )
        if not is_iso:
            text = re.sub("[A-Za-z]+", lambda word: _SPELLINGS.get(word[0].lower(), word[0]), text)
    try:
        parsed = pandas.Timedelta(text)
        if parsed is pandas.NaT:
            raise ValueError("it is not a time")
    except ValueError as error:
        raise ValueError(
            f"duration: cannot read {value!r}: {error}; write for instance '90 seconds' or 'PT1H30M'"
        ) from error
    return _microseconds(parsed)


def _microseconds(value: timedelta) -> int:
    microsecond = timedelta(microseconds=1)
    # A pandas.Timedelta may have nanoseconds: adding the remainder to itself rounds them to the nearest.
    return int((value + value % microsecond) // microsecond)


def _from_seconds(caller: str, value: Seconds) -> int:
    exact = value if isinstance(value, int | float | Decimal) else value.item()
    try:
        return round(Fraction(exact) * SECOND)
    except (ValueError, OverflowError):
        raise ValueError(f"{caller}: expected a finite number of seconds, got {value!r}") from None


def _from_datetime(value: datetime) -> int:
    if value != value:  # pandas.NaT is a datetime, and like NaN unequal to itself
        raise ValueError("instant: expected a time, got NaT; drop or fill missing times first")
    return calendar.timegm(value.utctimetuple()) * SECOND + value.microsecond


def _from_datetime64(value: np.datetime64) -> int:
    if np.isnat(value):
        raise ValueError("instant: expected a time, got NaT; drop or fill missing times first")
    converted = value.astype("datetime64[us]")
    if converted.astype("datetime64[Y]") != value.astype("datetime64[Y]"):  # numpy overflows in silence
        return MAX_TIME
    return int(converted.astype(np.int64))


def _in_range(caller: str, value: object, us: int) -> int:
    if not MIN_TIME < us < MAX_TIME:
        raise ValueError(f"{caller}: {value!r} is out of range; times reach about 146 000 years from the epoch")
    return us


def now() -> int:
    """Returns the time of this machine, in microseconds since the epoch: the default clock.

    >>> now() > instant("2020-01-01")
    True
    """
    return time.time_ns() // 1000
