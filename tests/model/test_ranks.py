"""Tests ranks and histograms of KLL sketches against sorted values."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.sketches import HistogramFn, RankFn
from tests.scale import examples, scaled

FEW = st.lists(st.integers(-20, 20), min_size=1, max_size=190)


def answer(fn: Any, values: Any) -> Any:
    return fn.finish(fn.add_all(fn.zero(), values))


@examples(100)
@given(FEW, st.lists(st.integers(-25, 25), min_size=2, max_size=6, unique=True).map(sorted))
def test_ranks_and_histograms_of_few_values_are_exact(values: list[int], bounds: list[int]) -> None:
    ranks = answer(RankFn(tuple(bounds)), values)
    assert ranks == pytest.approx([sum(value <= bound for value in values) / len(values) for bound in bounds])
    assert answer(RankFn(bounds[0]), values) == ranks[0]
    counts = np.histogram(values, bounds)[0].tolist()
    found = answer(HistogramFn(tuple(bounds)), values)
    assert found == [list(each) for each in zip(bounds[:-1], bounds[1:], counts, strict=True)]


@examples(100)
@given(st.lists(st.floats(allow_nan=False), min_size=1, max_size=190), st.integers(1, 20))
def test_bins_of_equal_width_hold_every_value(values: list[float], bins: int) -> None:
    found = answer(HistogramFn(bins), values)
    assert sum(count for _, _, count in found) == len(values)
    assert all(low <= high for low, high, _ in found)
    assert [high for _, high, _ in found[:-1]] == [low for low, _, _ in found[1:]]
    assert found[0][0] <= min(values) and max(values) <= found[-1][1]
    finite = all(map(math.isfinite, values))
    assert len(found) == (bins if finite and min(values) < max(values) else 1)
    for low, high, count in found[:-1]:
        assert count == sum(low <= value < high for value in values)


@pytest.mark.parametrize("merged", [False, True])
def test_ranks_and_histograms_of_many_values_are_within_the_error(merged: bool) -> None:
    asked = off = 0
    for seed in range(scaled(50)):
        values = np.random.default_rng(seed).exponential(100, 10_000)
        bounds = [0.0, 10.0, 50.0, 200.0, 5000.0]
        of = tuple(random.Random(seed).uniform(0, 500) for _ in range(5))
        answers = []
        for fn in (RankFn(of), HistogramFn(tuple(bounds))):
            acc = fn.zero()
            for part in np.array_split(values, 7 if merged else 1):
                acc = fn.merge(acc, fn.load(fn.dump(fn.add_all(fn.zero(), part))))
            answers.append(fn.finish(acc))
        ranks = [abs(found - (values <= value).mean()) for found, value in zip(answers[0], of, strict=True)]
        counts = np.histogram(values, bounds)[0]
        bins = [abs(found - count) / len(values) for (_, _, found), count in zip(answers[1], counts, strict=True)]
        assert max(ranks) < 2 * 0.0133 and max(bins) < 2 * 0.0165  # twice the bounds: the bits are random
        asked, off = asked + 9, off + sum(rank > 0.0133 for rank in ranks) + sum(bin > 0.0165 for bin in bins)
    assert off <= 0.05 * asked  # of 1 %, for the same reason


def test_of_no_values() -> None:
    assert math.isnan(answer(RankFn(3), []))
    assert str(answer(RankFn((3, 4)), [math.nan])) == "[nan, nan]"
    assert answer(HistogramFn(), []) == answer(HistogramFn((0, 1)), []) == []


def test_values_that_have_no_width() -> None:
    assert answer(HistogramFn(4), [7, 7]) == [[6.5, 7.5, 2.0]]
    assert answer(HistogramFn(4), [7, math.inf]) == [[7.0, math.inf, 2.0]]
    assert answer(HistogramFn(4), [math.inf]) == [[-math.inf, math.inf, 1.0]]
    assert answer(HistogramFn(1), [-1.7e308, 1.7e308]) == [[-1.7e308, 1.7e308, 2.0]]


def test_wrong_arguments_are_refused() -> None:
    for of in ((), "a", ("a",), math.nan, None, True):
        with pytest.raises(ValueError, match="RankFn: of must be a number or several"):
            RankFn(of)
    for bins in (0, 10_001, 2.5, "a"):
        with pytest.raises(ValueError, match="HistogramFn: bins must be from 1 to 10000, or bounds, got"):
            HistogramFn(bins)
    for bounds in ((), (1,), (2, 1), (1, 1), ("a", "b"), (0, math.nan)):
        with pytest.raises(ValueError, match="HistogramFn: bounds must be at least two rising numbers"):
            HistogramFn(bounds)
