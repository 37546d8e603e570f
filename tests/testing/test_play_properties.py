"""`play` against the definition of streaming semantics, over random cases that a number makes: mostly sessions.

What is drawn often is what sessions make difficult: windows that merge and grow across the watermark, and triggers that
finish while elements still come.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

from headrace.model.panes import Pane, Windowing
from headrace.model.times import MAX_TIME, MIN_TIME, SECOND
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
from headrace.model.windows import CountWindows, FixedWindows, GlobalWindows, Sessions, SlidingWindows, WindowFn
from headrace.testing import play
from tests.reference_panes import Element, Reference, WindowState
from tests.scale import scaled

KEYS = 25  # of a script; since keys do not affect each other, each is a case

WINDOWS: list[WindowFn] = [*[Sessions(5)] * 6, *[Sessions(9)] * 2, FixedWindows(10), SlidingWindows(20, period=10)]
WINDOWS += [GlobalWindows(), CountWindows(3)]


@dataclass(frozen=True)
class Script:
    """A windowing and the steps of `play`, in which an element is (key, value, timestamp)."""

    windowing: Windowing
    steps: list[tuple[str, Any]]

    def of(self, key: int) -> Script:
        """Returns the script with the elements of one key."""
        return Script(
            self.windowing,
            [
                (action, [element for element in argument if element[0] == key] if action == "input" else argument)
                for action, argument in self.steps
            ],
        )


def random_script(seed: int) -> Script:
    """Makes a script, the same for the same number."""
    draw = random.Random(seed)
    windowing = Windowing(
        draw.choice(WINDOWS),
        random_trigger(draw, depth=draw.choice([0, 1, 1, 1, 2, 2, 3])),
        draw.choice(["discarding", "accumulating", "retracting"]),
        draw.choice([0, 7, 30, 1000, 1000, 1000]),
        draw.choice(["end_of_window", "earliest", "latest"]),
        draw.choice(["non_empty", "non_empty", "always"]),
    )
    return Script(windowing, random_steps(draw))


def random_trigger(draw: random.Random, depth: int) -> Trigger:
    """Draws a trigger that is nested so many times."""
    if depth == 0:
        kinds = [AfterCount, AfterCount, AfterProcessingTime, AfterPercentile, AfterWatermark, AfterWatermark]
        kind = draw.choice([*kinds, DefaultTrigger, Always, Never])
        numbers: dict[type, list[int]] = {AfterCount: [1, 2, 3], AfterProcessingTime: [0, 3, 10], AfterPercentile: [1]}
        return kind(draw.choice(numbers[kind])) if kind in numbers else kind()

    def inner() -> Trigger:
        return random_trigger(draw, depth - 1)

    kind = draw.choice([AfterWatermark] * 5 + [AfterEach] * 3 + [Repeatedly, AfterAny, AfterAll, OrFinally])
    if kind is AfterWatermark:
        early, late = draw.choice([(0, 0), (0, 1), (0, 1), (1, 0), (1, 1)])
        return AfterWatermark(early=inner() if early else None, late=inner() if late else None)
    if kind is Repeatedly:
        return Repeatedly(inner())
    if kind is OrFinally:
        return OrFinally(inner(), inner())
    return kind(*(inner() for _ in range(draw.choice([1, 2, 2, 3]))))


def random_steps(draw: random.Random) -> list[tuple[str, Any]]:
    """Draws inputs around the watermark, before and behind it, and moves of the clocks."""
    steps: list[tuple[str, Any]] = []
    watermark = clock = 0
    for _ in range(draw.randint(5, 12)):
        match draw.choice(["input", "input", "input", "watermark", "watermark", "clock"]):
            case "input":
                keys = [key for key in range(KEYS) for _ in range(draw.choice([0, 1, 1, 2, 3]))]
                times = [max(watermark + draw.randint(-9, 4), 0) for _ in keys]
                draw.shuffle(keys)
                values = [(len(steps), number) for number in range(len(keys))]
                steps.append(("input", list(zip(keys, values, times, strict=True))))
            case "watermark":
                watermark += draw.choice([1, 2, 3, 6, 9])
                steps.append(("watermark", watermark))
            case "clock":
                clock += draw.choice([1, 4, 12])
                steps.append(("clock", clock))
    return [*steps, ("watermark", watermark + 50), ("watermark", math.inf)]


class Watched(Reference):
    """The definition, which also counts what happens to windows that merge."""

    def __init__(self, windowing: Windowing) -> None:
        super().__init__(windowing)
        self.seen: Counter[str] = Counter()

    def merge_states(self, key: Any, parts: list[WindowState], born: int) -> WindowState:
        merged, older = super().merge_states(key, parts, born), [part for part in parts if part.born < born]
        ended = any(part.deadline <= self.time.watermark for part in older)
        self.seen["merges of several windows"] += len(older) > 1
        self.seen["merges across the watermark"] += ended and merged.deadline > self.time.watermark
        self.seen["merges behind the watermark"] += ended and merged.deadline <= self.time.watermark
        return merged

    def forgets(self, state: WindowState) -> bool:
        self.seen["finished sessions"] += super().forgets(state)
        return super().forgets(state)


def expected_steps(script: Script) -> tuple[list[list[Pane]], Watched]:
    """Returns what the definition says to a script, step by step."""
    reference, expected, now = Watched(script.windowing), [], 0
    reference.step([], MIN_TIME, 0, {})
    for action, argument in script.steps:
        bundle, watermark = [], MIN_TIME
        if action == "input":
            bundle = [Element(key, value, time * SECOND) for key, value, time in argument]
        elif action == "watermark":
            watermark = MAX_TIME if argument == math.inf else argument * SECOND
        else:
            now = argument * SECOND
        panes = reference.step(bundle, watermark, now, {})
        expected.append([as_pane(script.windowing, *pane) for pane in panes])
    return expected, reference


def as_pane(windowing: Windowing, key: Any, start: int, end: int, values: list[Any], time: int, *info: Any) -> Pane:
    bounds = (start, end) if isinstance(windowing.window, CountWindows) else (seconds(start), seconds(end))
    return Pane(key, bounds, values, seconds(time), *info)


def seconds(us: int) -> float:
    return us / SECOND if MIN_TIME < us < MAX_TIME - 1 else math.copysign(math.inf, us)


def check(script: Script) -> Counter[str]:
    """Asserts for every key that `play` and the definition agree and no element is missing; returns what happened."""
    windowing, seen = script.windowing, Counter[str]()
    played = play(
        window=windowing.window,
        trigger=windowing.trigger,
        accumulation=windowing.accumulation,
        allowed_lateness=windowing.allowed_lateness / SECOND,
        timestamp_combiner=windowing.timestamp_combiner,
        closing=windowing.closing,
        script=script.steps,
    )
    for key in range(KEYS):
        case = script.of(key)
        expected, reference = expected_steps(case)
        assert [[pane for pane in panes if pane.key == key] for panes in played] == expected, case
        if windowing.accumulation == "discarding" and not isinstance(windowing.window, SlidingWindows):
            given = sum(len(elements) for action, elements in case.steps if action == "input")
            emitted = sum(len(pane.values) for panes in expected for pane in panes)
            assert emitted + len(reference.late) + reference.refused == given, case
        seen += reference.seen
    return seen


@pytest.mark.slow("100,000 cases")
def test_play_and_the_definition_agree() -> None:
    seen: Counter[str] = Counter()
    for seed in range(scaled(4_000)):
        seen += check(random_script(seed))
    for what in ("merges of several windows", "merges across the watermark", "merges behind the watermark"):
        assert seen[what] > scaled(3_000)
    assert seen["finished sessions"] > scaled(30_000)
