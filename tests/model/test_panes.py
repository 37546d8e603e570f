"""Tests pane information and the windowing of a collection."""

import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields, replace
from typing import Any

import pytest

from headrace.model.panes import GLOBAL, NO_PANE, ONLY_PANE, Pane, PaneInfo, Windowing
from headrace.model.times import DAY
from headrace.model.triggers import AfterCount, AfterWatermark, DefaultTrigger, Repeatedly
from headrace.model.windows import FixedWindows, GlobalWindows, Sessions, Window, WindowFn


def test_the_panes_of_elements_that_have_no_others() -> None:
    assert PaneInfo("unknown", 0, 0, True, True) == NO_PANE
    assert PaneInfo("on_time", 0, 0, True, True) == ONLY_PANE
    assert hash(ONLY_PANE) == hash(PaneInfo("on_time", 0, 0, True, True))


def test_a_pane_has_the_fields_scripted_tests_rely_on() -> None:
    names = "key window values timestamp timing index on_time_index is_first is_last retraction"
    assert [field.name for field in fields(Pane)] == names.split()
    pane = Pane("k", Window(0, 10), [1, 2], 9.999999, "early", 0, -1, True, False)
    assert pane == Pane("k", (0, 10), [1, 2], 9.999999, "early", 0, -1, True, False, retraction=False)
    with pytest.raises(FrozenInstanceError):
        pane.index = 1  # type: ignore[misc]


def test_the_default_windowing() -> None:
    windowing = Windowing(FixedWindows(10))
    assert windowing.trigger == DefaultTrigger()
    assert windowing.accumulation == "discarding"
    assert windowing.allowed_lateness == 0
    assert windowing.timestamp_combiner == "end_of_window"
    assert windowing.closing == "non_empty"
    assert not windowing.is_global


def test_the_global_windowing() -> None:
    assert GLOBAL.is_global
    assert Windowing(GlobalWindows()) == GLOBAL
    assert Windowing(GlobalWindows(), Repeatedly(AfterCount(1))).is_global


def test_windowings_are_values_that_read_as_they_are_written() -> None:
    full = Windowing(
        Sessions("10 min"),
        trigger=AfterWatermark(late=AfterCount(1)),
        accumulation="retracting",
        allowed_lateness="2 days",
        timestamp_combiner="latest",
        closing="always",
    )
    assert full.allowed_lateness == 2 * DAY
    assert repr(full) == (
        "Windowing(Sessions('10 min'), trigger=AfterWatermark(late=AfterCount(1)), "
        "accumulation='retracting', allowed_lateness='2 d', timestamp_combiner='latest', closing='always')"
    )
    assert eval(repr(full)) == full == pickle.loads(pickle.dumps(full)) != GLOBAL
    assert hash(eval(repr(full))) == hash(full)
    assert repr(GLOBAL) == "Windowing(GlobalWindows())"


def test_replace_refuses_to_read_microseconds_as_seconds() -> None:
    windowing = Windowing(FixedWindows(10), allowed_lateness="1 h")
    with pytest.raises((TypeError, ValueError)):
        replace(windowing, closing="always")
    with pytest.raises((TypeError, ValueError)):
        replace(windowing)


def test_a_custom_window_function_will_do() -> None:
    class OneWindow(WindowFn):
        pass

    assert Windowing(OneWindow()).window == OneWindow()


untyped: Any = Windowing  # what a type checker would refuse must be refused at run time too


@pytest.mark.parametrize(
    ("make", "error", "reason"),
    [
        (
            lambda: untyped("1 min"),
            TypeError,
            r"window must be a WindowFn, got '1 min'; write .*FixedWindows",
        ),
        (lambda: untyped(GlobalWindows), TypeError, r"window must be .* write GlobalWindows\(\.\.\.\)"),
        (lambda: untyped(GlobalWindows(), trigger=3), TypeError, "trigger must be a Trigger, got 3"),
        (lambda: untyped(GlobalWindows(), accumulation="sum"), ValueError, "one of 'discarding', .*'sum'"),
        (
            lambda: untyped(GlobalWindows(), allowed_lateness=-1),
            ValueError,
            "must not be negative, got -1 s",
        ),
        (
            lambda: untyped(GlobalWindows(), timestamp_combiner="x"),
            ValueError,
            "'earliest', 'latest', got 'x'",
        ),
        (lambda: untyped(GlobalWindows(), closing=True), ValueError, "'always', 'non_empty', got True"),
    ],
)
def test_windowing_refuses(make: Callable[[], Any], error: type[Exception], reason: str) -> None:
    with pytest.raises(error, match=f"Windowing: .*{reason}"):
        make()
