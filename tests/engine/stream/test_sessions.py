"""Sessions of a stream on real Spark that merge and grow across the watermark, or whose triggers finish."""

from __future__ import annotations

import math
import random

import pytest

import headrace as hr
from tests.engine.stream.test_query import Case, Script, check_panes, p
from tests.scale import scaled
from tests.testing.test_play_properties import random_steps, random_trigger

__all__ = ["p"]  # the fixture

EXAMPLES: Script = [
    ("input", [("finished", 1, 7), ("grown", 1, 7)]),
    ("watermark", 13),
    ("input", [("finished", 2, 11), ("finished", 3, 15), ("grown", 2, 11)]),
    ("input", [("finished", 4, 19)]),
    ("watermark", 16),
    ("watermark", 21),
    ("input", [("merged", 1, 22), ("merged", 2, 14)]),
    ("input", [("merged", 3, 18)]),
    ("watermark", 76),
    ("watermark", math.inf),
]


def session_cases(triggers: list[hr.Trigger], modes: list[str]) -> list[Case]:
    return [
        Case(
            f"{number} {mode}",
            {"window": hr.Sessions(5), "trigger": trigger, "accumulation": mode, "allowed_lateness": 1000},
        )
        for number, trigger in enumerate(triggers)
        for mode in modes
    ]


@pytest.mark.slow("a stream with a branch for each trigger")
def test_sessions_across_the_watermark_give_the_panes_of_play(p: hr.Pipeline) -> None:
    late = [hr.AfterWatermark(late=hr.AfterCount(count)) for count in (1, 3)]
    handle = check_panes(p, session_cases([hr.AfterWatermark(), *late], ["discarding", "retracting"]), EXAMPLES)
    assert {(status.late, status.refused, status.held) for status in handle.status().exchanges.values()} == {(0, 0, 0)}


@pytest.mark.slow("a stream with a branch for each trigger")
@pytest.mark.parametrize("seed", range(scaled(5)))
def test_sessions_of_random_scripts_give_the_panes_of_play(p: hr.Pipeline, seed: int) -> None:
    draw = random.Random(seed)
    triggers = [random_trigger(draw, depth) for depth in (0, 1, 1, 1, 1, 2, 2, 3)]
    check_panes(p, session_cases(triggers, ["accumulating"]), random_steps(draw))
