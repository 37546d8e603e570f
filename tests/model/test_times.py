"""Tests durations and instants: every spelling that people use, and errors with a reason."""

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.times import (
    DAY,
    MAX_TIME,
    MIN_TIME,
    SECOND,
    duration,
    format_duration,
    format_instant,
    instant,
)

MINUTE, HOUR = 60 * SECOND, 3_600 * SECOND


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("90 seconds", 90 * SECOND),
        ("1s", SECOND),
        ("1S", SECOND),
        ("5 sec", 5 * SECOND),
        ("5 secs", 5 * SECOND),
        ("1m", MINUTE),
        ("1 min", MINUTE),
        ("2 mins", 2 * MINUTE),
        ("1 minute", MINUTE),
        ("10 Minutes", 10 * MINUTE),
        ("1h", HOUR),
        ("1H", HOUR),
        ("1 hr", HOUR),
        ("2 hrs", 2 * HOUR),
        ("1 hour 30 min", 90 * MINUTE),
        ("1h30m", 90 * MINUTE),
        ("1.5 hours", 90 * MINUTE),
        ("1:30:00", 90 * MINUTE),
        ("PT1H30M", 90 * MINUTE),
        ("PT1M", MINUTE),
        ("P1DT1H", DAY + HOUR),
        ("P1W", 7 * DAY),
        ("-PT1H", -HOUR),
        ("1 d", DAY),
        ("2 days", 2 * DAY),
        ("1 week", 7 * DAY),
        ("2 Weeks", 14 * DAY),
        ("1w", 7 * DAY),
        ("1 week 1 day", 8 * DAY),
        ("250ms", 250_000),
        ("3 milliseconds", 3_000),
        ("7 us", 7),
        ("7 µs", 7),
        ("-1 h 30 min", -90 * MINUTE),
        (" 10 s ", 10 * SECOND),
        ("600 ns", 1),
        (timedelta(hours=1, microseconds=1), HOUR + 1),
        (timedelta(microseconds=-1), -1),
        (pd.Timedelta("1.6us"), 2),
        (np.timedelta64(5, "s"), 5 * SECOND),
        (60, MINUTE),
        (0, 0),
        (0.25, 250_000),
        (0.1 + 0.2, 300_000),
        (1e-7, 0),
        (Decimal("1.0000016"), 1_000_002),
        (np.int32(3), 3 * SECOND),
        (np.float32(0.5), 500_000),
    ],
)
def test_duration_reads(value: Any, expected: int) -> None:
    assert duration(value) == expected
    assert type(duration(value)) is int


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("1 month", "no fixed length.*CalendarWindows"),
        ("2 months", "no fixed length"),
        ("1M", "no fixed length"),
        ("1 day 1 mo", "no fixed length"),
        ("3 Years", "no fixed length"),
        ("1y", "no fixed length"),
        ("P1M", "no fixed length"),
        ("P1Y2M", "no fixed length"),
        ("P1MT5M", "no fixed length"),
        ("10", "every number needs a unit.*'10'"),
        ("-1.5", "every number needs a unit"),
        ("10 1h", "every number needs a unit"),
        ("1.5.2h", "every number needs a unit"),
        ("PT1H30", "every number needs a unit"),
        ("1 h 30", "cannot read '1 h 30'"),
        ("banana", "cannot read 'banana'"),
        ("", "cannot read ''"),
        ("nan", "cannot read 'nan'"),
        ("200000 d", "cannot read '200000 d'"),
        (float("nan"), "finite number of seconds, got nan"),
        (float("inf"), "finite number of seconds, got inf"),
        (Decimal("NaN"), "finite number of seconds"),
        (10**13, "is out of range"),
        (np.timedelta64("NaT"), "cannot read"),
        (np.timedelta64(1, "M"), "cannot read"),
    ],
)
def test_duration_refuses_values(value: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        duration(value)


@pytest.mark.parametrize("value", [True, None, [1], object(), datetime(2026, 1, 1), np.bool_(True)])
def test_duration_refuses_types(value: Any) -> None:
    with pytest.raises(TypeError, match="duration: expected text, a timedelta or a number of seconds"):
        duration(value)


@pytest.mark.parametrize(
    "value",
    [
        "2026-01-01T12:00:00Z",
        "2026-01-01T12:00:00",
        "2026-01-01 12:00",
        "20260101T120000Z",
        "2026-01-01T13:00:00+01:00",
        " 2026-01-01T12:00:00Z\n",
        datetime(2026, 1, 1, 12),
        datetime(2026, 1, 1, 12, tzinfo=UTC),
        datetime(2026, 1, 1, 7, tzinfo=timezone(timedelta(hours=-5))),
        pd.Timestamp("2026-01-01 12:00"),
        pd.Timestamp("2026-01-01 13:00:00.000000999", tz="Europe/Berlin"),
        np.datetime64("2026-01-01T12:00"),
        np.datetime64("2026-01-01T12:00:00.000000999"),
        1_767_268_800,
        1_767_268_800.0,
        Decimal("1767268800"),
        np.int64(1_767_268_800),
    ],
)
def test_instant_reads(value: Any) -> None:
    assert instant(value) == 1_767_268_800_000_000
    assert type(instant(value)) is int


def test_instant_of_a_date_is_its_midnight_in_utc() -> None:
    assert instant(date(1970, 1, 2)) == instant("1970-01-02") == instant(np.datetime64("1970-01-02")) == DAY


def test_instant_before_the_epoch_is_exact() -> None:
    assert instant(datetime(1969, 12, 31, 23, 59, 59, 999_999)) == -1
    assert instant(pd.Timestamp("1969-12-31 23:59:59.999999")) == -1


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("yesterday", "ISO 8601 date and time, got 'yesterday'"),
        ("12:00", "ISO 8601 date and time"),
        ("", "ISO 8601 date and time"),
        (float("nan"), "finite number of seconds"),
        (float("-inf"), "finite number of seconds"),
        (pd.NaT, "NaT"),
        (np.datetime64("NaT"), "NaT"),
        (np.datetime64(2**61, "s"), "is out of range"),
        (10**13, "is out of range"),
    ],
)
def test_instant_refuses_values(value: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        instant(value)


@pytest.mark.parametrize("value", [True, None, timedelta(1), b"2026-01-01"])
def test_instant_refuses_types(value: Any) -> None:
    with pytest.raises(TypeError, match="instant: expected ISO 8601 text"):
        instant(value)


@given(st.datetimes())
def test_instant_is_exact_and_format_gives_it_back(moment: datetime) -> None:
    us = instant(moment)
    assert datetime(1970, 1, 1) + timedelta(microseconds=us) == moment
    assert instant(format_instant(us)) == us


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (1_767_268_800_000_000, "2026-01-01T12:00:00Z"),
        (1_250_000, "1970-01-01T00:00:01.25Z"),
        (-1, "1969-12-31T23:59:59.999999Z"),
        (MIN_TIME, "-inf"),
        (MIN_TIME - 1, "-inf"),
        (MAX_TIME, "+inf"),
        (MAX_TIME - 1, "148108-07-06T14:00:27.387903Z"),
        (np.int64(0), "1970-01-01T00:00:00Z"),
    ],
)
def test_format_instant(us: int, text: str) -> None:
    assert format_instant(us) == text


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (90 * MINUTE, "1 h 30 min"),
        (2 * DAY, "2 d"),
        (250_000, "250 ms"),
        (0, "0 s"),
        (-SECOND, "-1 s"),
        (np.int64(1_000_001), "1 s 1 us"),
    ],
)
def test_format_duration(us: int, text: str) -> None:
    assert format_duration(us) == text


@given(st.integers(-(10**15), 10**15))
def test_duration_reads_what_format_duration_writes(us: int) -> None:
    assert duration(format_duration(us)) == us


@given(st.integers(-(10**11), 10**11))
def test_numbers_and_timedeltas_agree(us: int) -> None:
    assert duration(timedelta(microseconds=us)) == duration(us / SECOND) == us


def test_instants_plus_durations_fit_int64() -> None:
    longest = MAX_TIME - 1
    assert MAX_TIME + longest == np.iinfo(np.int64).max
    assert MIN_TIME - longest > np.iinfo(np.int64).min
