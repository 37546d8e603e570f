"""Tests the approximate aggregations: within their stated errors, however the values are split."""

from __future__ import annotations

import datetime as dt
import enum
import math
import os
import pickle
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import datasketches as ds
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.algebra import CombineFn
from headrace.model.sketches import (
    ApproxDistinctFn,
    BloomFn,
    CountMinFn,
    FrequencyFn,
    HeavyHittersFn,
    HistogramFn,
    QuantileFn,
    QuantilesFn,
    RankFn,
    SecondMomentFn,
    ThetaFn,
)
from tests.scale import examples

MANY = 50_000
NUMBERS = st.lists(st.floats(-1e9, 1e9), max_size=40)
WORDS = st.lists(st.text("ab\u00fc\u20ac", max_size=3) | st.integers(-3, 3) | st.none(), max_size=40)
SMALL = [
    (ApproxDistinctFn(), WORDS),
    (QuantilesFn(5), NUMBERS),
    (QuantileFn(0.3), NUMBERS),
    (HeavyHittersFn(3), WORDS),
    (ThetaFn(), WORDS),
    (CountMinFn(), WORDS),
    (FrequencyFn(("a", 1)), WORDS),
    (SecondMomentFn(), WORDS),
    (BloomFn(100), WORDS),
    (RankFn((0.0, 7.5)), st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=40)),
    (HistogramFn(3), NUMBERS),
]


def added(fn: CombineFn[Any, Any, Any], values: Sequence[Any]) -> Any:
    acc = fn.zero()
    for value in values:
        acc = fn.add(acc, value)
    return acc


def answer(fn: CombineFn[Any, Any, Any], values: Sequence[Any]) -> Any:
    return fn.finish(fn.add_all(fn.zero(), values))


def in_parts(fn: CombineFn[Any, Any, Any], values: Sequence[Any], parts: int = 7) -> Any:
    """Aggregates in parts, each dumped and loaded, and merged as a tree."""
    accs = [fn.load(pickle.loads(pickle.dumps(fn.dump(fn.add_all(fn.zero(), values[i::parts]))))) for i in range(parts)]
    while len(accs) > 1:
        accs = [fn.merge(*accs[i : i + 2]) if i + 1 < len(accs) else accs[i] for i in range(0, len(accs), 2)]
    return fn.finish(accs[0])


def same(a: Any, b: Any) -> bool:
    return a == b or (a != a and b != b)


@pytest.mark.parametrize(("fn", "lists"), SMALL, ids=repr)
@examples(40)
@given(data=st.data())
def test_the_laws_hold_exactly_while_the_data_is_small(fn, lists, data):
    a, b, c = (data.draw(lists) for _ in range(3))
    expected = fn.finish(added(fn, a + b + c))
    assert same(fn.finish(fn.merge(fn.merge(added(fn, a), added(fn, b)), added(fn, c))), expected)
    assert same(fn.finish(fn.merge(added(fn, a), fn.merge(added(fn, c), added(fn, b)))), expected)
    assert same(fn.finish(fn.merge(fn.zero(), added(fn, a + b + c))), expected)
    assert same(fn.finish(fn.merge(added(fn, a + b + c), fn.zero())), expected)
    assert same(fn.finish(fn.add_all(added(fn, a), b + c)), expected)
    assert same(fn.finish(fn.load(fn.dump(added(fn, a + b + c)))), expected)
    if c:
        one_more = fn.merge(added(fn, a + b + c[:-1]), fn.add(fn.zero(), c[-1]))
        assert same(fn.finish(one_more), expected)


@pytest.mark.parametrize(("fn", "lists"), SMALL, ids=repr)
@examples(20)
@given(data=st.data())
def test_finish_and_merge_do_not_change_their_arguments(fn, lists, data):
    a, b = data.draw(lists), data.draw(lists)
    left, right = added(fn, a), added(fn, b)
    early, other = fn.finish(left), fn.finish(right)
    assert same(fn.finish(left), early)
    merged = fn.merge(left, right)
    fn.add_all(merged, a)
    assert same(fn.finish(right), other)


@pytest.mark.parametrize("fn", [fn for fn, _ in SMALL], ids=repr)
def test_sketches_do_not_subtract(fn):
    assert not fn.invertible


# Distinct values


@given(WORDS)
def test_few_distinct_values_are_counted_exactly(values):
    assert answer(ApproxDistinctFn(), values) == len(set(values))


class Colour(enum.StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    "equal",
    [
        (1, 1.0, True, np.True_, Decimal(1), Fraction(1), np.int64(1), np.float32(1), 1 + 0j),
        (0, -0.0, 0.0, False),
        (0.5, Fraction(1, 2), Decimal("0.5")),
        (2**63, float(2**63), Decimal(2**63)),
        (math.nan, float("nan"), np.float64("nan")),
        ("red", Colour.RED, np.str_("red")),
        ("\u00fc", np.str_("\u00fc")),
    ],
)
def test_equal_values_count_once(equal):
    assert answer(ApproxDistinctFn(), equal) == 1


def test_unequal_values_count_separately():
    values = [
        "",
        "1",
        1,
        b"1",
        None,
        "\ud800",
        ("1",),
        (1,),
        2**63,
        -(2**63),
        1.5,
        math.inf,
        dt.date(2024, 1, 1),
        frozenset(),
    ]
    assert answer(ApproxDistinctFn(), values) == len(values)


def test_strings_and_integers_are_hashed_as_spark_hashes_them():
    """Spark's hll_sketch_agg feeds UTF-8 strings and longs to a sketch of type HLL_8, as this one does."""
    for values in ([f"\u00fc{i}" for i in range(3000)], range(-1500, 1500)):
        spark = ds.hll_sketch(12, ds.HLL_8)
        for value in values:
            spark.update(value)
        fn = ApproxDistinctFn()
        assert fn.dump(fn.add_all(fn.zero(), values)) == spark.serialize_compact()


@pytest.mark.parametrize("lg_k", [10, 12, 14])
@pytest.mark.parametrize("name", [str, int, float, lambda i: (i, "x")])
def test_many_distinct_values_are_within_the_error(lg_k, name):
    values = [name(i) for i in range(MANY // 5)] * 2
    fn = ApproxDistinctFn(lg_k)
    four_sigma = 4 * 1.04 / math.sqrt(2**lg_k)
    assert answer(fn, values) == pytest.approx(MANY // 5, rel=four_sigma)
    assert in_parts(fn, values) == pytest.approx(MANY // 5, rel=four_sigma)


def test_a_dumped_sketch_is_small():
    fn = ApproxDistinctFn()
    assert type(fn.dump(fn.zero())) is bytes
    assert len(fn.dump(fn.add_all(fn.zero(), range(3)))) < 64
    assert len(fn.dump(fn.add_all(fn.zero(), range(MANY)))) < 4200


def test_values_without_an_encoding_are_refused():
    with pytest.raises(TypeError, match="a key of type list has no encoding"):
        answer(ApproxDistinctFn(), [[1]])


@pytest.mark.parametrize("lg_k", [3, 22])
def test_lg_k_has_bounds(lg_k):
    with pytest.raises(ValueError, match=f"lg_k must be from 4 to 21, got {lg_k}; 12 errs"):
        ApproxDistinctFn(lg_k)


# Quantiles


def quantile(values: Sequence[float], q: float) -> float:
    """Finds the smallest value that at least a fraction q of the values do not exceed."""
    return sorted(values)[max(math.ceil(q * len(values)) - 1, 0)]


@given(st.lists(st.integers(-100, 100), min_size=1, max_size=190), st.integers(2, 11), st.floats(0, 1))
def test_quantiles_of_few_values_are_exact(values, n, q):
    assert answer(QuantilesFn(n), values) == [quantile(values, i / (n - 1)) for i in range(n)]
    assert answer(QuantileFn(q), values) == quantile(values, q)


SHAPES = {
    "rising": list(range(MANY)),
    "shuffled": random.Random(1).sample(range(MANY), MANY),
    "skewed": [random.Random(2).paretovariate(1) + i * 1e-9 for i in range(MANY)],
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("split", [answer, in_parts])
def test_quantiles_of_many_values_are_within_the_rank_error(shape, split):
    values = SHAPES[shape]
    ordered = np.sort(np.array(values, dtype=float))
    points = split(QuantilesFn(11), values)
    assert points[0] == ordered[0] and points[-1] == ordered[-1]
    assert points == sorted(points)
    for i, point in enumerate(points):
        rank = np.searchsorted(ordered, point, side="right") / MANY
        assert rank == pytest.approx(i / 10, abs=2 * 0.0133)  # twice the 99 % bound: the bits are random


def test_one_quantile_of_many_values_is_within_the_rank_error():
    for q in (0.0, 0.01, 0.5, 0.99, 1.0):
        assert in_parts(QuantileFn(q), SHAPES["shuffled"]) / MANY == pytest.approx(q, abs=2 * 0.0133)


def test_quantiles_of_no_values():
    assert answer(QuantilesFn(3), []) == []
    assert math.isnan(answer(QuantileFn(0.5), []))
    assert answer(QuantilesFn(2), [math.nan]) == []


def test_quantiles_take_every_kind_of_number():
    values = [True, 2, 3.0, Decimal(4), Fraction(5), np.int64(6), np.float32(7)]
    assert (
        answer(QuantilesFn(7), values) == QuantilesFn(7).finish(added(QuantilesFn(7), values)) == [1, 2, 3, 4, 5, 6, 7]
    )


@pytest.mark.parametrize("wrong", ["1.5", None, 1j, 10**400])
def test_quantiles_refuse_other_values_than_numbers(wrong):
    for add in (QuantileFn(0.5).add, lambda acc, value: QuantileFn(0.5).add_all(acc, [1, value])):
        with pytest.raises(TypeError, match=r"QuantileFn: values must be numbers, got .*; map them to float"):
            add(QuantileFn(0.5).zero(), wrong)


def test_quantiles_check_their_arguments():
    with pytest.raises(ValueError, match="QuantilesFn: n must be at least 2, got 1; 5 gives the quartiles"):
        QuantilesFn(1)
    with pytest.raises(ValueError, match=r"QuantileFn: q must be from 0 to 1, got 50; 0\.5 gives the median"):
        QuantileFn(50)


# Heavy hitters


@given(WORDS, st.integers(1, 5))
def test_hitters_among_few_values_are_exact(values, k):
    hits = answer(HeavyHittersFn(k), values)
    counts = Counter(values)
    assert [count for _, count in hits] == sorted(counts.values(), reverse=True)[:k]
    assert all(counts[value] == count for value, count in hits)


@given(st.permutations(["a", "b", 1, 2.5, None, ("t", 1)]))
def test_hitters_that_tie_do_not_depend_on_order(values):
    assert answer(HeavyHittersFn(3), values) == answer(HeavyHittersFn(3), sorted(values, key=repr))


def skewed_words(count: int) -> list[str]:
    rng = random.Random(3)
    return [f"w{int(rng.paretovariate(0.25))}" for _ in range(count)]


@pytest.mark.parametrize("split", [answer, in_parts, lambda fn, values: fn.finish(added(fn, values))])
def test_hitters_among_many_values_are_within_the_bound(split):
    values, fn = skewed_words(MANY), HeavyHittersFn(10)
    exact = Counter(values)
    assert len(exact) > 4 * fn.counters  # or nothing is purged
    bound = MANY / fn.counters
    hits = split(fn, values)
    assert len(hits) == 10
    assert all(exact[value] - bound <= count <= exact[value] for value, count in hits)
    missed = max(count for value, count in exact.items() if value not in dict(hits))
    assert missed <= hits[-1][1] + bound


def test_hitters_have_a_bounded_number_of_counters():
    fn = HeavyHittersFn(3)
    acc = fn.merge(fn.add_all(fn.zero(), range(MANY)), added(fn, range(MANY, 2 * MANY)))
    assert len(acc) <= 2 * fn.counters


def test_answers_are_the_same_in_every_process():
    """Python's hash of a string differs between processes; the answers must not."""
    program = (
        "from tests.model.test_sketches import *\n"
        "values = skewed_words(20_000)\n"
        "for fn in (HeavyHittersFn(200), ThetaFn(10), CountMinFn(0.01), SecondMomentFn(), BloomFn()):\n"
        "    print(in_parts(fn, values))"
    )
    answers = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(answers) == 1


# Sketches whose bits do not depend on the split


@pytest.mark.parametrize("fn", [ThetaFn(8), CountMinFn(0.01), SecondMomentFn(), BloomFn(500)], ids=repr)
@examples(15)
@given(seed=st.integers(0, 2**32), distinct=st.sampled_from([3, 900, 1000, 1001, 5000]), parts=st.integers(1, 9))
def test_any_split_gives_the_same_bits(fn, seed, distinct, parts):
    draw = random.Random(seed)
    values = [f"v{draw.randrange(distinct)}" for _ in range(distinct)] + [f"v{i}" for i in range(distinct)]
    whole = fn.add_all(fn.zero(), values)
    accs = [fn.zero() for _ in range(parts)]
    for value in draw.sample(values, len(values)):
        at = draw.randrange(parts)
        accs[at] = fn.add(accs[at], value)
    while len(accs) > 1:
        b, a = (accs.pop(draw.randrange(len(accs))) for _ in range(2))
        accs.append(fn.merge(fn.load(fn.dump(a)) if draw.random() < 0.5 else a, b))
    assert fn.finish(accs[0]) == fn.finish(whole)
    assert fn.dump(accs[0]) == fn.dump(whole)
    assert fn.is_exact(accs[0]) == fn.is_exact(whole)


def test_hitters_check_their_argument():
    with pytest.raises(ValueError, match="HeavyHittersFn: k must be positive, got 0; 10 gives the top ten"):
        HeavyHittersFn(0)


@pytest.mark.parametrize(
    ("fn", "text"),
    [
        (ApproxDistinctFn(), "ApproxDistinctFn()"),
        (ApproxDistinctFn(14), "ApproxDistinctFn(lg_k=14)"),
        (QuantilesFn(5), "QuantilesFn(5)"),
        (QuantileFn(0.5), "QuantileFn(0.5)"),
        (HeavyHittersFn(3), "HeavyHittersFn(3)"),
        (ThetaFn(), "ThetaFn()"),
        (FrequencyFn("a"), "FrequencyFn('a')"),
        (RankFn((1, 2)), "RankFn((1, 2))"),
        (HistogramFn(), "HistogramFn()"),
        (BloomFn(100), "BloomFn(items=100)"),
    ],
)
def test_sketches_are_readable_values(fn, text):
    assert repr(fn) == text
    assert pickle.loads(pickle.dumps(fn)) == fn
