"""Tests window functions and the merging of sessions against slow and simple references."""

import pickle
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.model.times import DAY, MAX_TIME, MIN_TIME, SECOND, Int64Array, duration, instant
from headrace.model.windows import (
    GLOBAL_WINDOW,
    Assigned,
    CalendarUnit,
    CalendarWindows,
    CountWindows,
    FixedWindows,
    GlobalWindows,
    Sessions,
    SlidingWindows,
    UnalignedWindows,
    Window,
    WindowFn,
    merge_overlapping,
)

HOUR = 3_600 * SECOND
EPOCH = datetime(1970, 1, 1, tzinfo=ZoneInfo("UTC"))

any_time = st.integers(MIN_TIME, MAX_TIME)
small_time = st.integers(-1_000, 1_000)
times_of_any_size = st.one_of(st.lists(small_time), st.lists(any_time))


def array(values: Iterable[int]) -> Int64Array:
    return np.array(list(values), np.int64)


def micros(us: int) -> timedelta:
    return timedelta(microseconds=us)


def rows(assigned: Assigned) -> list[tuple[int, int, int]]:
    assert all(column.dtype == np.int64 for column in assigned)
    return list(zip(*(column.tolist() for column in assigned), strict=True))


# --- the interval -------------------------------------------------------------------------------------------


def test_a_window_reads_as_an_interval_and_equals_its_pair() -> None:
    window = Window(0, 60 * SECOND)
    assert str(window) == "[1970-01-01T00:00:00Z, 1970-01-01T00:01:00Z)"
    assert window.max_timestamp() == 60 * SECOND - 1
    assert window == (0, 60 * SECOND)
    assert str(GLOBAL_WINDOW) == "[-inf, +inf)"


# --- global, fixed, sliding ---------------------------------------------------------------------------------


@given(times_of_any_size)
def test_global_windows_contain_everything(times: list[int]) -> None:
    assert rows(GlobalWindows().assign(array(times))) == [(i, *GLOBAL_WINDOW) for i in range(len(times))]


@given(times_of_any_size, st.integers(1, 50), st.data())
def test_fixed_windows_contain_their_elements_and_tile_time(times: list[int], size: int, data: st.DataObject) -> None:
    offset = data.draw(st.integers(0, size - 1))
    fixed = FixedWindows(micros(size), micros(offset))
    assigned = rows(fixed.assign(array(times)))
    assert [index for index, _, _ in assigned] == list(range(len(times)))
    for (_, start, end), time in zip(assigned, times, strict=True):
        assert start <= time < end
        assert end - start == size
        assert (start - offset) % size == 0  # one grid for all: no gaps and no overlaps


@given(st.lists(small_time), st.integers(1, 30), st.integers(1, 30), st.data())
def test_sliding_windows_are_every_window_that_contains_the_element(
    times: list[int], size: int, period: int, data: st.DataObject
) -> None:
    offset = data.draw(st.integers(0, period - 1))
    sliding = SlidingWindows(micros(size), micros(period), micros(offset))
    expected = [
        (index, start, start + size)
        for index, time in enumerate(times)
        for start in range(time - size + 1, time + 1)
        if (start - offset) % period == 0
    ]
    assert rows(sliding.assign(array(times))) == expected


@given(st.lists(any_time, max_size=5), st.integers(1, 30), st.integers(1, 10**6))
def test_each_element_is_in_size_over_period_sliding_windows(times: list[int], ratio: int, period: int) -> None:
    assigned = SlidingWindows(micros(ratio * period), micros(period)).assign(array(times))
    assert np.bincount(assigned.index, minlength=len(times)).tolist() == [ratio] * len(times)


def test_a_period_longer_than_the_size_leaves_elements_out() -> None:
    sampling = SlidingWindows(1, period=10)
    assert rows(sampling.assign(array([0, 5 * SECOND, 10 * SECOND]))) == [
        (0, 0, SECOND),
        (2, 10 * SECOND, 11 * SECOND),
    ]


@pytest.mark.parametrize("longest", [MAX_TIME - 1, MAX_TIME // 2])
def test_the_longest_windows_do_not_overflow_at_the_ends_of_time(longest: int) -> None:
    seconds = longest // SECOND
    ends = array([MIN_TIME, -1, 0, MAX_TIME])
    for fn in (FixedWindows(seconds), SlidingWindows(seconds, seconds), Sessions(seconds)):
        _, start, end = fn.assign(ends)
        assert ((start <= ends) & (ends < end)).all(), fn


# --- per key: count and unaligned ---------------------------------------------------------------------------


@given(st.lists(st.integers(0, 10**6)), st.integers(1, 100))
def test_count_windows_are_every_n_ordinals(ordinals: list[int], n: int) -> None:
    expected = [(i, k // n * n, k // n * n + n) for i, k in enumerate(ordinals)]
    assert rows(CountWindows(n).assign_ordinals(array(ordinals))) == expected


def test_count_windows_cannot_come_from_times() -> None:
    with pytest.raises(TypeError, match=r"CountWindows\(3\): .* call assign_ordinals"):
        CountWindows(3).assign(array([1]))


@given(st.lists(st.tuples(any_time, st.sampled_from(["a", "b", 1, ("t", 2), None, float("nan")]))))
def test_unaligned_windows_tile_time_for_each_key(pairs: list[tuple[int, object]]) -> None:
    times, keys = [time for time, _ in pairs], [key for _, key in pairs]
    size = HOUR
    assigned = rows(UnalignedWindows("1 hour").assign(array(times), keys))
    offsets: dict[str, set[int]] = {}
    for (index, start, end), time in zip(assigned, times, strict=True):
        assert start <= time < end == start + size
        offsets.setdefault(repr(keys[index]), set()).add(start % size)
    assert all(len(starts) == 1 for starts in offsets.values())


def test_unaligned_windows_spread_keys_evenly_and_always_in_the_same_way() -> None:
    keys = [f"key {i}" for i in range(1_000)]
    times = np.zeros(len(keys), np.int64)
    start = UnalignedWindows("1 hour").assign(times, keys).start
    quarters = np.bincount(start % HOUR * 4 // HOUR, minlength=4)
    assert quarters.min() > 200
    assert (start == UnalignedWindows("1 hour").assign(times, tuple(keys)).start).all()


def test_unaligned_windows_need_keys() -> None:
    assert UnalignedWindows.keyed
    with pytest.raises(TypeError, match="give the elements' keys"):
        UnalignedWindows("1 h").assign(array([1]))


# --- calendar -----------------------------------------------------------------------------------------------

# Clocks that skip midnight, that skip a day, that stand a quarter hour off, and ordinary ones.
ZONES = ["America/Sao_Paulo", "Europe/Berlin", "Pacific/Apia", "Asia/Kathmandu", "UTC", "Pacific/Kiritimati"]


def local_unit(us: int, unit: CalendarUnit, zone: ZoneInfo) -> tuple[int, ...]:
    """Returns the calendar unit of a zone at an instant."""
    local = (EPOCH + timedelta(microseconds=us)).astimezone(zone)
    if unit == "week":
        return tuple(local.isocalendar())[:2]
    return (local.year, local.month, local.day) if unit == "day" else (local.year, local.month)


modern_time = st.integers(instant("1971-01-01"), instant("2037-01-01"))
near_a_change = st.sampled_from(
    [
        instant("2018-11-04T03:00:00Z"),  # São Paulo: 00:00 becomes 01:00
        instant("2018-02-18T02:00:00Z"),  # São Paulo: 24:00 becomes 23:00
        instant("2011-12-30T10:00:00Z"),  # Apia: the 29th is followed by the 31st
        instant("1985-12-31T18:30:00Z"),  # Kathmandu: +5:30 becomes +5:45 at midnight
        instant("2026-03-29T01:00:00Z"),  # Berlin: 02:00 becomes 03:00
        instant("2026-10-25T01:00:00Z"),  # Berlin: 03:00 becomes 02:00
    ]
).flatmap(lambda at: st.integers(at - 3 * DAY, at + 3 * DAY) | st.integers(at - 2, at + 2))


@given(
    st.lists(modern_time | near_a_change, min_size=1, max_size=10),
    st.sampled_from(ZONES),
    st.sampled_from(["day", "week", "month"]),
)
def test_calendar_windows_agree_with_a_wall_calendar(times: list[int], zone: str, unit: CalendarUnit) -> None:
    info = ZoneInfo(zone)
    for (_, start, end), time in zip(rows(CalendarWindows(unit, zone).assign(array(times))), times, strict=True):
        assert start <= time < end
        expected = local_unit(time, unit, info)
        # The calendar shows the same from the first instant to the last, and something else around them.
        assert local_unit(start, unit, info) == local_unit(end - 1, unit, info) == expected
        assert local_unit(start - 1, unit, info) != expected != local_unit(end, unit, info)


@given(
    st.lists(modern_time | near_a_change, min_size=1, max_size=5),
    st.sampled_from([*ZONES, "America/St_Johns"]),
    st.sampled_from(["day", "week", "month"]),
)
def test_calendar_windows_tile_time(times: list[int], zone: str, unit: CalendarUnit) -> None:
    calendar = CalendarWindows(unit, zone)
    _, start, end = calendar.assign(array(times))
    assert (calendar.assign(end).start == end).all()
    assert (calendar.assign(start - 1).end == start).all()
    assert (calendar.assign(end - 1).start == start).all()


@pytest.mark.parametrize(
    ("zone", "unit", "at", "start", "end"),
    [
        # 23 and 25 hours in Berlin
        ("Europe/Berlin", "day", "2026-03-29T12:00Z", "2026-03-28T23:00Z", "2026-03-29T22:00Z"),
        ("Europe/Berlin", "day", "2026-10-25T12:00Z", "2026-10-24T22:00Z", "2026-10-25T23:00Z"),
        ("Europe/Berlin", "month", "2026-03-15T12:00Z", "2026-02-28T23:00Z", "2026-03-31T22:00Z"),
        ("Europe/Berlin", "week", "2026-03-29T12:00Z", "2026-03-22T23:00Z", "2026-03-29T22:00Z"),
        # no midnight in São Paulo: the day begins at one
        ("America/Sao_Paulo", "day", "2018-11-04T12:00Z", "2018-11-04T03:00Z", "2018-11-05T02:00Z"),
        ("America/Sao_Paulo", "day", "2018-11-04T02:59Z", "2018-11-03T03:00Z", "2018-11-04T03:00Z"),
        # no 30 December 2011 in Apia
        ("Pacific/Apia", "day", "2011-12-30T09:59Z", "2011-12-29T10:00Z", "2011-12-30T10:00Z"),
        ("Pacific/Apia", "day", "2011-12-30T10:00Z", "2011-12-30T10:00Z", "2011-12-31T10:00Z"),
        ("Pacific/Apia", "month", "2011-12-20T00:00Z", "2011-12-01T10:00Z", "2011-12-31T10:00Z"),
        # 23:30 became 00:30 in Toronto: the day begins when the clocks jump, not half an hour later
        ("America/Toronto", "day", "1919-03-31T12:00Z", "1919-03-31T04:30Z", "1919-04-01T04:00Z"),
        # 00:01 became 23:01 in St. John's: midnight comes twice, and the first one counts
        ("America/St_Johns", "day", "2010-11-07T03:00Z", "2010-11-07T02:30Z", "2010-11-08T03:30Z"),
        ("UTC", "week", "1970-01-01T00:00Z", "1969-12-29T00:00Z", "1970-01-05T00:00Z"),
    ],
)
def test_calendar_windows_over_clock_changes(zone: str, unit: CalendarUnit, at: str, start: str, end: str) -> None:
    (window,) = CalendarWindows(unit, zone).windows_of(instant(at), None)
    assert str(Window(*window)) == str(Window(instant(start), instant(end)))


def test_calendar_windows_end_with_the_calendar() -> None:
    days = CalendarWindows("month", "Pacific/Kiritimati")
    first, last = instant("0002-01-01"), instant("9998-12-31T23:59:59")
    assert len(days.assign(array([first, last])).start) == 2
    for outside in (MIN_TIME, first - 1, last + SECOND, MAX_TIME):
        with pytest.raises(ValueError, match=r"years 2 to 9998, got a time near .*; give elements a timestamp"):
            days.assign(array([0, outside]))


def test_calendar_windows_refuse_unknown_units_and_zones() -> None:
    with pytest.raises(ValueError, match="unit must be 'day', 'week' or 'month', got 'hour'"):
        CalendarWindows("hour")  # type: ignore[arg-type]
    for name in ("Mars/Olympus", "", "Europe", "../etc", 3, None):
        with pytest.raises(ValueError, match=r"there is no time zone .* such as 'Europe/Berlin'"):
            CalendarWindows("day", name)  # type: ignore[arg-type]


# --- sessions and merging -----------------------------------------------------------------------------------


def naive_merge(
    intervals: list[tuple[int, int, int]],
) -> tuple[list[int], list[tuple[int, int, int]]]:
    """Merges intervals one at a time: returns the merged (group, start, end) in order, and the one of each interval."""
    merged: list[tuple[int, int, int]] = []
    for group, start, end in sorted(intervals):
        if merged and merged[-1][0] == group and start < merged[-1][2]:
            merged[-1] = (group, merged[-1][1], max(end, merged[-1][2]))
        else:
            merged.append((group, start, end))
    labels = [
        next(n for n, (g, s, e) in enumerate(merged) if g == group and s <= start and end <= e)
        for group, start, end in intervals
    ]
    return labels, merged


def intervals(time: st.SearchStrategy[int], length: int) -> st.SearchStrategy[list[tuple[int, int, int]]]:
    codes = st.sampled_from([-(2**63), -1, 0, 1, 2, 2**63 - 1])
    spans = st.tuples(codes, time, st.integers(1, length))
    return st.lists(spans.map(lambda row: (row[0], row[1], row[1] + row[2])))


@given(intervals(st.integers(0, 60), 12) | intervals(any_time, 2**62 - 1))
@example([(0, MIN_TIME, MIN_TIME + 1), (1, MAX_TIME, 2**63 - 1), (2, MIN_TIME, MAX_TIME)])
@example([(0, 0, 100), (0, 1, 2), (0, 50, 60), (0, 99, 101), (0, 101, 102)])
def test_merge_overlapping_is_the_naive_merge(rows: list[tuple[int, int, int]]) -> None:
    group, start, end = np.array(rows, np.int64).reshape(-1, 3).T
    label, merged_start, merged_end = merge_overlapping(group, start, end)
    assert label.dtype == merged_start.dtype == merged_end.dtype == np.int64
    expected_labels, expected = naive_merge(rows)
    assert label.tolist() == expected_labels
    assert list(zip(merged_start.tolist(), merged_end.tolist(), strict=True)) == [e[1:] for e in expected]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 10)).map(lambda w: Window(w[0], w[0] + w[1]))))
def test_merge_groups_the_positions_of_one_key(windows: list[Window]) -> None:
    labels, merged = naive_merge([(0, *window) for window in windows])
    expected = [[i for i, label in enumerate(labels) if label == n] for n in range(len(merged))]
    assert Sessions(1).merge(windows) == expected


@given(st.lists(small_time), st.integers(1, 50))
def test_sessions_start_as_one_gap_each(times: list[int], gap: int) -> None:
    sessions = Sessions(micros(gap))
    assert sessions.merging
    assert rows(sessions.assign(array(times))) == [(i, t, t + gap) for i, t in enumerate(times)]


def test_elements_exactly_a_gap_apart_are_two_sessions() -> None:
    _, start, end = Sessions(10).assign(array([0, 10 * SECOND, 19 * SECOND]))
    label, _, _ = merge_overlapping(np.zeros(3, np.int64), start, end)
    assert label.tolist() == [0, 1, 1]


# --- custom functions ---------------------------------------------------------------------------------------


class EvenAndOdd(WindowFn):
    """Assigns elements of odd times to no window, of even times to two, which are as wide as the key says."""

    def __init__(self, reach: int = 1) -> None:
        self.reach = reach

    def windows_of(self, time: int, key: object) -> Iterable[tuple[int, int]]:
        wide = self.reach + len(str(key or ""))
        if time % 2 == 0:
            yield time - wide, time + 1
            yield Window(time, time + wide)


class Keyed(EvenAndOdd):
    keyed = True


def test_a_custom_function_is_asked_once_for_each_element() -> None:
    assert rows(EvenAndOdd().assign(array([4, 5, 6]))) == [(0, 3, 5), (0, 4, 5), (2, 5, 7), (2, 6, 7)]
    assert rows(Keyed().assign(array([4]), ["abc"])) == [(0, 0, 5), (0, 4, 8)]
    assert rows(EvenAndOdd().assign(array([]))) == []
    with pytest.raises(TypeError, match="Keyed: windows depend on the key"):
        Keyed().assign(array([4]))


def test_a_custom_function_must_override_something() -> None:
    class Silent(WindowFn):
        pass

    with pytest.raises(NotImplementedError, match="Silent: a WindowFn must define its windows; override windows_of"):
        Silent().assign(array([1]))


@pytest.mark.parametrize("bad", [(1.5, 2.5), (3, 3), (4, 3), (1, 2, 3), 7, None, ("a", "b")])
def test_a_custom_function_must_return_intervals(bad: Any) -> None:
    class Wrong(WindowFn):
        def windows_of(self, time: int, key: object) -> Iterable[tuple[int, int]]:
            return [bad]

    with pytest.raises(ValueError, match=r"Wrong.windows_of\(9\) must return pairs .* got .*not seconds"):
        Wrong().assign(array([9]))


@given(st.integers(-1_000, 1_000))
def test_one_element_and_many_agree(time: int) -> None:
    for fn in (GlobalWindows(), FixedWindows(3), SlidingWindows(4, 2), Sessions(1), CalendarWindows("week")):
        _, start, end = fn.assign(array([time]))
        assert list(fn.windows_of(time, None)) == list(zip(start.tolist(), end.tolist(), strict=True))


# --- values -------------------------------------------------------------------------------------------------

SPELLED: list[tuple[Callable[[], WindowFn], str]] = [
    (lambda: GlobalWindows(), "GlobalWindows()"),
    (lambda: FixedWindows(60), "FixedWindows('1 min')"),
    (lambda: FixedWindows("1h", offset=900), "FixedWindows('1 h', offset='15 min')"),
    (lambda: SlidingWindows("1 hour", "5 min", 1), "SlidingWindows('1 h', '5 min', offset='1 s')"),
    (lambda: Sessions("30 min"), "Sessions('30 min')"),
    (lambda: CountWindows(100), "CountWindows(100)"),
    (lambda: UnalignedWindows("2 days"), "UnalignedWindows('2 d')"),
    (lambda: CalendarWindows("day"), "CalendarWindows('day', timezone='UTC')"),
]


@pytest.mark.parametrize(("make", "spelled"), SPELLED)
def test_window_functions_are_values(make: Callable[[], WindowFn], spelled: str) -> None:
    fn = make()
    assert repr(fn) == spelled
    assert eval(spelled) == fn == make() == pickle.loads(pickle.dumps(fn))
    assert hash(fn) == hash(make())
    assert [other() for other, _ in SPELLED].count(fn) == 1


def test_custom_functions_are_equal_by_type_and_attributes() -> None:
    assert EvenAndOdd(2) == EvenAndOdd(2) != EvenAndOdd(3)
    assert EvenAndOdd(2) != Keyed(2)
    assert hash(EvenAndOdd(2)) == hash(EvenAndOdd(2))


def test_fields_are_in_microseconds_so_replace_refuses_to_read_them_as_seconds() -> None:
    fixed = FixedWindows("1 min")
    assert (fixed.size, fixed.offset) == (duration("1 min"), 0)
    with pytest.raises((TypeError, ValueError)):
        replace(fixed, offset=1)
    with pytest.raises((TypeError, ValueError)):
        replace(fixed)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: FixedWindows(0), "FixedWindows: size must be positive, got 0 s; .* such as '1 minute'"),
        (lambda: FixedWindows("-1 h"), "FixedWindows: size must be positive, got -1 h"),
        (lambda: FixedWindows("1 min", 90), "offset must be .* less than the size, got 1 min 30 s; .*'30 s'"),
        (lambda: FixedWindows("1 d", "-5h"), "offset must be at least 0 .* got -5 h; .* give '19 h'"),
        (lambda: SlidingWindows(0, 1), "SlidingWindows: size must be positive"),
        (lambda: SlidingWindows(10, 0), "SlidingWindows: period must be positive, got 0 s"),
        (lambda: SlidingWindows(10, 5, 5), "offset must be .* less than the period, got 5 s; .* give '0 s'"),
        (lambda: Sessions(-1), "Sessions: gap must be positive, got -1 s"),
        (lambda: CountWindows(0), "CountWindows: n must be a positive int, got 0"),
        (lambda: CountWindows(1.5), "CountWindows: n must be a positive int, got 1.5"),  # type: ignore[arg-type]
        (lambda: CountWindows(True), "CountWindows: n must be a positive int, got True"),
        (lambda: UnalignedWindows("0s"), "UnalignedWindows: size must be positive"),
        (lambda: FixedWindows("1 month"), "no fixed length.*CalendarWindows"),
    ],
)
def test_window_functions_refuse(make: Callable[[], WindowFn], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        make()
