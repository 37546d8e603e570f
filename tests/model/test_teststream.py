"""Tests the scripts of TestStream."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

import headrace as hr
from headrace.model.times import MAX_TIME, MIN_TIME, SECOND


def test_steps_remember_where_the_clocks_stand() -> None:
    script = hr.TestStream().add(["a"]).advance_watermark(5).advance_clock(7).add(["b", hr.TimestampedValue("c", 9)])
    assert [(step.watermark, step.clock) for step in script.steps] == [
        (MIN_TIME, 0),
        (5 * SECOND, 0),
        (None, 7 * SECOND),
        (5 * SECOND, 7 * SECOND),
    ]
    assert script.steps[0].times == (MIN_TIME,)
    assert script.steps[-1].elements == ("b", "c")
    assert script.steps[-1].times == (5 * SECOND, 9 * SECOND)


def test_partitions_have_watermarks_of_their_own() -> None:
    script = hr.TestStream().advance_watermark(8, partition="a").add(["x"], partition="b").advance_watermark(3)
    script = script.add(["y"], partition="b").add(["z"], partition="a").add(["of none"])
    assert [(step.partition, step.watermark) for step in script.steps] == [
        ("a", 8 * SECOND),
        ("b", MIN_TIME),
        (None, 3 * SECOND),
        ("b", 3 * SECOND),
        ("a", 8 * SECOND),
        (None, 3 * SECOND),
    ]


def test_a_script_is_never_changed() -> None:
    start = hr.TestStream().add([1])
    assert len(start.finish().steps) == 2
    assert len(start.steps) == 1
    assert start.advance_watermark(math.inf).steps[-1].watermark == MAX_TIME


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (lambda: hr.TestStream().advance_watermark(5).advance_watermark(4), "watermark cannot go back"),
        (lambda: hr.TestStream().advance_watermark(5).advance_watermark(4, partition="a"), "cannot go back from"),
        (lambda: hr.TestStream().add([1], partition=""), "a partition's name must be text, got ''"),
        (lambda: hr.ReadText("in", watermark=10), r"must be a policy, got 10; write .*BoundedDisorder"),  # type: ignore[arg-type]
        (lambda: hr.TestStream().advance_clock(5).advance_clock(4), "processing time cannot go back"),
        (lambda: hr.TestStream().finish().add([1]), "no step can follow finish"),
        (lambda: hr.TestStream().add("abc"), r"write add\(\['abc'\]\)"),
        (lambda: hr.Rate(0), "at least 1, got 0"),
        (lambda: hr.ForEachBatch(3), "takes a function of elements and batch id, got 3"),  # type: ignore[arg-type]
    ],
)
def test_mistakes_are_refused(build: Callable[[], Any], match: str) -> None:
    with pytest.raises(hr.PipelineError, match=match):
        build()
