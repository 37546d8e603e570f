"""Window functions: assign elements to intervals of time, by arithmetic on int64 arrays of microseconds.

A window is a half-open interval. Here are the window functions, built-in and custom, and the merging of sessions. The
triggers decide when a window emits a result; nothing here has state.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from hashlib import blake2b
from math import gcd
from operator import index as as_int
from typing import ClassVar, Literal, NamedTuple, get_args
from zoneinfo import ZoneInfo

import numpy as np

from headrace.model.times import (
    DAY,
    MAX_TIME,
    MIN_TIME,
    SECOND,
    DurationLike,
    Int64Array,
    duration,
    format_duration,
    format_instant,
    instant,
)


class Window(NamedTuple):
    """A window: the interval [start, end), in microseconds since the epoch.

    >>> print(Window(0, 60_000_000))
    [1970-01-01T00:00:00Z, 1970-01-01T00:01:00Z)
    >>> Window(0, 60_000_000).max_timestamp()
    59999999
    """

    start: int
    end: int

    def max_timestamp(self) -> int:
        """The last instant inside the window."""
        return self.end - 1

    def __str__(self) -> str:
        return f"[{format_instant(self.start)}, {format_instant(self.end)})"


GLOBAL_WINDOW = Window(MIN_TIME, MAX_TIME)


class Assigned(NamedTuple):
    """The windows of many elements, as arrays: window i is [start[i], end[i]) and belongs to element index[i].

    `index` is ascending. An element in several windows appears several times, an element in no window does not.

    >>> Assigned(*(np.array(column) for column in ([0, 0], [-5, 0], [5, 10]))).start.tolist()
    [-5, 0]
    """

    index: Int64Array  # type: ignore[assignment]  # hides tuple.index, which nobody calls on three arrays
    start: Int64Array
    end: Int64Array


class WindowFn:
    """Assigns elements to windows. For windows of your own, subclass it and override `windows_of`.

    An element without a window is dropped. `merging` windows of one key may become one (see `merge`); `keyed` windows
    depend on the element's key. Window functions are equal if their types and attributes are.

    >>> class Around(WindowFn):
    ...     "The second before and the second after each element."
    ...     def windows_of(self, time, key):
    ...         return [(time - 1_000_000, time + 1_000_000)]
    >>> Around().assign(np.array([5_000_000])).end.tolist()
    [6000000]
    >>> Around() == Around()
    True
    """

    merging: ClassVar[bool] = False
    keyed: ClassVar[bool] = False

    def windows_of(self, time: int, key: object) -> Iterable[tuple[int, int]]:
        """Returns the windows of one element, as (start, end) in microseconds."""
        if type(self).assign is WindowFn.assign:
            raise NotImplementedError(
                f"{type(self).__name__}: a WindowFn must define its windows; override windows_of(time, key) "
                "to return (start, end) pairs of microseconds"
            )
        _, start, end = self.assign(np.array([time], np.int64), [key])
        return zip(start.tolist(), end.tolist(), strict=True)

    def assign(self, times: Int64Array, keys: Sequence[object] | None = None) -> Assigned:
        """Returns the windows of many elements at once; `keys` is needed only if `keyed` is true."""
        if keys is None:
            if self.keyed:
                raise TypeError(f"{type(self).__name__}: windows depend on the key; give the elements' keys")
            keys = [None] * len(times)
        rows = [
            (position, *self._checked(time, window))
            for position, (time, key) in enumerate(zip(times.tolist(), keys, strict=True))
            for window in self.windows_of(time, key)
        ]
        return Assigned(*np.array(rows, np.int64).reshape(-1, 3).T)

    def merge(self, windows: Sequence[Window]) -> list[list[int]]:
        """Groups the windows of a key that become one: lists of positions in `windows`. For merging windows."""
        start, end = np.array(windows, np.int64).reshape(-1, 2).T
        label, merged_start, _ = merge_overlapping(np.zeros(len(windows), np.int64), start, end)
        groups: list[list[int]] = [[] for _ in merged_start]
        for position, number in enumerate(label.tolist()):
            groups[number].append(position)
        return groups

    def _checked(self, time: int, window: object) -> tuple[int, int]:
        match window:
            case (int() | np.integer() as start, int() | np.integer() as end) if start < end:
                return int(start), int(end)
        raise ValueError(
            f"{type(self).__name__}.windows_of({time}) must return pairs (start, end) of int microseconds with "
            f"start < end, got {window!r}; times are microseconds since the epoch, not seconds"
        )

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(type(self))  # attributes of a custom function may not be hashable


# Constructors accept what `duration` accepts, where an int means seconds; the fields are in microseconds. Fields
# are init=False so that dataclasses.replace refuses, instead of reading microseconds as seconds.


@dataclass(frozen=True)
class GlobalWindows(WindowFn):
    """Assigns all elements to one window, which is all of time.

    >>> GlobalWindows().assign(np.array([3, 4])).index.tolist()
    [0, 1]
    """

    def assign(self, times: Int64Array, keys: Sequence[object] | None = None) -> Assigned:
        ends = (np.full(len(times), end, np.int64) for end in GLOBAL_WINDOW)
        return Assigned(np.arange(len(times)), *ends)


@dataclass(frozen=True, init=False, repr=False)
class FixedWindows(WindowFn):
    """Assigns elements to windows of one size, one after the other, aligned to the epoch plus `offset`.

    >>> FixedWindows("1 minute").assign(np.array([59_999_999, 60_000_000])).start.tolist()
    [0, 60000000]
    >>> FixedWindows(3600, offset="15 min")
    FixedWindows('1 h', offset='15 min')
    """

    size: int = field(init=False)
    offset: int = field(init=False)

    def __init__(self, size: DurationLike, offset: DurationLike = 0) -> None:
        object.__setattr__(self, "size", _positive("FixedWindows", "size", size))
        object.__setattr__(self, "offset", _offset("FixedWindows", "size", self.size, offset))

    def assign(self, times: Int64Array, keys: Sequence[object] | None = None) -> Assigned:
        start = times - (times - self.offset) % self.size
        return Assigned(np.arange(len(times)), start, start + self.size)

    def __repr__(self) -> str:
        return f"FixedWindows({format_duration(self.size)!r}{_offset_repr(self.offset)})"


@dataclass(frozen=True, init=False, repr=False)
class SlidingWindows(WindowFn):
    """Assigns elements to overlapping windows: one of `size` starts every `period`, and an element is in several.

    If the period is longer than the size, elements between two windows are dropped: this samples.

    >>> SlidingWindows(10, period=5).assign(np.array([7_000_000])).start.tolist()
    [0, 5000000]
    """

    size: int = field(init=False)
    period: int = field(init=False)
    offset: int = field(init=False)

    def __init__(self, size: DurationLike, period: DurationLike, offset: DurationLike = 0) -> None:
        object.__setattr__(self, "size", _positive("SlidingWindows", "size", size))
        object.__setattr__(self, "period", _positive("SlidingWindows", "period", period))
        object.__setattr__(self, "offset", _offset("SlidingWindows", "period", self.period, offset))

    def assign(self, times: Int64Array, keys: Sequence[object] | None = None) -> Assigned:
        since_last_start = (times - self.offset) % self.period
        counts = (self.size + self.period - 1 - since_last_start) // self.period
        first = times - since_last_start - (counts - 1) * self.period
        index = np.repeat(np.arange(len(times)), counts)
        nth = np.arange(len(index)) - np.repeat(np.cumsum(counts) - counts, counts)
        start = first[index] + nth * self.period
        return Assigned(index, start, start + self.size)

    def slices(self) -> FixedWindows:
        """Returns the fixed windows that every sliding window is a number of: all elements of one share their windows.

        >>> SlidingWindows(10, period=4, offset=3).slices()
        FixedWindows('2 s', offset='1 s')
        """
        size = gcd(self.size, self.period)
        return FixedWindows(f"{size} us", offset=f"{self.offset % size} us")

    def __repr__(self) -> str:
        size, period = format_duration(self.size), format_duration(self.period)
        return f"SlidingWindows({size!r}, {period!r}{_offset_repr(self.offset)})"


@dataclass(frozen=True, init=False, repr=False)
class Sessions(WindowFn):
    """Assigns elements to sessions: elements of a key that are less than `gap` apart share a window.

    Each element starts with its own window [time, time + gap); windows that overlap are merged, so a session ends one
    gap after its last element.

    >>> Sessions("30 min").merge([Window(0, 10), Window(10, 20), Window(5, 10)])
    [[0, 2], [1]]
    """

    merging: ClassVar[bool] = True
    gap: int = field(init=False)

    def __init__(self, gap: DurationLike) -> None:
        object.__setattr__(self, "gap", _positive("Sessions", "gap", gap))

    def assign(self, times: Int64Array, keys: Sequence[object] | None = None) -> Assigned:
        return Assigned(np.arange(len(times)), times.copy(), times + self.gap)

    def __repr__(self) -> str:
        return f"Sessions({format_duration(self.gap)!r})"


@dataclass(frozen=True, init=False, repr=False)
class CountWindows(WindowFn):
    """Assigns every `n` elements of a key, in order of arrival, to a window; bounds are ordinals, not times.

    >>> CountWindows(2).assign_ordinals(np.array([0, 1, 2])).start.tolist()
    [0, 0, 2]
    """

    keyed: ClassVar[bool] = True
    n: int = field(init=False)

    def __init__(self, n: int) -> None:
        if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
            raise ValueError(f"CountWindows: n must be a positive int, got {n!r}; give a number of elements")
        object.__setattr__(self, "n", as_int(n))

    def assign(self, times: Int64Array, keys: Sequence[object] | None = None) -> Assigned:
        raise TypeError(
            f"{self!r}: count windows do not depend on times; number the elements of each key from 0 and call "
            "assign_ordinals"
        )

    def assign_ordinals(self, ordinals: Int64Array) -> Assigned:
        """Returns the windows of elements from their ordinals: their numbers among those of their key, from 0."""
        start = ordinals - ordinals % self.n
        return Assigned(np.arange(len(ordinals)), start, start + self.n)

    def __repr__(self) -> str:
        return f"CountWindows({self.n})"


@dataclass(frozen=True, init=False, repr=False)
class UnalignedWindows(WindowFn):
    """Assigns elements to fixed windows with an offset per key, so that not all keys fire at once.

    The offset is a hash of the key: it is the same in every run, machine and process.

    >>> UnalignedWindows("1 hour")
    UnalignedWindows('1 h')
    """

    keyed: ClassVar[bool] = True
    size: int = field(init=False)

    def __init__(self, size: DurationLike) -> None:
        object.__setattr__(self, "size", _positive("UnalignedWindows", "size", size))

    def assign(self, times: Int64Array, keys: Sequence[object] | None = None) -> Assigned:
        if keys is None:
            raise TypeError("UnalignedWindows: windows depend on the key; give the elements' keys")
        keys = list(keys)  # an array would make new objects at each pass, and a NaN equals only itself
        offset_of = {key: self._offset_of(key) for key in set(keys)}
        offsets = np.fromiter(map(offset_of.__getitem__, keys), np.int64, len(keys))
        start = times - (times - offsets) % self.size
        return Assigned(np.arange(len(times)), start, start + self.size)

    def _offset_of(self, key: object) -> int:
        from headrace.model.keys import encode_key

        return int.from_bytes(blake2b(encode_key(key), digest_size=8).digest(), "big") % self.size

    def __repr__(self) -> str:
        return f"UnalignedWindows({format_duration(self.size)!r})"


CalendarUnit = Literal["day", "week", "month"]


@dataclass(frozen=True, repr=False)
class CalendarWindows(WindowFn):
    """Assigns elements to days, weeks (from Monday) or months of a time zone, however long they are.

    A window starts at the first instant of its first day in that zone: if the clocks skip midnight, when they skip it;
    if they show midnight twice, at the first one. A day that was skipped has no window.

    >>> berlin = CalendarWindows("day", timezone="Europe/Berlin")
    >>> (window,) = berlin.windows_of(instant("2026-03-29T12:00:00Z"), None)
    >>> print(Window(*window))  # the clocks went forward: 23 hours
    [2026-03-28T23:00:00Z, 2026-03-29T22:00:00Z)
    """

    unit: CalendarUnit
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        if self.unit not in get_args(CalendarUnit):
            raise ValueError(
                f"CalendarWindows: unit must be 'day', 'week' or 'month', got {self.unit!r}; "
                "for windows of a fixed length use FixedWindows"
            )
        try:
            ZoneInfo(self.timezone)
        except (LookupError, ValueError, OSError, TypeError, AttributeError) as error:
            raise ValueError(
                f"CalendarWindows: there is no time zone {self.timezone!r}; give an IANA name such as 'Europe/Berlin'"
            ) from error

    def assign(self, times: Int64Array, keys: Sequence[object] | None = None) -> Assigned:
        index = np.arange(len(times))
        if not len(times):
            return Assigned(index, times.copy(), times.copy())
        boundaries = self._boundaries(np.unique(times // DAY))
        following = np.searchsorted(boundaries, times, side="right")
        return Assigned(index, boundaries[following - 1], boundaries[following])

    def __repr__(self) -> str:
        return f"CalendarWindows({self.unit!r}, timezone={self.timezone!r})"

    def _boundaries(self, days: Int64Array) -> Int64Array:
        """Returns starts of windows, at least on either side of every instant of these UTC days (ascending)."""
        if days[0] < _FIRST_DAY or days[-1] > _LAST_DAY:
            outside = int(days[0] if days[0] < _FIRST_DAY else days[-1])
            raise ValueError(
                f"CalendarWindows: the calendar has the years 2 to 9998, got a time near "
                f"{format_instant(outside * DAY)}; give elements a timestamp first"
            )
        # No zone is a whole day away from UTC, so a UTC day meets its own date and its neighbours only.
        dates = np.unique(np.concatenate([days - 1, days, days + 1]))
        zone = ZoneInfo(self.timezone)
        starts = np.unique(np.concatenate(_unit_around(dates, self.unit))).astype("datetime64[D]")
        return np.unique([_first_second(day, zone) for day in starts.tolist()]) * SECOND


_FIRST_DAY = instant("0002-01-01") // DAY
_LAST_DAY = instant("9998-12-31") // DAY


def _unit_around(days: Int64Array, unit: CalendarUnit) -> tuple[Int64Array, Int64Array]:
    """Returns the first days of the units that these days are in, and of the next ones; days since the epoch."""
    if unit == "day":
        return days, days + 1
    if unit == "week":
        monday = days - (days + 3) % 7  # the epoch was a Thursday
        return monday, monday + 7
    month = days.astype("datetime64[D]").astype("datetime64[M]")
    first, following = (m.astype("datetime64[D]").astype(np.int64) for m in (month, month + 1))
    return first, following


def _first_second(day: date, zone: ZoneInfo) -> int:
    """Returns the first second since the epoch at which the clocks of a zone show this day or a later one."""
    midnight = datetime(day.year, day.month, day.day, tzinfo=zone)
    first, second = (int(midnight.replace(fold=fold).timestamp()) for fold in (0, 1))
    if first <= second:  # the same, or midnight comes twice
        return first
    # The clocks skip midnight somewhere between the two readings, not always exactly from midnight on.
    local = midnight.replace(tzinfo=None)
    skipping = range(second, first)
    return second + bisect_left(skipping, local, key=lambda at: datetime.fromtimestamp(at, zone).replace(tzinfo=None))


def merge_overlapping(
    group: Int64Array, start: Int64Array, end: Int64Array
) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Merges the overlapping windows of each group (a code per key); windows that only touch are not merged.

    Returns the number of the merged window of each row, and the merged windows' starts and ends, ordered by group and
    start.

    >>> label, start, end = merge_overlapping(*np.array([[7, 7, 7, 8], [20, 0, 5, 0], [30, 10, 15, 10]]))
    >>> label.tolist(), start.tolist(), end.tolist()
    ([1, 0, 0, 2], [0, 20, 0], [15, 30, 10])
    """
    n = len(group)
    codes, dense = np.unique(group, return_inverse=True)
    order = _order_within(dense, start)
    starts, ends = start[order], end[_order_within(dense, end)]
    # With starts and ends each sorted within their group, row i opens a new merged window exactly if the i
    # windows that began before it have all ended: if the i-th smallest end is not after its start. Then the
    # largest end of a merged window is the one in its last row. This needs no running maximum, whose restart
    # at every group would cost an offset that overflows.
    opens = np.empty(n, bool)
    opens[:1] = True
    opens[1:] = starts[1:] >= ends[:-1]
    rows_per_group = np.bincount(dense, minlength=len(codes))
    opens[np.cumsum(rows_per_group)[:-1]] = True
    label = np.empty(n, np.int64)
    label[order] = np.cumsum(opens) - 1
    first = np.flatnonzero(opens)
    last = np.append(first[1:], n)[: len(first)] - 1
    return label, starts[first], ends[last]


def _order_within(group: Int64Array, values: Int64Array) -> Int64Array:
    """Computes np.lexsort((values, group)) for dense groups, several times faster: it sorts single ints only."""
    by_value: Int64Array = np.argsort(values)
    n = len(values)
    rank_within = np.sort(group[by_value] * n + np.arange(n)) % max(n, 1)
    order: Int64Array = by_value[rank_within]
    return order


def _positive(owner: str, name: str, value: DurationLike) -> int:
    us = duration(value)
    if us <= 0:
        raise ValueError(
            f"{owner}: {name} must be positive, got {format_duration(us)}; give a duration such as '1 minute'"
        )
    return us


def _offset(owner: str, name: str, period: int, value: DurationLike) -> int:
    us = duration(value)
    if not 0 <= us < period:
        raise ValueError(
            f"{owner}: offset must be at least 0 and less than the {name}, got {format_duration(us)}; the windows "
            f"repeat every {format_duration(period)}, so give {format_duration(us % period)!r}"
        )
    return us


def _offset_repr(offset: int) -> str:
    return f", offset={format_duration(offset)!r}" if offset else ""
