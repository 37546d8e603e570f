"""Formats numbers and times for people. A missing one is a dash."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from headrace.engine.handle import HISTORY
from headrace.model.times import SECOND

NONE: Final = "–"
_ELEMENTS: Final = 100  # of a list that are shown
_LONGEST: Final = 1_000  # characters of a value that are shown


def count(n: int | float | None) -> str:
    """Formats a count with all of its digits.

    >>> count(1234567), count(0), count(None), count(0.5)
    ('1,234,567', '0', '–', '0.5')
    """
    if n is None:
        return NONE
    return f"{n:,}" if isinstance(n, int) else f"{n:,.6g}"


def some(n: int, noun: str) -> str:
    """Formats a count with its noun.

    >>> some(1, "topic"), some(1200, "topic"), some(2, "batch")
    ('1 topic', '1,200 topics', '2 batches')
    """
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}{'es' if noun.endswith('ch') else 's'}"


def rate(per_second: float | None) -> str:
    """Formats a rate.

    >>> rate(1975.4), rate(0.25), rate(0.0), rate(None)
    ('1,975/s', '0.25/s', '0/s', '–')
    """
    if per_second is None:
        return NONE
    return f"{per_second:,.0f}/s" if per_second >= 10 or per_second == 0 else f"{per_second:.2g}/s"


def seconds(length: float | None) -> str:
    """Formats a duration.

    >>> [seconds(length) for length in (0.0004, 0.41, 3.24, 75, 5400, 200_000, None)]
    ['0 ms', '410 ms', '3.2 s', '1 min 15 s', '1 h 30 min', '2 d 7 h', '–']
    """
    if length is None:
        return NONE
    if length < 0:
        return f"-{seconds(-length)}"
    if length < 1:
        return f"{length * 1000:.0f} ms"
    if length < 60:
        return f"{length:.1f} s"
    whole = round(length)
    for large, small, each in (("d", "h", 86_400), ("h", "min", 3_600), ("min", "s", 60)):
        if whole >= each:
            rest = whole % each // {"h": 3_600, "min": 60, "s": 1}[small]
            return f"{whole // each} {large} {rest} {small}" if rest else f"{whole // each} {large}"
    raise AssertionError(length)


def behind(lag: float | None, *, history: str = "history") -> str:
    """Formats how many seconds a watermark is behind the clock; if that is the age of old data, it is `history`.

    >>> behind(3.24), behind(27_475_200), behind(None)
    ('3.2 s', 'history', '–')
    """
    return history if lag is not None and lag * SECOND >= HISTORY else seconds(lag)


def time(text: str | None) -> str:
    """Formats a time of the API to the second, in UTC.

    >>> time("2026-01-31T12:00:05.25Z"), time(None)
    ('2026-01-31 12:00:05', '–')
    """
    return NONE if text is None else text.removesuffix("Z").partition(".")[0].replace("T", " ")


def offsets(by_partition: Mapping[Any, int] | None) -> str:
    """Formats offsets by partition.

    >>> offsets({"10": 7, "2": 1200}), offsets({})
    ('2: 1,200 · 10: 7', '–')
    """
    ordered = sorted((by_partition or {}).items(), key=lambda pair: int(pair[0]))
    return " · ".join(f"{partition}: {offset:,}" for partition, offset in ordered) or NONE


def value(item: Any) -> str:
    """Formats a key or an answer; of a long one, the beginning.

    >>> value(1200), value(0.123456789), value(None), value("<b>"), value([1.5, 2]), value(float("nan"))
    ('1,200', '0.123457', 'null', '<b>', '1.5, 2', 'NaN')
    >>> value(list(range(103)))[-16:], len(value("x" * 5_000))
    ('8, 99 and 3 more', 1000)
    """
    if item is None:
        return "null"
    if isinstance(item, bool):
        return str(item).lower()
    if isinstance(item, float) and not math.isfinite(item):
        return "NaN" if math.isnan(item) else "∞" if item > 0 else "-∞"
    if isinstance(item, int | float):
        return count(item)
    if isinstance(item, list | tuple):
        rest = f" and {len(item) - _ELEMENTS:,} more" if len(item) > _ELEMENTS else ""
        return _shortened(", ".join(map(value, item[:_ELEMENTS]))) + rest
    return _shortened(item if isinstance(item, str) else str(item))


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
