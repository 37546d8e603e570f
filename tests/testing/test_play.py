"""Tests `play`: worked examples from the literature with their exact panes, each kind of trigger, and its rules."""

from __future__ import annotations

import math
from typing import Any

import pytest

from headrace.model.algebra import MeanFn
from headrace.model.panes import Pane
from headrace.model.times import instant
from headrace.model.triggers import (
    AfterAll,
    AfterAny,
    AfterCount,
    AfterEach,
    AfterPercentile,
    AfterProcessingTime,
    AfterWatermark,
    Always,
    Never,
    OrFinally,
    Repeatedly,
    Trigger,
)
from headrace.model.windows import (
    CalendarWindows,
    CountWindows,
    FixedWindows,
    GlobalWindows,
    Sessions,
    SlidingWindows,
)
from headrace.testing import play

TEN = FixedWindows(10)

# Scores with their event times, in order of arrival.
SCORES = [
    (5, "12:00:26"),
    (7, "12:02:26"),
    (3, "12:03:39"),
    (4, "12:04:19"),
    (8, "12:03:06"),
    (3, "12:06:39"),
    (9, "12:01:26"),
    (8, "12:07:26"),
    (1, "12:07:46"),
]


def at(clock: str) -> int:
    return instant(f"2026-01-01T{clock}") // 1_000_000


def values(steps: list[list[Pane]]) -> list[list[list[Any]]]:
    return [[pane.values for pane in step] for step in steps]


def timed(steps: list[list[Pane]]) -> list[list[tuple[list[Any], str]]]:
    return [[(pane.values, pane.timing) for pane in step] for step in steps]


def signed(steps: list[list[Pane]]) -> str:
    return "; ".join(" ".join(f"{'-' if p.retraction else '+'}{p.values[0]}" for p in step) for step in steps)


def test_the_example_of_the_design() -> None:
    steps = play(
        window=FixedWindows(10),
        trigger=AfterWatermark(early=AfterCount(2), late=AfterCount(1)),
        accumulation="accumulating",
        allowed_lateness=0,
        timestamp_combiner="end_of_window",
        script=[("input", [1, 2, 3]), ("input", [("k", 7, 7)]), ("clock", 60), ("watermark", 25)],
    )
    assert steps == [
        [Pane(None, (0, 10), [1, 2, 3], 9.999999, "early", 0, -1, True, False)],
        [],
        [],
        [
            Pane(None, (0, 10), [1, 2, 3], 9.999999, "on_time", 1, 0, False, True),
            Pane("k", (0, 10), [7], 9.999999, "on_time", 0, 0, True, True),
        ],
    ]


def scores_with_watermark(**windowing: Any) -> list[list[Pane]]:
    """The pane of the first window, whose 9 arrives after the watermark has passed 12:02."""
    script = [("input", [("team", 5, at("12:00:26"))]), ("watermark", at("12:02:10"))]
    script += [("input", [("team", 9, at("12:01:26"))]), ("watermark", at("12:30:00"))]
    return play(window=FixedWindows(120), combine=sum, script=script, **windowing)


def test_scores_in_two_minute_windows_five_on_time_and_fourteen_late() -> None:
    steps = scores_with_watermark(accumulation="accumulating", allowed_lateness="10 min")
    window, time = (at("12:00:00"), at("12:02:00")), at("12:02:00") - 1e-6
    assert steps == [
        [],
        [Pane("team", window, [5], time, "on_time", 0, 0, True, False)],
        [Pane("team", window, [14], time, "late", 1, 1, False, False)],
        [],
    ]


def test_scores_in_two_minute_windows_five_and_a_dropped_nine() -> None:
    assert timed(scores_with_watermark()) == [[], [([5], "on_time")], [], []]


def test_scores_in_two_minute_windows_end_as_the_batch_does() -> None:
    script = [("input", [("team", score, at(time))]) for score, time in SCORES]
    panes = play(window=FixedWindows(120), combine=sum, script=[*script, ("watermark", at("13:00:00"))])[-1]
    assert [pane.values for pane in panes] == [[14], [18], [4], [12]]
    assert play(window=GlobalWindows(), combine=sum, script=[*script, ("watermark", math.inf)])[-1][0].values == [48]


def test_scores_in_sessions_with_retractions() -> None:
    script = [("input", [("team", score, at(time))]) for score, time in SCORES]
    steps = play(
        window=Sessions(61),
        trigger=Repeatedly(AfterCount(1)),
        accumulation="retracting",
        combine=sum,
        script=script,
    )
    assert signed(steps) == "+5; +7; +3; -3 +7; -7 -7 +22; +3; -5 -22 +36; -3 +11; -11 +12"
    sevens, merged = steps[4][:2], steps[4][2]
    assert [pane.window for pane in sevens] == [
        (at("12:02:26"), at("12:03:27")),
        (at("12:03:39"), at("12:05:20")),
    ]
    assert merged.window == (at("12:02:26"), at("12:05:20"))


def test_a_retraction_is_the_pane_it_takes_back() -> None:
    steps = play(window=TEN, trigger=Always(), accumulation="retracting", script=[("input", [1]), ("input", [2])])
    assert steps[0] == [Pane(None, (0, 10), [1], 9.999999, "early", 0, -1, True, False)]
    assert steps[1] == [
        Pane(None, (0, 10), [1], 9.999999, "early", 0, -1, True, False, retraction=True),
        Pane(None, (0, 10), [1, 2], 9.999999, "early", 1, -1, False, False),
    ]


def test_default_trigger_with_late_data() -> None:
    steps = play(
        window=TEN,
        accumulation="accumulating",
        allowed_lateness=100,
        script=[("input", [4, 1, 12, 27]), ("watermark", 100), ("input", [6, 7]), ("watermark", 500)],
    )
    assert timed(steps) == [
        [],
        [([4, 1], "on_time"), ([12], "on_time"), ([27], "on_time")],
        [([4, 1, 6, 7], "late")],
        [],
    ]
    assert [pane.is_last for pane in steps[1]] == [False, False, False]
    assert (steps[2][0].index, steps[2][0].on_time_index) == (1, 1)


def test_data_is_dropped_once_the_lateness_is_used_up() -> None:
    steps = play(
        window=TEN,
        trigger=AfterWatermark(early=AfterCount(3), late=AfterCount(1)),
        accumulation="accumulating",
        allowed_lateness=20,
        script=[("input", [1, 85, 86]), ("watermark", 100), ("input", [5]), ("input", [87])],
    )
    assert timed(steps)[1:] == [[([1], "on_time"), ([85, 86], "on_time")], [], [([85, 86, 87], "late")]]


def test_early_panes_and_an_empty_on_time_pane_when_discarding() -> None:
    steps = play(
        window=TEN,
        trigger=AfterWatermark(early=AfterCount(2)),
        script=[
            ("input", [1, 2]),
            ("input", [4]),
            ("input", [14, 15]),
            ("input", [5]),
            ("input", [6]),
            ("watermark", 99),
        ],
    )
    assert timed(steps) == [
        [([1, 2], "early")],
        [],
        [([14, 15], "early")],
        [([4, 5], "early")],
        [],
        [([6], "on_time"), ([], "on_time")],
    ]
    assert steps[-1][1] == Pane(None, (10, 20), [], 19.999999, "on_time", 1, 0, False, True)


def test_an_on_time_pane_without_new_elements_repeats_the_accumulated_ones() -> None:
    script = [("input", [1, 2]), ("watermark", 10)]
    trigger = AfterWatermark(early=AfterCount(2))
    assert values(play(window=TEN, trigger=trigger, accumulation="accumulating", script=script))[1] == [[1, 2]]
    retracting = play(window=TEN, trigger=trigger, accumulation="retracting", script=script)[1]
    assert [(pane.retraction, pane.values) for pane in retracting] == [(True, [1, 2]), (False, [1, 2])]


def test_sessions_with_early_and_late_panes() -> None:
    before = [("input", [1, 2]), ("input", [3]), ("input", [4]), ("input", [5])]
    steps = play(
        window=Sessions(10),
        trigger=AfterWatermark(early=AfterCount(2), late=AfterCount(3)),
        accumulation="accumulating",
        allowed_lateness=100,
        script=[*before, ("watermark", 100), ("input", [1]), ("input", [3, 4])],
    )
    assert [[(pane.window, pane.values, pane.timing, pane.index) for pane in step] for step in steps] == [
        [((1, 12), [1, 2], "early", 0)],
        [],
        [((1, 14), [1, 2, 3, 4], "early", 0)],
        [],
        [((1, 15), [1, 2, 3, 4, 5], "on_time", 0)],
        [],
        [((1, 15), [1, 2, 3, 4, 5, 1, 3, 4], "late", 1)],
    ]


def test_late_data_joins_sessions_that_had_fired() -> None:
    steps = play(
        window=Sessions(10),
        trigger=AfterWatermark(late=AfterCount(1)),
        accumulation="retracting",
        allowed_lateness=100,
        script=[("input", [1, 15]), ("watermark", 60), ("input", [8])],
    )
    assert values(steps)[1] == [[1], [15]]
    assert [(pane.window, pane.values, pane.retraction) for pane in steps[2]] == [
        ((1, 11), [1], True),
        ((15, 25), [15], True),
        ((1, 25), [1, 15, 8], False),
    ]
    # The merged session is a new window, but its parts were on time, so it is late.
    assert [(pane.timing, pane.index) for pane in steps[2]] == [("on_time", 0), ("on_time", 0), ("late", 0)]


def sessions(trigger: Trigger, script: list[tuple[str, Any]], **windowing: Any) -> list[list[tuple[Any, ...]]]:
    """The panes of sessions with a gap of 5 that accept late data for long; where values go first does not matter."""
    steps = play(window=Sessions(5), trigger=trigger, allowed_lateness=1000, script=script, **windowing)
    return [[(pane.window, sorted(pane.values), pane.timing) for pane in step] for step in steps]


def test_what_comes_after_the_trigger_of_a_session_has_finished_begins_another() -> None:
    script = [("input", [7]), ("watermark", 13), ("input", [11, 15]), ("input", [19]), ("watermark", 99)]
    assert sessions(AfterWatermark(), script) == [
        [],
        [((7, 12), [7], "on_time")],
        [],
        [],
        [((11, 24), [11, 15, 19], "on_time")],
    ]
    steps = play(
        window=Sessions(10),
        trigger=AfterEach(AfterCount(2), AfterCount(3)),
        accumulation="accumulating",
        script=[("input", [n, n + 1]) for n in range(0, 10, 2)],
    )
    assert values(steps) == [[[0, 1]], [], [[0, 1, 2, 3, 4, 5]], [[6, 7]], []]
    assert [pane.is_last for step in steps for pane in step] == [False, True, False]


def test_late_elements_of_a_finished_session_begin_another_too() -> None:
    script = [("input", [7]), ("watermark", 20), ("input", [8]), ("input", [7]), ("input", [9, 14])]
    assert sessions(AfterWatermark(), script) == [
        [],
        [((7, 12), [7], "on_time")],
        [((8, 13), [8], "late")],
        [((7, 12), [7], "late")],
        [((9, 14), [9], "late"), ((14, 19), [14], "late")],
    ]
    strict = play(window=Sessions(5), trigger=AfterWatermark(), script=script)
    assert timed(strict) == [[], [([7], "on_time")], [], [], []]  # too late without allowed lateness


def test_a_session_that_grows_beyond_the_watermark_is_on_time_again() -> None:
    script = [("input", [7]), ("watermark", 13), ("input", [11]), ("watermark", 16)]
    assert sessions(AfterWatermark(late=AfterCount(1)), script) == [
        [],
        [((7, 12), [7], "on_time")],
        [],
        [((7, 16), [11], "on_time")],
    ]
    same = AfterEach(AfterWatermark(), Repeatedly(AfterCount(1)))
    assert sessions(same, script) == sessions(AfterWatermark(late=AfterCount(1)), script)
    accumulating = sessions(AfterWatermark(late=AfterCount(1)), script, accumulation="accumulating")
    assert accumulating[-1] == [((7, 16), [7, 11], "on_time")]


def test_sessions_that_merge_beyond_the_watermark_are_on_time_again() -> None:
    script = [("watermark", 21), ("input", [22, 14]), ("input", [18]), ("watermark", 76)]
    assert sessions(AfterWatermark(late=AfterCount(3)), script) == [
        [],
        [((14, 19), [14], "late")],
        [],
        [((14, 27), [18, 22], "on_time")],
    ]


def test_the_late_part_forgets_what_it_counted_when_a_session_is_on_time_again() -> None:
    trigger = AfterWatermark(early=AfterCount(2), late=AfterCount(3))
    script = [("input", [7]), ("watermark", 13), ("input", [8, 7]), ("input", [11]), ("watermark", 16)]
    script += [("input", [7, 8]), ("input", [12, 12]), ("watermark", 17), ("input", [9, 9]), ("input", [9])]
    assert sessions(trigger, script) == [
        [],
        [((7, 12), [7], "on_time")],
        [],  # two late elements of three
        [],  # one early element of two
        [((7, 16), [7, 8, 11], "on_time")],
        [],
        [((7, 17), [7, 8, 12, 12], "early")],
        [((7, 17), [], "on_time")],
        [],
        [((7, 17), [9, 9, 9], "late")],
    ]


def test_the_early_part_is_active_if_it_is_in_one_of_the_sessions_that_merge() -> None:
    # The first session has had its on-time pane; the second waits for it, since there are not three elements yet.
    trigger = AfterAll(AfterWatermark(late=AfterCount(1)), Repeatedly(AfterCount(3)))
    script = [("input", [7, 7, 7]), ("watermark", 13), ("input", [15, 16]), ("watermark", 22), ("input", [11])]
    assert sessions(trigger, script) == [
        [],
        [((7, 12), [7, 7, 7], "on_time")],
        [],
        [],
        [((7, 21), [11, 15, 16], "on_time")],
    ]


def test_processing_time_panes_come_while_no_data_does() -> None:
    steps = play(
        window=GlobalWindows(),
        trigger=Repeatedly(AfterProcessingTime(10)),
        script=[
            ("input", [1]),
            ("clock", 4),
            ("input", [2]),
            ("clock", 10),
            ("clock", 30),
            ("input", [3]),
            ("clock", 40),
        ],
    )
    assert values(steps) == [[], [], [], [[1, 2]], [], [], [[3]]]
    assert steps[3][0].window == (-math.inf, math.inf)
    assert steps[3][0].timestamp == math.inf


def test_counts_are_judged_once_per_bundle() -> None:
    steps = play(window=TEN, trigger=Repeatedly(AfterCount(2)), script=[("input", [1, 2, 3, 4, 5]), ("input", [6, 7])])
    assert values(steps) == [[[1, 2, 3, 4, 5]], [[6, 7]]]


def test_elements_that_no_trigger_fired_are_emitted_when_the_window_closes() -> None:
    script = [("input", [1, 2, 3]), ("watermark", 10), ("watermark", 15)]
    for trigger in (Repeatedly(AfterCount(5)), Never()):
        steps = play(window=TEN, trigger=trigger, allowed_lateness=5, script=script)
        assert steps[:2] == [[], []]
        assert steps[2] == [Pane(None, (0, 10), [1, 2, 3], 9.999999, "on_time", 0, 0, True, True)]


def test_closing_always_emits_a_last_pane_even_if_it_is_empty() -> None:
    script = [("input", [1]), ("watermark", 10), ("watermark", 15)]
    steps = play(window=TEN, allowed_lateness=5, closing="always", script=script)
    assert timed(steps) == [[], [([1], "on_time")], [([], "late")]]
    assert [pane.is_last for step in steps for pane in step] == [False, True]
    assert timed(play(window=TEN, closing="always", script=script)) == [[], [([1], "on_time")], []]


def test_any_all_each_and_or_finally() -> None:
    script = [("input", [n]) for n in range(6)]

    def fired(trigger: Any) -> list[list[list[Any]]]:
        return values(play(window=TEN, trigger=trigger, script=script))

    assert fired(Repeatedly(AfterAny(AfterCount(2), AfterCount(3)))) == [[], [[0, 1]], [], [[2, 3]], [], [[4, 5]]]
    assert fired(Repeatedly(AfterAll(AfterCount(2), AfterCount(3)))) == [[], [], [[0, 1, 2]], [], [], [[3, 4, 5]]]
    assert fired(AfterEach(AfterCount(1), Repeatedly(AfterCount(2)))) == [[[0]], [], [[1, 2]], [], [[3, 4]], []]
    assert fired(OrFinally(Repeatedly(AfterCount(2)), until=AfterCount(5))) == [[], [[0, 1]], [], [[2, 3]], [[4]], []]
    assert fired(Always()) == [[[n]] for n in range(6)]


def test_a_percentile_does_not_wait_for_the_slowest() -> None:
    # Nine of ten elements come at once and one a minute late.
    early = [("clock", 100), ("input", [100] * 9 + [40]), ("input", [("k", 1, 105)])]
    script = [*early, ("clock", 109), ("clock", 110), ("watermark", 110)]
    steps = play(window=TEN, trigger=AfterPercentile(0.8), script=script)
    assert [[pane.key for pane in step] for step in steps] == [[], [None], [], [], [None, "k"], []]
    assert [pane.timing for step in steps for pane in step] == ["early", "early", "early"]
    certain = play(window=TEN, trigger=AfterPercentile(1), script=script)
    assert [len(step) for step in certain] == [0, 0, 0, 0, 0, 3]


@pytest.mark.parametrize(
    ("combiner", "expected"),
    [("end_of_window", [9.999999, 9.999999, 9.999999]), ("earliest", [3, 2, 2]), ("latest", [4, 4, 8])],
)
def test_timestamps_of_panes_that_accumulate(combiner: Any, expected: list[float]) -> None:
    steps = play(
        window=TEN,
        trigger=AfterWatermark(early=AfterCount(2)),
        accumulation="accumulating",
        timestamp_combiner=combiner,
        script=[("input", [3, 4]), ("input", [2, 2]), ("input", [8]), ("watermark", 10)],
    )
    assert [pane.timestamp for step in steps for pane in step] == expected


def test_timestamps_of_panes_that_discard_are_those_of_their_own_elements() -> None:
    script = [("input", [1, 2]), ("input", [5, 4]), ("watermark", 10)]
    steps = play(window=TEN, trigger=AfterWatermark(early=AfterCount(2)), timestamp_combiner="earliest", script=script)
    assert [pane.timestamp for step in steps for pane in step] == [1, 4, 9.999999]


def test_elements_behind_the_output_watermark_do_not_set_the_timestamp() -> None:
    def time(watermark: int, elements: list[int]) -> float:
        script = [("watermark", watermark), ("input", elements), ("watermark", 11)]
        return play(window=TEN, timestamp_combiner="earliest", script=script)[-1][0].timestamp

    assert time(5, [2, 3, 7, 8]) == 7
    assert time(8, [2, 3, 7]) == 9.999999


def test_a_window_that_got_only_late_data_has_no_on_time_pane() -> None:
    script = [("watermark", 12), ("input", [3]), ("input", [4])]
    steps = play(window=TEN, allowed_lateness=60, script=script)
    assert [(pane.timing, pane.on_time_index) for step in steps for pane in step] == [("late", 0), ("late", 1)]


@pytest.mark.parametrize("bundles", [[7], [1] * 7, [2, 3, 2], [3, 4]])
def test_windows_of_elements_close_at_every_third_however_they_are_bundled(bundles: list[int]) -> None:
    elements, script = iter(range(7)), []
    for size in bundles:
        script.append(("input", [("k", next(elements), 50) for _ in range(size)]))
    panes = [pane for step in play(window=CountWindows(3), script=[*script, ("watermark", math.inf)]) for pane in step]
    assert [(pane.window, pane.values, pane.timing, pane.is_last) for pane in panes] == [
        ((0, 3), [0, 1, 2], "on_time", True),
        ((3, 6), [3, 4, 5], "on_time", True),
        ((6, 9), [6], "on_time", True),
    ]


def test_an_element_may_be_in_several_windows() -> None:
    steps = play(window=SlidingWindows(10, period=5), script=[("input", [7, 12]), ("watermark", 15), ("watermark", 20)])
    assert [[(pane.window, pane.values) for pane in step] for step in steps] == [
        [],
        [((0, 10), [7]), ((5, 15), [7, 12])],
        [((10, 20), [12])],
    ]


def test_calendar_days_in_a_time_zone() -> None:
    script = [("input", [("k", 1, "2026-03-29T00:30:00Z")]), ("watermark", "2026-03-30T00:00:00Z")]
    (pane,) = play(window=CalendarWindows("day", timezone="Europe/Berlin"), script=script)[1]
    assert pane.window[1] - pane.window[0] == 23 * 3600


def test_aggregates_of_keys() -> None:
    script = [("input", [("a", 1, 1), ("b", 10, 2), ("a", 2, 3)]), ("watermark", 10)]
    steps = play(window=TEN, combine=MeanFn(), script=script)
    assert [(pane.key, pane.values) for pane in steps[1]] == [("a", [1.5]), ("b", [10.0])]


def test_clocks_do_not_go_back() -> None:
    steps = play(window=TEN, script=[("watermark", 20), ("watermark", 5), ("input", [7]), ("watermark", 20)])
    assert steps == [[], [], [], []]


def test_wrong_scripts_are_refused_with_a_reason() -> None:
    with pytest.raises(ValueError, match="step 2 must be 'input', 'watermark' or 'clock', got 'sleep'"):
        play(window=TEN, script=[("clock", 1), ("sleep", 1)])
    with pytest.raises(TypeError, match=r"an element of step 1 must be a number or \(key, value, timestamp\), got 'x'"):
        play(window=TEN, script=[("input", ["x"])])
