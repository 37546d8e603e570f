"""Tests the declarations of triggers: their fields, their reprs, what they refuse, and which of them finish."""

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model import triggers as declarations
from headrace.model.times import SECOND
from headrace.model.triggers import (
    AfterAll,
    AfterAny,
    AfterCount,
    AfterEach,
    AfterPercentile,
    AfterProcessingTime,
    AfterWatermark,
    Always,
    DefaultTrigger,
    Never,
    OrFinally,
    Repeatedly,
    Trigger,
    finishes,
)

leaves = st.one_of(
    st.builds(AfterCount, st.integers(1, 9)),
    st.builds(AfterProcessingTime, st.integers(0, 90)),
    st.builds(AfterPercentile, st.sampled_from([0.5, 0.99, 1.0])),
    st.builds(AfterWatermark),
    st.sampled_from([Always(), Never(), DefaultTrigger()]),
)


def nested(inner: st.SearchStrategy[Trigger]) -> st.SearchStrategy[Trigger]:
    several = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        st.builds(Repeatedly, inner),
        st.builds(OrFinally, inner, inner),
        st.builds(AfterWatermark, early=st.none() | inner, late=st.none() | inner),
        several.map(lambda triggers: AfterAny(*triggers)),
        several.map(lambda triggers: AfterAll(*triggers)),
        several.map(lambda triggers: AfterEach(*triggers)),
    )


triggers: st.SearchStrategy[Trigger] = st.recursive(leaves, nested, max_leaves=6)


@given(triggers)
def test_triggers_are_values_that_read_as_they_are_written(trigger: Trigger) -> None:
    again = eval(repr(trigger))
    assert again == trigger == pickle.loads(pickle.dumps(trigger))
    assert hash(again) == hash(trigger)
    assert again.children() == trigger.children()


@given(triggers)
def test_children_are_the_triggers_in_the_fields(trigger: Trigger) -> None:
    nested: list[Trigger] = []
    for value in vars(trigger).values():
        nested += [item for item in (value if isinstance(value, tuple) else [value]) if isinstance(item, Trigger)]
    assert list(trigger.children()) == nested


@given(triggers)
def test_nothing_in_repeatedly_finishes(trigger: Trigger) -> None:
    assert not finishes(Repeatedly(trigger))
    assert finishes(OrFinally(Repeatedly(trigger), until=AfterCount(1)))


@pytest.mark.parametrize(
    ("trigger", "expected"),
    [
        (AfterCount(1), True),
        (AfterProcessingTime("1 min"), True),
        (AfterPercentile(0.9), True),
        (AfterWatermark(), True),
        (AfterWatermark(early=Repeatedly(AfterCount(1))), True),
        (AfterWatermark(late=AfterCount(1)), False),
        (AfterWatermark(early=AfterCount(1), late=AfterCount(1)), False),
        (DefaultTrigger(), False),
        (Always(), False),
        (Never(), False),
        (Repeatedly(AfterWatermark()), False),
        (AfterAny(AfterCount(1), Always()), True),
        (AfterAny(DefaultTrigger(), Always()), False),
        (AfterAll(AfterCount(1), AfterWatermark()), True),
        (AfterAll(AfterCount(1), Always()), False),
        (AfterEach(AfterCount(1), AfterCount(2)), True),
        (AfterEach(AfterCount(1), Repeatedly(AfterCount(2))), False),
        (OrFinally(Always(), until=AfterWatermark()), True),
    ],
)
def test_finishes(trigger: Trigger, expected: bool) -> None:
    assert finishes(trigger) is expected


def test_triggers_that_hold_the_same_but_mean_another_thing_differ() -> None:
    inner = (AfterCount(1), AfterWatermark())
    assert len({AfterAny(*inner), AfterAll(*inner), AfterEach(*inner)}) == 3
    assert AfterAny(*inner) != AfterAny(*reversed(inner))
    assert AfterWatermark(early=AfterCount(1)) != AfterWatermark(late=AfterCount(1))


def test_fields_have_plain_types() -> None:
    assert AfterProcessingTime("10 seconds").delay == 10 * SECOND
    assert AfterProcessingTime().delay == 0
    assert type(AfterCount(np.int64(3)).n) is int  # type: ignore[arg-type]
    assert type(AfterPercentile(1).q) is float


untyped: Any = declarations  # what a type checker would refuse must be refused at run time too


@pytest.mark.parametrize(
    ("make", "error", "reason"),
    [
        (lambda: untyped.AfterCount(0), ValueError, "AfterCount: n must be a positive int, got 0"),
        (lambda: untyped.AfterCount(2.0), ValueError, "AfterCount: n must be a positive int, got 2.0"),
        (lambda: untyped.AfterCount(True), ValueError, "AfterCount: n must be a positive int, got True"),
        (lambda: untyped.AfterProcessingTime("-1 s"), ValueError, "delay must not be negative, got -1 s"),
        (lambda: untyped.AfterProcessingTime("soon"), ValueError, "cannot read 'soon'"),
        (lambda: untyped.AfterPercentile(99.9), ValueError, "0 < q <= 1, got 99.9; for 99.9 % write 0.999"),
        (lambda: untyped.AfterPercentile(0), ValueError, "0 < q <= 1, got 0; write 0.99 for 99 %"),
        (lambda: untyped.AfterPercentile(-5), ValueError, "got -5; write 0.99 for 99 %"),
        (lambda: untyped.AfterPercentile(float("nan")), ValueError, "got nan; write 0.99"),
        (lambda: untyped.AfterPercentile("0.5"), TypeError, "q must be a number, got '0.5'"),
        (lambda: untyped.AfterPercentile(True), TypeError, "q must be a number, got True"),
        (lambda: untyped.AfterAny(), ValueError, "AfterAny: needs at least one trigger"),
        (
            lambda: untyped.AfterEach(untyped.AfterCount(1), 5),
            TypeError,
            "AfterEach: argument 2 must be a trigger, got 5",
        ),
        (
            lambda: untyped.Repeatedly(AfterCount),
            TypeError,
            r"Repeatedly: trigger .* write AfterCount\(\.\.\.\)",
        ),
        (lambda: untyped.AfterWatermark(late=1), TypeError, "AfterWatermark: late must be a trigger, got 1"),
        (
            lambda: untyped.AfterWatermark(early="1 s"),
            TypeError,
            "AfterWatermark: early must be a trigger, got '1 s'",
        ),
        (
            lambda: untyped.OrFinally(Always(), None),
            TypeError,
            "OrFinally: until must be a trigger, got None",
        ),
    ],
)
def test_triggers_refuse(make: Callable[[], Any], error: type[Exception], reason: str) -> None:
    with pytest.raises(error, match=reason):
        make()
