"""Trigger programs, a column at a time: what wakes them, when they are ready, what firing does, and what they say."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.engine.shard.clocks import Clocks
from headrace.engine.shard.compiledtriggers import CompiledTrigger
from headrace.engine.shard.triggernodes import Moment
from headrace.model.times import MAX_TIME
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
)

ALL = np.array([True])


class One:
    """One window that ends at 100, under a trigger."""

    def __init__(self, trigger: Trigger) -> None:
        self.program = CompiledTrigger(trigger)
        self.state = self.program.fresh(1)
        self.clocks = Clocks(0, 0)

    def step(self, arrived: int = 0, watermark: int = 0, now: int = 0, **percentiles: int) -> str:
        """What a step does: 'wakes' an alarm, makes 'ready', has 'finished'."""
        fractions = {int(name[1:]) / 100: time for name, time in percentiles.items()}
        after = self.clocks.moved(Clocks(watermark, now, fractions))
        moment = Moment(np.array([100]), np.array([arrived]), self.state, self.clocks, after)
        root = self.program.root
        crossed = root.crossed(moment)
        root.arrive(moment, moment.arrived > 0)
        woke = bool(root.wakes(moment)[0])
        assert crossed is not None and crossed[0] if woke and not arrived else True
        ready = bool(root.ready(moment)[0])
        finished = bool(root.fire(moment, ALL & (ready and (woke or arrived > 0)))[0])
        self.clocks = after
        return " ".join(word for word, true in (("wakes", woke), ("ready", ready), ("finished", finished)) if true)

    def why(self) -> str:
        moment = Moment(np.array([100]), np.array([0]), self.state, self.clocks, self.clocks)
        return self.program.root.why(moment)


def test_a_count_is_ready_with_the_bundle_that_completes_it() -> None:
    one = One(AfterCount(3))
    assert [one.step(arrived=2), one.step(arrived=4)] == ["", "ready finished"]


def test_repeatedly_starts_the_count_afresh() -> None:
    one = One(Repeatedly(AfterCount(2)))
    assert [one.step(arrived=n) for n in (1, 2, 1, 1)] == ["", "ready", "", "ready"]


def test_processing_time_counts_from_the_first_element_since_the_reset() -> None:
    one = One(Repeatedly(AfterProcessingTime("10 us")))
    assert one.step(arrived=1, now=5) == ""
    assert one.step(arrived=1, now=14) == ""
    assert one.step(now=15) == "wakes ready"
    assert one.step(now=90) == ""
    assert one.step(arrived=1, now=95) == ""
    assert one.step(now=105) == "wakes ready"


def test_the_default_trigger_wakes_at_the_end_and_is_ready_from_then_on() -> None:
    one = One(DefaultTrigger())
    assert [one.step(arrived=1), one.step(watermark=99), one.step(watermark=100)] == ["", "", "wakes ready"]
    assert [one.step(watermark=150), one.step(arrived=1)] == ["ready", "ready"]  # ready, but not awake: not judged


def test_after_watermark_goes_from_early_to_on_time_to_late() -> None:
    one = One(AfterWatermark(early=AfterCount(2), late=AfterCount(3)))
    assert [one.step(arrived=1), one.step(arrived=1), one.step(arrived=1)] == ["", "ready", ""]
    assert one.step(watermark=100) == "wakes ready"
    assert [one.step(arrived=2), one.step(arrived=1), one.step(arrived=1)] == ["", "ready", ""]


def test_after_watermark_without_late_finishes_on_time() -> None:
    one = One(AfterWatermark(early=AfterCount(1)))
    assert [one.step(arrived=1), one.step(watermark=100)] == ["ready", "wakes ready finished"]


def test_percentiles_run_ahead_of_the_watermark() -> None:
    one = One(AfterPercentile(0.5))
    assert [one.step(arrived=1, p50=99), one.step(p50=100)] == ["", "wakes ready finished"]
    assert One(AfterPercentile(0.9)).step(arrived=1, p50=100) == ""
    assert One(AfterPercentile(1)).step(watermark=100) == "wakes ready finished"
    assert CompiledTrigger(AfterAny(AfterPercentile(0.9), AfterPercentile(0.5))).fractions == {0.5, 0.9}


def test_any_finishes_with_the_first_that_does() -> None:
    one = One(AfterAny(Repeatedly(AfterCount(2)), AfterCount(3)))
    assert [one.step(arrived=2), one.step(arrived=1)] == ["ready", "ready finished"]


def test_all_waits_for_each_and_those_that_were_satisfied_stay_so() -> None:
    one = One(AfterAll(AfterCount(1), Repeatedly(AfterCount(2))))
    assert [one.step(arrived=1), one.step(arrived=1), one.step(arrived=1), one.step(arrived=1)] == [
        "",
        "ready",
        "",
        "ready",
    ]
    one = One(AfterAll(AfterCount(2), AfterWatermark()))
    assert [one.step(arrived=1, watermark=100), one.step(arrived=1)] == ["wakes", "ready finished"]


def test_each_counts_for_the_current_one_only() -> None:
    one = One(AfterEach(AfterCount(2), AfterCount(3)))
    assert [one.step(arrived=2), one.step(arrived=2), one.step(arrived=2)] == ["ready", "", "ready finished"]


def test_or_finally_finishes_whenever_its_end_fires() -> None:
    one = One(OrFinally(Repeatedly(AfterCount(2)), until=Repeatedly(AfterCount(5))))
    assert [one.step(arrived=2), one.step(arrived=2), one.step(arrived=1)] == ["ready", "ready", "ready finished"]
    assert One(OrFinally(AfterCount(1), until=Never())).step(arrived=1) == "ready finished"


def test_always_has_no_alarm_and_never_is_never_ready() -> None:
    assert [One(Always()).step(arrived=1), One(Always()).step(watermark=100)] == ["ready", "ready"]
    assert [One(Never()).step(arrived=1), One(Never()).step(watermark=100)] == ["", ""]


def test_a_sequence_inside_a_repetition_begins_again() -> None:
    one = One(Repeatedly(AfterEach(AfterCount(1), AfterCount(2))))
    assert [one.step(arrived=1) for _ in range(6)] == ["ready", "", "ready"] * 2


def merged(trigger: Trigger, *windows: tuple[int, list[list[int]]], watermark: int) -> list[list[int]]:
    """The trigger state of windows that end at a time and are made of parts with these states."""
    program = CompiledTrigger(trigger)
    parts = np.array([part for _, parts in windows for part in parts]).T
    starts = np.cumsum([0, *(len(parts) for _, parts in windows)])[:-1]
    state = program.merged(parts, starts, np.array([end for end, _ in windows]), Clocks(watermark))
    return state.T.tolist()  # type: ignore[no-any-return]


def test_nodes_keep_their_own_columns_and_merge_them_in_their_own_way() -> None:
    trigger = AfterAny(AfterCount(5), AfterProcessingTime(1), AfterEach(AfterCount(2), AfterCount(3)))
    assert CompiledTrigger(trigger).fresh(1).T.tolist() == [[0, MAX_TIME, 0, 0, 0]]
    windows = (100, [[1, MAX_TIME, 2, 1, 1], [2, 30, 1, 0, 0]]), (100, [[4, 20, 1, 0, 0]])
    assert merged(trigger, *windows, watermark=50) == [[3, 30, 3, 1, 1], [4, 20, 1, 0, 0]]


def test_after_watermark_is_active_again_in_a_window_that_ends_beyond_the_watermark() -> None:
    trigger = AfterWatermark(early=AfterCount(9), late=AfterCount(9))
    early, late, passed = [4, 0, 0], [0, 3, 1], [0, 2, 1]
    # of two that had been on time, of one that had and one that had not, and of one that grew
    parts = [late, passed], [early, late], [late]
    beyond = [(60, each) for each in parts]
    assert merged(trigger, *beyond, watermark=50) == [[0, 0, 0], [4, 0, 0], [0, 0, 0]]
    behind = [(50, each) for each in parts]
    assert merged(trigger, *behind, watermark=50) == [[0, 5, 1], [4, 0, 0], [0, 3, 1]]


def test_a_sequence_goes_back_to_what_waits_for_the_watermark_again() -> None:
    trigger = AfterEach(AfterCount(1), AfterWatermark(), AfterCount(9))
    assert merged(trigger, (60, [[1, 4, 2]]), (50, [[1, 4, 2]]), watermark=50) == [[1, 0, 1], [1, 4, 2]]
    assert merged(trigger, (60, [[1, 4, 2], [1, 0, 1]]), watermark=50) == [[2, 0, 1]]
    both = AfterEach(AfterAll(AfterCount(2), AfterWatermark()), AfterCount(9))
    assert merged(both, (60, [[2, 5, 1]]), (50, [[2, 5, 1]]), watermark=50) == [[2, 0, 0], [2, 5, 1]]


def test_windows_are_judged_each_for_itself() -> None:
    program = CompiledTrigger(AfterWatermark(early=AfterCount(2)))
    moment = Moment(
        end=np.array([10, 20, 30, 40]),
        arrived=np.array([0, 1, 2, 0]),
        state=program.fresh(4),
        before=Clocks(5),
        after=Clocks(15),
    )
    program.root.arrive(moment, moment.arrived > 0)
    assert program.root.wakes(moment).tolist() == [True, False, False, False]
    assert program.root.ready(moment).tolist() == [True, False, True, False]
    assert program.root.fire(moment, program.root.ready(moment)).tolist() == [True, False, False, False]


@pytest.mark.parametrize(
    ("trigger", "reason"),
    [
        (AfterCount(3), "needs 2 more elements"),
        (AfterCount(2), "needs 1 more element"),
        (
            DefaultTrigger(),
            "waits for the watermark to pass 1970-01-01T00:00:00.0001Z, which is at 1970-01-01T00:00:00Z",
        ),
        (
            AfterPercentile(0.9),
            "waits for the watermark of 0.9 of the input to pass 1970-01-01T00:00:00.0001Z, "
            "which is at 1970-01-01T00:00:00Z",
        ),
        (
            AfterProcessingTime(10),
            "waits for processing time to reach 1970-01-01T00:00:10Z, which is at 1970-01-01T00:00:00Z",
        ),
        (AfterEach(AfterCount(1), AfterCount(7)), "needs 7 more elements"),
        (AfterAny(AfterCount(2), AfterCount(4)), "needs 1 more element or needs 3 more elements"),
        (AfterAll(AfterCount(1), AfterCount(4)), "needs 3 more elements"),
        (Repeatedly(AfterAll(AfterCount(2), AfterCount(4))), "needs 1 more element and needs 3 more elements"),
        (
            AfterEach(AfterCount(1), AfterProcessingTime(60)),
            "waits for an element, and then for 1 min of processing time",
        ),
        (
            AfterWatermark(early=AfterCount(2)),
            "waits for the watermark to pass 1970-01-01T00:00:00.0001Z, which is at 1970-01-01T00:00:00Z; "
            "for an early pane, needs 1 more element",
        ),
        (Always(), "waits for another element"),
        (Never(), "waits until the window closes, for its trigger never fires"),
    ],
)
def test_a_window_says_what_it_waits_for(trigger: Trigger, reason: str) -> None:
    one = One(trigger)
    one.step(arrived=1)
    assert one.why() == reason


def test_a_window_says_what_it_waits_for_after_its_end() -> None:
    one = One(AfterWatermark(late=AfterCount(2)))
    one.step(arrived=1, watermark=100)
    assert one.why() == "needs 2 more elements, for late data"
    default = One(DefaultTrigger())
    default.step(arrived=1, watermark=100)
    assert default.why() == "waits for another element"


def test_a_trigger_of_ones_own_has_no_program() -> None:
    class Whenever(Trigger):
        pass

    with pytest.raises(TypeError, match=r"no program for the trigger .*compose it of headrace's own"):
        CompiledTrigger(Whenever())


def test_which_triggers_promise_an_on_time_pane() -> None:
    promising = [DefaultTrigger(), AfterWatermark(), Repeatedly(AfterAny(AfterCount(1), AfterWatermark()))]
    assert all(CompiledTrigger(trigger).on_time for trigger in promising)
    assert not any(
        CompiledTrigger(trigger).on_time for trigger in (AfterCount(1), AfterPercentile(0.5), Always(), Never())
    )


def test_which_triggers_need_time_to_pass() -> None:
    waiting = [AfterWatermark(early=AfterProcessingTime(1)), AfterPercentile(0.5)]
    assert all(CompiledTrigger(trigger).needs_time for trigger in waiting)
    assert not any(
        CompiledTrigger(trigger).needs_time for trigger in (DefaultTrigger(), AfterPercentile(1), AfterCount(1))
    )
