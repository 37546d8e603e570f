"""Watermark policies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import headrace as hr
from headrace.model.times import DAY, SECOND


def test_policies_hold_microseconds() -> None:
    plain, bounded = hr.Monotonic(), hr.BoundedDisorder("10 seconds", max_skew=60, idle_after="1 minute")
    assert (plain.disorder, plain.max_skew, plain.idle_after) == (0, DAY, None)
    assert (bounded.disorder, bounded.max_skew, bounded.idle_after) == (10 * SECOND, 60 * SECOND, 60 * SECOND)
    assert bounded == hr.BoundedDisorder(10, max_skew="1 minute", idle_after=60) != plain


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (lambda: hr.BoundedDisorder("-1 s"), "disorder must not be negative, got -1 s"),
        (lambda: hr.Monotonic(max_skew=-1), "max_skew must not be negative"),
        (lambda: hr.Monotonic(idle_after=0), "idle_after must be longer than no time"),
    ],
)
def test_mistakes_are_told(build: Callable[[], Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        build()
