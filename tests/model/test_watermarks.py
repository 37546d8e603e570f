"""Tests the declarations of watermark policies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.model.times import DAY, SECOND


def test_fields_are_in_microseconds() -> None:
    plain, bounded = hr.Monotonic(), hr.BoundedDisorder("10 seconds", max_skew=60, idle_after="1 minute")
    assert (plain.max_skew, plain.idle_after) == (DAY, None)
    assert (bounded.disorder, bounded.max_skew, bounded.idle_after) == (10 * SECOND, 60 * SECOND, 60 * SECOND)
    assert bounded == hr.BoundedDisorder(10, max_skew="1 minute", idle_after=60) != plain
    assert bounded != hr.BoundedDisorder(11, max_skew=60, idle_after=60)
    assert hr.Percentile(0.9) == hr.Percentile(0.9) != hr.Percentile(0.8)
    assert hr.Punctuated("a") == hr.Punctuated("a") != hr.Punctuated("b")
    assert hr.Percentile(1, idle_after=5).idle_after == hr.Punctuated("a", idle_after=5).idle_after == 5 * SECOND


def test_a_policy_of_ones_own_may_have_settings() -> None:
    class Cautious(hr.WatermarkPolicy):
        def __init__(self, slack: int, **common: Any) -> None:
            super().__init__(**common)
            self.slack = slack

        def low_watermark(self, times: Any) -> int:
            return int(times.max()) - self.slack

    source = hr.ReadJson("in", watermark=Cautious(7, idle_after="1 minute"))
    assert source.watermark.low_watermark(np.array([10, 20])) == 13
    assert repr(source.watermark) == "Cautious(idle_after='1 min')"


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (lambda: hr.BoundedDisorder("-1 s"), "disorder must not be negative, got -1 s"),
        (lambda: hr.Monotonic(max_skew=-1), "max_skew must not be negative"),
        (lambda: hr.Percentile(0), "q is the fraction of elements that shall not be late, .* got 0; give for"),
        (lambda: hr.Percentile(99), "above 0 and at most 1, got 99"),
        (lambda: hr.Percentile(True), "got True"),
        (lambda: hr.Punctuated(""), "takes the name of a column, got ''"),
        (
            lambda: hr.ReadText("in", watermark=hr.WatermarkPolicy()),
            "WatermarkPolicy does not compute a watermark",
        ),
        (lambda: hr.Monotonic(idle_after=0), "idle_after must be positive"),
    ],
)
def test_mistakes_are_refused(build: Callable[[], Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        build()
