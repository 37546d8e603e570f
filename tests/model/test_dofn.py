"""Tests the declarations of DoFns: their marked parameters, states and timers, and the wrappers of outputs."""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace.model.dofn import Param, params_of
from headrace.model.state import StateSpec


class Everything(hr.DoFn):
    count = hr.ValueState("count")
    due = hr.TimerSpec("due")
    late = hr.TimerSpec("late", "processing")

    def process(
        self,
        element: Any,
        at: Any = hr.DoFn.TimestampParam,
        window: Any = hr.DoFn.WindowParam,
        pane: Any = hr.DoFn.PaneInfoParam,
        count: Any = hr.DoFn.StateParam(count),
        due: Any = hr.DoFn.TimerParam(due),
        plain: int = 3,
    ) -> None: ...

    @hr.on_timer(late)
    def ring(self, count: Any = hr.DoFn.StateParam(count)) -> None: ...


def test_parameters_are_found_by_their_marks() -> None:
    params = params_of(Everything().process)
    assert {name: param.kind for name, param in params.items()} == {
        "at": "timestamp",
        "window": "window",
        "pane": "pane",
        "count": "state",
        "due": "timer",
    }


def test_states_and_timers_are_found_once_each() -> None:
    specs = Everything().specs()
    assert sorted(spec.name for spec in specs) == ["count", "due", "late"]
    assert len([spec for spec in specs if isinstance(spec, StateSpec)]) == 1


@pytest.mark.parametrize("fn", [len, str.split, print, int, hr.DoFn().process, lambda x, y=1: x])
def test_functions_without_marks_ask_for_nothing(fn: Any) -> None:
    assert params_of(fn) == {}


def test_a_dofn_without_state_is_not_stateful() -> None:
    class Plain(hr.DoFn):
        def process(self, x: Any, at: Any = hr.DoFn.TimestampParam) -> None: ...

    assert Plain().specs() == ()
    assert not hr.ParDo(Plain()).stateful
    assert hr.ParDo(Everything()).stateful


def test_process_must_be_overridden() -> None:
    class Empty(hr.DoFn):
        pass

    with pytest.raises(NotImplementedError, match="Empty must override process"):
        Empty().process(1)


def test_the_life_cycle_does_nothing_by_itself() -> None:
    fn = hr.DoFn()
    assert [fn.setup(), fn.start_bundle(), fn.finish_bundle(), fn.teardown()] == [None] * 4  # type: ignore[func-returns-value]


@pytest.mark.parametrize("time", [1.5, "1970-01-01T00:00:01.5Z"])
def test_timestamped_values_read_times(time: Any) -> None:
    assert hr.TimestampedValue("x", time) == hr.TimestampedValue("x", 1.5)
    assert hr.TimestampedValue("x", time).timestamp == 1_500_000


def test_a_timestamped_value_needs_a_time() -> None:
    with pytest.raises(ValueError, match="instant"):
        hr.TimestampedValue("x", "soon")


def test_tagged_outputs_and_marks_are_values() -> None:
    assert hr.TaggedOutput("bad", 1) == hr.TaggedOutput("bad", 1) != hr.TaggedOutput("good", 1)
    assert Param("timestamp") == hr.DoFn.TimestampParam


def test_pardo_takes_objects_not_classes() -> None:
    with pytest.raises(hr.PipelineError, match=r"write ParDo\(Everything\(\)\)"):
        hr.ParDo(Everything)
    with pytest.raises(hr.PipelineError, match="takes a DoFn or a function, got 3"):
        hr.ParDo(3)  # type: ignore[arg-type]


def test_output_tags_must_differ() -> None:
    with pytest.raises(hr.PipelineError, match="must differ"):
        hr.ParDo(Everything()).with_outputs("a", "a")
    with pytest.raises(hr.PipelineError, match="must differ"):
        hr.ParDo(Everything()).with_outputs("a", main="a")


def test_states_may_expire() -> None:
    assert hr.ValueState("x").expires is None
    assert hr.CombiningState("x", sum, expires=1.5).expires == 1_500_000
    with pytest.raises(ValueError, match=r"the state 'x': expires must be positive, got '0 s'; give e.g."):
        hr.ListState("x", expires=0)
    with pytest.raises(ValueError, match="duration: every number needs a unit"):
        hr.MapState("x", expires="10")
