"""Tests theta sketches: sets of few values are exact, and estimates of many are within their bounds."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.sketches import ThetaFn, ThetaSketch
from tests.scale import examples, scaled

SETS = st.frozensets(st.integers(-50, 50) | st.text("ab", max_size=2) | st.binary(max_size=1))


def sketch(values: Any, lg_k: int = 12) -> ThetaSketch:
    fn = ThetaFn(lg_k)
    return ThetaSketch(fn.finish(fn.add_all(fn.zero(), list(values))))


@examples(100)
@given(SETS, SETS, SETS)
def test_sets_of_few_values_are_exact(a: frozenset[Any], b: frozenset[Any], c: frozenset[Any]) -> None:
    x, y, z = map(sketch, (a, b, c))
    for found, wanted in [(x | y, a | b), (x & y, a & b), (x - y, a - b), ((x | y) & z - x, (a | b) & c - a)]:
        assert found.estimate == len(wanted)
        assert found.bounds() == (len(wanted), len(wanted))
    assert x | y == y | x == sketch(a | b)
    assert bytes(x | y) == bytes(sketch(a | b))


def test_estimates_of_many_values_are_within_their_bounds() -> None:
    """By 2 deviations, with 95 % confidence: of 3 n estimates, few are outside; and none by 5."""
    trials, outside = scaled(200), 0
    for seed in range(trials):
        draw = random.Random(seed)
        size = draw.randrange(3_000, 6_000)
        shift = draw.randrange(size)
        a, b = {f"{seed}-{i}" for i in range(size)}, {f"{seed}-{i}" for i in range(shift, shift + size)}
        x, y = sketch(a, 9), sketch(b, 9)
        for found, wanted in ((x | y, a | b), (x & y, a & b), (x - y, a - b)):
            low, high = found.bounds()
            outside += not low <= len(wanted) <= high
            middle = (high - low) / 2
            assert low - 2 * middle <= len(wanted) <= high + 2 * middle
        assert x.estimate == pytest.approx(size, rel=5 / math.sqrt(2**9 - 1))
    assert outside <= 0.08 * 3 * trials


def test_a_union_keeps_the_precision_of_its_parts() -> None:
    low, high = (sketch(range(50_000), 14) | sketch(range(50_000, 100_000), 14)).bounds(1)
    assert (high - low) / 2 / 100_000 == pytest.approx(1 / math.sqrt(2**14), rel=0.1)


def test_a_sketch_is_small_and_a_value() -> None:
    assert len(bytes(sketch(range(100_000)))) < 33_000
    assert len(bytes(sketch(range(3)))) < 50
    assert sketch("ab") == sketch("ba") != sketch("abc")
    assert len({sketch("ab"), sketch("ba")}) == 1
    assert repr(sketch("ab")) == "<ThetaSketch of about 2 values>"


def test_wrong_arguments_are_refused() -> None:
    for data in (b"", b"x" * 20, bytes(sketch(range(100)))[:50]):
        with pytest.raises(ValueError, match="not the bytes of a theta sketch"):
            ThetaSketch(data)
    with pytest.raises(ValueError, match="deviations must be 1, 2 or 3, got 4"):
        sketch("a").bounds(4)
    with pytest.raises(ValueError, match="lg_k must be from 5 to 26, got 3; 12 errs by"):
        ThetaFn(3)
