"""Tests the declarations of state and timers: names, domains, and the aggregation of a CombiningState."""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace.model.algebra import CallableFn, MaxFn, SumFn


@pytest.mark.parametrize("kind", [hr.ValueState, hr.ListState, hr.SetState, hr.MapState, hr.CombiningState])
def test_states_have_names(kind: Any) -> None:
    assert kind("seen").name == "seen"
    assert kind("seen") == kind("seen") != kind("other")
    for bad in ("", "two words", "1st", "a-b"):
        with pytest.raises(ValueError, match="a state's name must be an identifier"):
            kind(bad)


def test_a_combining_state_means_an_aggregation() -> None:
    assert hr.CombiningState("total").fn == SumFn()
    assert hr.CombiningState("most", max).fn == MaxFn()
    assert isinstance(hr.CombiningState("both", lambda a, b: a + b).fn, CallableFn)
    with pytest.raises(TypeError, match="takes a CombineFn or a callable"):
        hr.CombiningState("bad", 3)  # type: ignore[arg-type]


def test_timers_are_in_one_of_two_times() -> None:
    assert hr.TimerSpec("due").domain == "event"
    assert hr.TimerSpec("due", "processing").domain == "processing"
    with pytest.raises(ValueError, match="'event' or 'processing', got 'wall'"):
        hr.TimerSpec("due", "wall")  # type: ignore[arg-type]


def test_on_timer_marks_the_method_and_leaves_it_as_it_is() -> None:
    due = hr.TimerSpec("due")

    def ring() -> str:
        return "rang"

    marked = hr.on_timer(due)(ring)
    assert marked is ring
    assert marked() == "rang"
    assert marked.fires is due  # type: ignore[attr-defined]
