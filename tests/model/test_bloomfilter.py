"""Tests Bloom filters: nothing is missed, and false positives are as rare as they should be."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.sketches import BloomFilter, BloomFn
from tests.scale import examples

VALUES = st.lists(st.text(max_size=3) | st.integers() | st.binary(max_size=2), max_size=50)


def bloom(values: Any, *arguments: Any) -> BloomFilter:
    fn = BloomFn(*arguments)
    return BloomFilter(fn.finish(fn.add_all(fn.zero(), list(values))))


@examples(100)
@given(VALUES, VALUES)
def test_every_value_is_found(here: list[Any], there: list[Any]) -> None:
    both = bloom(here, 10, 0.1) | bloom(there, 10, 0.1)
    assert all(value in both for value in [*here, *there])
    assert both == bloom([*here, *there], 10, 0.1)


@pytest.mark.parametrize(("items", "false_positives"), [(1000, 0.01), (5000, 0.1), (300, 0.001), (10, 0.5)])
def test_false_positives_are_as_rare_as_stated(items: int, false_positives: float) -> None:
    fn = BloomFn(items, false_positives)
    filters, trials = max(1, 3000 // items), 20_000
    found = rate = 0.0
    for seed in range(filters):
        made = bloom([f"{seed}-{number}" for number in range(items)], items, false_positives)
        found += sum(f"{seed}-other {number}" in made for number in range(trials // filters))
        rate += made.false_positives / filters
    deviation = (false_positives / trials) ** 0.5
    assert found / trials <= 1.1 * false_positives + 4 * deviation  # whole numbers of hashes cost up to a tenth
    assert rate == pytest.approx(found / trials, abs=5 * deviation, rel=0.2)
    assert len(fn.finish(fn.zero())) == pytest.approx(items * 1.44 * -math.log2(false_positives) / 8, rel=0.01, abs=12)


def test_a_full_filter_says_so() -> None:
    assert bloom([], 100).false_positives == 0
    assert bloom(range(100), 100).false_positives == pytest.approx(0.01, rel=0.5)
    assert bloom(range(10_000), 100).false_positives > 0.99


def test_equal_values_are_one() -> None:
    assert bloom([1, "a"]) == bloom([1.0, True, "a"])
    assert "1" not in bloom([1]) and b"a" not in bloom(["a"])
    assert len({bloom(["a"]), bloom(["a", "a"])}) == 1


def test_wrong_arguments_are_refused() -> None:
    data = bytes(bloom(["a"], 10))
    for wrong in (b"", b"x" * 40, data[:-1], data + b"\0", data[:2] + b"\0\0" + data[4:]):
        with pytest.raises(ValueError, match="these are not the bytes of a Bloom filter"):
            BloomFilter(wrong)
    with pytest.raises(ValueError, match="of different sizes have no union"):
        _ = bloom([], 10) | bloom([], 100)
    with pytest.raises(ValueError, match="items must be positive, got 0"):
        BloomFn(0)
    with pytest.raises(ValueError, match="false_positives must be between 0 and 1, got 1"):
        BloomFn(false_positives=1)
    with pytest.raises(ValueError, match="items take 1142 MB, and 128 are allowed"):
        BloomFn(10**9)
