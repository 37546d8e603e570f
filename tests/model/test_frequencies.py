"""Tests sketches of frequencies against exact counts: Count-Min and the second moment."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.sketches import CountMinFn, CountMinSketch, FrequencyFn, SecondMomentFn
from tests.scale import examples, scaled

WORDS = st.lists(st.text("ab", max_size=3) | st.integers(-3, 3) | st.binary(max_size=1), max_size=60)


def answer(fn: Any, values: list[Any]) -> Any:
    return fn.finish(fn.add_all(fn.zero(), values))


def skewed(seed: int, count: int) -> list[str]:
    draw = random.Random(seed)
    return [f"{seed}-{int(draw.paretovariate(0.3))}" for _ in range(count)]


@examples(100)
@given(WORDS)
def test_counts_of_few_different_values_are_exact(values: list[Any]) -> None:
    sketch, counts = CountMinSketch(answer(CountMinFn(), values)), Counter(values)
    assert sketch.total == len(values)
    for value in [*counts, "never", 99]:
        assert sketch.frequency(value) == counts[value]
        assert sketch.bounds(value) == (counts[value], counts[value])
    assert answer(FrequencyFn(("a", 1)), values) == [counts["a"], counts[1]]
    assert answer(FrequencyFn("ab"), values) == counts["ab"]
    assert answer(SecondMomentFn(), values) == sum(count**2 for count in counts.values())


@pytest.mark.parametrize(("error", "confidence"), [(0.01, 0.9), (0.005, 0.99)])
def test_counts_of_many_different_values_are_within_the_error(error: float, confidence: float) -> None:
    asked = high = 0
    for seed in range(scaled(20)):
        values = skewed(seed, 10_000)
        fn, counts = CountMinFn(error, confidence), Counter(values)
        acc = fn.add_all(fn.zero(), values)
        assert len(counts) > 1000 and not fn.is_exact(acc)
        sketch = CountMinSketch(fn.finish(acc))
        assert sketch.total == len(values)
        for value in [*counts, *(f"{seed}-never {number}" for number in range(1000))]:
            found = sketch.frequency(value)
            assert found >= counts[value]
            asked, high = asked + 1, high + (found > counts[value] + error * len(values))
            low, most = sketch.bounds(value)
            assert most == found and 0 <= low <= most
    assert high <= (1 - confidence) * asked


def test_second_moments_of_many_different_values_are_within_the_error() -> None:
    errors = []
    for seed in range(scaled(100)):
        values = skewed(seed, 5_000) if seed % 2 else [f"{seed}-{number % 3000}" for number in range(5_000)]
        exact = sum(count**2 for count in Counter(values).values())
        errors.append(abs(answer(SecondMomentFn(), values) / exact - 1))
    assert sum(error > 0.1 for error in errors) <= 0.01 * len(errors)
    assert sum(errors) / len(errors) < 0.03


def test_a_sketch_of_many_values_is_small() -> None:
    for fn, most in ((CountMinFn(), 110_000), (SecondMomentFn(), 82_000)):
        assert len(fn.dump(fn.add_all(fn.zero(), list(range(50_000))))) < most
        assert fn.dump(fn.zero()) == {}


def test_wrong_arguments_are_refused() -> None:
    for data in (b"", b"x" * 20, b"bxyz", b"j[1]", b"j3"):
        with pytest.raises(ValueError, match="these are not the bytes of a Count-Min sketch"):
            CountMinSketch(data)
    with pytest.raises(ValueError, match=r"CountMinFn: error must be from 1e-6 to 1, got 0; 0\.001 takes 109 kB"):
        CountMinFn(0)
    with pytest.raises(ValueError, match="FrequencyFn: confidence must be between 0 and 1, got 99"):
        FrequencyFn("a", confidence=99)
    with pytest.raises(ValueError, match=r"FrequencyFn: of must be a value or several, got \(\)"):
        FrequencyFn(())
