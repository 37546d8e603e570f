"""Tests the laws of the exact aggregations over random values and splits, and their answers against plain Python."""

from __future__ import annotations

import copy
import datetime as dt
import itertools
import math
import operator
import pickle
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.algebra import (
    CallableFn,
    CollectFn,
    CombineFn,
    CountDistinctFn,
    CountFn,
    EitherFn,
    FirstFn,
    LastFn,
    MaxByFn,
    MaxFn,
    MeanFn,
    MeanOrNoneFn,
    MinByFn,
    MinFn,
    SampleFn,
    SumFn,
    SumOrNoneFn,
    TopFn,
    TupleFn,
    VarianceFn,
    VarianceOrNoneFn,
    combine_fn,
    tie_break,
)
from headrace.model.sketches import ApproxDistinctFn
from tests.scale import examples

INTS = st.integers(-50, 50)
FRACTIONS = st.fractions(-9, 9, max_denominator=9)
NUMBERS = st.sampled_from([-math.inf, -1.5, -0.0, 0.0, 0.5, 7.0, math.inf, math.nan, 3, True])
WORDS = st.text("abc", max_size=3)
TIMED = st.tuples(st.integers(0, 5), WORDS)
BY = st.tuples(st.none() | WORDS, st.none() | st.sampled_from([0.5, 1, 2.0, math.nan]))


def product(values: Sequence[int]) -> int:
    return math.prod(values)


# Each aggregation, the values to test it with, and its answer in plain Python.
CASES: list[tuple[CombineFn[Any, Any, Any], st.SearchStrategy[Any], Callable[[list[Any]], Any]]] = [
    (CountFn(), WORDS, len),
    (SumFn(), st.integers(), sum),
    (SumFn(), FRACTIONS, sum),
    (MeanFn(), FRACTIONS, lambda xs: sum(xs) / len(xs) if xs else math.nan),
    (VarianceFn(), FRACTIONS, lambda xs: statistics.variance(xs) if len(xs) > 1 else math.nan),
    (SumOrNoneFn(), FRACTIONS, lambda xs: sum(xs) if xs else None),
    (MeanOrNoneFn(), FRACTIONS, lambda xs: sum(xs) / len(xs) if xs else None),
    (VarianceOrNoneFn(), FRACTIONS, lambda xs: statistics.variance(xs) if len(xs) > 1 else None),
    (MinFn(), NUMBERS, lambda xs: min(xs, key=nan_last) if xs else None),
    (MaxFn(), NUMBERS, lambda xs: max(xs, key=nan_last) if xs else None),
    (MinFn(key=len), WORDS, lambda xs: min(xs, key=by_length) if xs else None),
    (MaxFn(key=len), WORDS, lambda xs: max(xs, key=by_length) if xs else None),
    (MinFn(key=abs), INTS, lambda xs: min(xs, key=lambda x: (abs(x), tie_break(x))) if xs else None),
    (FirstFn(), TIMED, lambda xs: min(xs, key=by_time)[1] if xs else None),
    (LastFn(), TIMED, lambda xs: max(xs, key=by_time)[1] if xs else None),
    (MinByFn(), BY, lambda xs: min(ranked(xs), key=by_rank)[0] if ranked(xs) else None),
    (MaxByFn(), BY, lambda xs: max(ranked(xs), key=by_rank)[0] if ranked(xs) else None),
    (TopFn(3), NUMBERS, lambda xs: sorted(xs, key=nan_last, reverse=True)[:3]),
    (TopFn(3, reverse=True), NUMBERS, lambda xs: sorted(xs, key=nan_last)[:3]),
    (TopFn(3, key=len), WORDS, lambda xs: sorted(xs, key=by_length, reverse=True)[:3]),
    (TopFn(3, key=len, reverse=True), WORDS, lambda xs: sorted(xs, key=by_length)[:3]),
    (CollectFn(), WORDS, list),
    (
        CountDistinctFn(),
        st.integers(-(2**65), 2**65) | st.integers(-(2**63), 2**63 - 1) | INTS,
        lambda xs: len(set(xs)),
    ),
    (CountDistinctFn(), WORDS, lambda xs: len(set(xs))),
    (CountDistinctFn(), NUMBERS | WORDS, lambda xs: len({"NaN" if x != x else x for x in xs})),
    (EitherFn(CountDistinctFn(), ApproxDistinctFn()), WORDS | INTS, lambda xs: len(set(xs))),
    (CallableFn(product), INTS, math.prod),
    (CallableFn(operator.add), INTS, lambda xs: sum(xs) if xs else None),
    (TupleFn(SumFn(), MaxFn(), CountFn()), INTS, lambda xs: (sum(xs), max(xs, default=None), len(xs))),
    (
        TupleFn(FirstFn(), MaxFn()),
        TIMED,
        lambda xs: (FirstFn().finish([min(xs, key=by_time)]), max(w for _, w in xs)) if xs else (None, None),
    ),
]


def nan_last(x: float) -> tuple[bool, float]:
    return (x != x, 0.0 if x != x else x)


def by_length(word: str) -> tuple[int, bytes]:
    return (len(word), tie_break(word))


def ranked(pairs: list[Any]) -> list[Any]:
    return [pair for pair in pairs if pair[1] is not None]


def by_rank(pair: tuple[Any, Any]) -> Any:
    return nan_last(pair[1]), tie_break(pair[0])


def by_time(pair: tuple[int, str]) -> tuple[int, bytes]:
    return (pair[0], tie_break(pair[1]))


def same(a: Any, b: Any) -> bool:
    """Whether two answers are equal; NaN equals NaN."""
    if isinstance(a, list | tuple) and type(a) is type(b):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b or (a != a and b != b)


def answer(fn: CombineFn[Any, Any, Any], acc: Any) -> Any:
    """Returns the result of `fn`; a collected list is sorted, as it has no particular order."""
    result = fn.finish(acc)
    return sorted(result) if isinstance(fn, CollectFn) else result


def added(fn: CombineFn[Any, Any, Any], values: Sequence[Any]) -> Any:
    acc = fn.zero()
    for value in values:
        acc = fn.add(acc, value)
    return acc


def each_case(test: Callable[..., None]) -> Callable[..., None]:
    """Tests a law with every case; with few examples of each, as there are many cases."""
    ids = [f"{fn!r}-{number}" for number, (fn, _, _) in enumerate(CASES)]
    parametrized = pytest.mark.parametrize(("fn", "values", "reference"), CASES, ids=ids)
    return parametrized(examples(20)(given(data=st.data())(test)))


def lists_of(data: st.DataObject, values: st.SearchStrategy[Any], count: int) -> list[list[Any]]:
    """Draws random lists; the first is sometimes long enough for a callable's accumulator to be compacted."""
    first = data.draw(st.lists(values, max_size=12)) * data.draw(st.sampled_from([1, 1, 1, 8]))
    return [first, *(data.draw(st.lists(values, max_size=8)) for _ in range(count - 1))]


@each_case
def test_any_split_gives_the_same_answer(fn, values, reference, data):
    parts = lists_of(data, values, 4)
    order = data.draw(st.permutations(range(4)))
    accs = [added(fn, parts[i]) if i % 2 else fn.add_all(fn.zero(), parts[i]) for i in order]
    while len(accs) > 1:
        at = data.draw(st.integers(0, len(accs) - 2))
        accs[at : at + 2] = [fn.merge(accs[at], accs[at + 1])]
    expected = reference(list(itertools.chain.from_iterable(parts)))
    assert same(answer(fn, accs[0]), sorted(expected) if isinstance(fn, CollectFn) else expected)


@each_case
def test_merge_is_associative_and_commutative(fn, values, reference, data):
    a, b, c = lists_of(data, values, 3)

    def acc(part):
        return added(fn, part)

    left = fn.merge(fn.merge(acc(a), acc(b)), acc(c))
    right = fn.merge(acc(a), fn.merge(acc(b), acc(c)))
    assert same(answer(fn, left), answer(fn, right))
    assert same(answer(fn, fn.merge(acc(a), acc(b))), answer(fn, fn.merge(acc(b), acc(a))))


@each_case
def test_zero_is_neutral_and_new_each_time(fn, values, reference, data):
    (part,) = lists_of(data, values, 1)
    expected = answer(fn, added(fn, part))
    assert same(answer(fn, fn.merge(fn.zero(), added(fn, part))), expected)
    assert same(answer(fn, fn.merge(added(fn, part), fn.zero())), expected)
    assert same(answer(fn, fn.zero()), answer(fn, added(fn, [])))


@each_case
def test_add_is_merge_with_one(fn, values, reference, data):
    (part,), value = lists_of(data, values, 1), data.draw(values)
    merged = fn.merge(added(fn, part), fn.add(fn.zero(), value))
    assert same(answer(fn, fn.add(added(fn, part), value)), answer(fn, merged))


@each_case
def test_add_by_key_is_add_for_each_key(fn, values, reference, data):
    parts = dict(enumerate(lists_of(data, values, 3)))
    pairs = data.draw(st.permutations([(key, value) for key, part in parts.items() for value in part]))
    accumulators = {0: added(fn, parts[0])}
    fn.add_by_key(accumulators, iter(pairs))
    for key in parts:
        of_key = [value for k, value in pairs if k == key]
        if key in accumulators:
            assert same(answer(fn, accumulators[key]), answer(fn, added(fn, (parts[0] if key == 0 else []) + of_key)))
        else:
            assert not of_key


@each_case
def test_add_all_is_repeated_add(fn, values, reference, data):
    first, rest = lists_of(data, values, 2)
    assert same(answer(fn, fn.add_all(added(fn, first), rest)), answer(fn, added(fn, first + rest)))
    assert same(answer(fn, fn.add_all(added(fn, rest), first)), answer(fn, added(fn, rest + first)))


@each_case
def test_subtract_undoes_add(fn, values, reference, data):
    (part,), value = lists_of(data, values, 1), data.draw(values)
    if fn.invertible:
        undone = fn.subtract(fn.add(added(fn, part), value), value)
        assert same(answer(fn, undone), answer(fn, added(fn, part)))
    else:
        with pytest.raises(NotImplementedError, match="has no subtract; merge"):
            fn.subtract(added(fn, part), value)


@each_case
def test_an_accumulator_travels(fn, values, reference, data):
    first, rest = lists_of(data, values, 2)
    acc = fn.load(pickle.loads(pickle.dumps(fn.dump(added(fn, first)))))
    assert same(answer(fn, acc), answer(fn, added(fn, first)))
    assert same(answer(fn, fn.add_all(acc, rest)), answer(fn, added(fn, first + rest)))


@each_case
def test_finish_and_merge_do_not_change_their_arguments(fn, values, reference, data):
    first, rest = lists_of(data, values, 2)
    acc, other = added(fn, first), added(fn, rest)
    before, other_before = copy.deepcopy(fn.dump(acc)), copy.deepcopy(fn.dump(other))
    early = fn.finish(acc)
    assert same(fn.dump(acc), before)
    copied = copy.deepcopy(early)
    merged = fn.merge(acc, other)
    fn.add_all(merged, first)
    assert same(fn.dump(other), other_before)
    assert same(early, copied)


def test_which_aggregations_can_subtract():
    invertible = {type(fn).__name__ for fn, _, _ in CASES if fn.invertible}
    assert invertible == {"CountFn", "SumFn", "MeanFn", "SumOrNoneFn", "MeanOrNoneFn"}


@given(st.lists(st.floats(-1e6, 1e6)), st.lists(st.floats(-1e6, 1e6)))
def test_mean_and_variance_of_floats(a, b):
    values = a + b
    mean = MeanFn().merge(added(MeanFn(), a), MeanFn().add_all((0, 0), b))
    assert (
        math.isclose(MeanFn().finish(mean), statistics.fmean(values) if values else math.nan, abs_tol=1e-6)
        or not values
    )
    variance = VarianceFn().finish(VarianceFn().merge(added(VarianceFn(), a), VarianceFn().add_all((0, 0, 0), b)))
    if len(values) < 2:
        assert math.isnan(variance)
    else:
        assert math.isclose(variance, statistics.variance(values), rel_tol=1e-9, abs_tol=1e-6)


def test_variance_does_not_cancel_far_from_zero():
    values = [1e9 + x for x in (4, 7, 13, 16)]
    assert VarianceFn().finish(added(VarianceFn(), values)) == pytest.approx(30.0)


@pytest.mark.parametrize(
    ("values", "total"),
    [
        ([], 0),
        ([2**200, 1], 2**200 + 1),
        ([Decimal("0.1"), Decimal("0.2")], Decimal("0.3")),
        ([Fraction(1, 3), 1], Fraction(4, 3)),
        ([dt.timedelta(1), dt.timedelta(2)], dt.timedelta(3)),
        ([0.5, 0.25], 0.75),
    ],
)
def test_sum_accepts_all_values_with_a_plus(values, total):
    fn = SumFn()
    assert fn.finish(added(fn, values)) == total
    assert fn.finish(fn.add_all(fn.zero(), values)) == total
    assert fn.merge(fn.zero(), added(fn, values)) == fn.merge(added(fn, values), fn.zero()) == total


def test_mean_of_durations():
    assert MeanFn().finish(added(MeanFn(), [dt.timedelta(1), dt.timedelta(3)])) == dt.timedelta(2)


@pytest.mark.parametrize("value", ["text", [1], None, object()])
def test_sum_refuses_values_whose_plus_does_not_commute(value):
    for add in (lambda: SumFn().add(0, value), lambda: SumFn().add_all(0, [value])):
        with pytest.raises(TypeError, match=r"SumFn: values need a \+ that commutes, got .*; map them"):
            add()


def test_accumulators_of_counts_and_sums_are_plain():
    assert type(added(CountFn(), "ab")) is int
    assert type(added(SumFn(), [1, 2])) is int
    assert added(MeanFn(), [1, 2]) == (3, 2)


def test_answers_for_no_values():
    empty = {fn: fn.finish(fn.zero()) for fn in (CountFn(), SumFn(), MinFn(), MaxFn(), FirstFn(), LastFn())}
    assert list(empty.values()) == [0, 0, None, None, None, None]
    assert math.isnan(MeanFn().finish(MeanFn().zero()))
    assert math.isnan(VarianceFn().finish(VarianceFn().add(VarianceFn().zero(), 1)))
    assert TopFn(2).finish(TopFn(2).zero()) == CollectFn().finish(CollectFn().zero()) == []


@dataclass(frozen=True)
class Job:
    """A job, ordered by urgency alone, so that different jobs can tie."""

    urgency: int
    name: str

    def __lt__(self, other: Job) -> bool:
        return self.urgency < other.urgency


@pytest.mark.parametrize("fn", [MinFn(), MaxFn(), TopFn(2), TopFn(2, reverse=True)], ids=repr)
def test_values_that_tie_without_being_equal_do_not_depend_on_order(fn):
    jobs = [Job(1, "a"), Job(1, "b"), Job(1, "c"), Job(0, "d"), Job(2, "e"), Job(2, "f"), Job(0, "g")]
    answers = {
        repr(fn.finish(fn.add_all(fn.zero(), order)))
        for order in itertools.islice(itertools.permutations(jobs), 0, None, 17)
    }
    assert len(answers) == 1


def test_ties_between_values_without_a_key_encoding():
    fn = TopFn(1, key=len)
    assert fn.finish(added(fn, [[1], [2]])) == fn.finish(added(fn, [[2], [1]])) == [[2]]


def test_top_stores_at_most_n_values():
    fn = TopFn(3)
    acc = fn.merge(fn.add_all(fn.zero(), range(1000)), fn.add_all(fn.zero(), range(500, 2000)))
    assert len(acc) == 3
    assert fn.finish(acc) == [1999, 1998, 1997]


def test_top_of_the_autocompletion_example():
    fn = TopFn(3)
    assert fn.finish(added(fn, [(2, "this"), (1, "that"), (3, "to")])) == [
        (3, "to"),
        (2, "this"),
        (1, "that"),
    ]


@pytest.mark.parametrize("n", [0, -1, 1.5, "3"])
@pytest.mark.parametrize("kind", [TopFn, SampleFn])
def test_sizes_must_be_positive(kind, n):
    with pytest.raises(ValueError, match=rf"{kind.__name__}: n must be a positive integer, got {n!r}; give a size"):
        kind(n)


@given(st.lists(WORDS), st.lists(WORDS), st.integers(1, 5), st.integers())
def test_a_sample_is_part_of_the_values_and_repeatable(a, b, n, seed):
    def sample():
        fn = SampleFn(n, seed)
        return fn.finish(fn.merge(added(fn, a), fn.load(fn.dump(fn.add_all(fn.zero(), b)))))

    values = sample()
    assert len(values) == min(n, len(a) + len(b))
    assert Counter(values) <= Counter(a + b)
    assert values == sample()


@given(st.lists(WORDS), st.integers(1, 5))
def test_zero_is_neutral_for_a_sample(values, n):
    fn = SampleFn(n)
    expected = fn.finish(added(fn, values))
    assert fn.finish(fn.merge(added(fn, values), fn.zero())) == expected
    assert fn.finish(fn.merge(fn.zero(), added(fn, values))) == expected


def in_one(fn, values):
    return added(fn, values)


def in_two_halves(fn, values):
    middle = len(values) // 2
    return fn.merge(added(fn, values[:middle]), added(fn, values[middle:]))


def in_uneven_thirds(fn, values):
    return fn.merge(added(fn, values[:1]), fn.merge(added(fn, values[1:3]), added(fn, values[3:])))


def one_by_one(fn, values):
    acc = fn.zero()
    for value in values:
        acc = fn.merge(acc, fn.add(fn.zero(), value))
    return acc


@pytest.mark.parametrize("build", [in_one, in_two_halves, in_uneven_thirds, one_by_one])
def test_every_sample_of_two_is_equally_likely(build):
    values, seeds = list(range(8)), 2800
    drawn = Counter(tuple(sorted(fn.finish(build(fn, values)))) for fn in (SampleFn(2, seed) for seed in range(seeds)))
    pairs = list(itertools.combinations(values, 2))
    expected = seeds / len(pairs)
    chi_square = sum((drawn[pair] - expected) ** 2 / expected for pair in pairs)
    assert set(drawn) == set(pairs)
    assert chi_square < 55.5  # the 99.9 % quantile for 27 degrees of freedom


def test_parts_of_the_data_do_not_keep_the_same_places():
    """Parts of equal length must not be sampled at the same positions, also for records without a key encoding."""
    lockstep = 0
    for seed in range(400):
        fn = SampleFn(1, seed)
        (left,), (right,) = (fn.finish(added(fn, [{"part": p, "at": i} for i in range(10)])) for p in "ab")
        lockstep += left["at"] == right["at"]
    assert 20 < lockstep < 65  # 40 if independent


def test_callables_of_two_and_of_many():
    assert CallableFn(operator.mul).binary and CallableFn(lambda a, b: a + b).binary
    assert not CallableFn(any).binary and not CallableFn(max).binary and not CallableFn(product).binary
    assert not CallableFn(lambda xs, start=0: sum(xs, start)).binary


def test_a_callable_stores_few_values():
    for fn in (CallableFn(product), CallableFn(operator.add)):
        acc = fn.zero()
        for _ in range(1000):
            acc = fn.add(acc, 1)
            assert len(acc) < 64


def test_a_callable_that_fails_for_no_values():
    assert CallableFn(operator.add).finish([]) is None
    assert CallableFn(all).finish([]) is True
    with pytest.raises(
        ValueError, match=r"CallableFn\(<lambda>\): the function failed for no values with .*; let it accept"
    ):
        CallableFn(lambda xs: max(xs)).finish([])


def test_candles_of_timed_and_untimed_aggregations():
    candle = TupleFn(FirstFn(), MaxFn(), MinFn(), LastFn(), CountFn())
    assert candle.timed and not TupleFn(MinFn(), MaxFn()).timed
    prices = [(30, 7), (10, 5), (20, 9), (40, 6)]
    assert candle.finish(added(candle, prices)) == (5, 9, 5, 6, 4)
    assert candle.finish(candle.add_all(candle.zero(), prices)) == (5, 9, 5, 6, 4)


def test_a_tuple_needs_aggregations():
    with pytest.raises(ValueError, match="at least one aggregation, got none; give"):
        TupleFn()


@pytest.mark.parametrize(
    ("function", "fn"),
    [
        (sum, SumFn()),
        (min, MinFn()),
        (max, MaxFn()),
        (len, CountFn()),
        (list, CollectFn()),
        (statistics.mean, MeanFn()),
        (statistics.fmean, MeanFn()),
        (statistics.variance, VarianceFn()),
        (MeanFn, MeanFn()),
        (TopFn(2), TopFn(2)),
        (any, CallableFn(any)),
        (operator.or_, CallableFn(operator.or_)),
    ],
)
def test_combine_fn_converts_functions_and_classes(function, fn):
    assert combine_fn(function) == fn


@pytest.mark.parametrize("wrong", [3, "sum", None])
def test_combine_fn_refuses_other_objects(wrong):
    with pytest.raises(TypeError, match=rf"takes a CombineFn or a callable, got {wrong!r}; give e.g. sum"):
        combine_fn(wrong)


@pytest.mark.parametrize("wrong", [sorted, set, tuple, statistics.median])
def test_functions_that_are_not_associative_are_refused(wrong):
    with pytest.raises(TypeError, match=f"{wrong.__name__} is not associative; use CollectFn"):
        combine_fn(wrong)


def test_a_class_that_needs_arguments_is_refused():
    with pytest.raises(TypeError, match=r"TopFn.*'n'"):
        combine_fn(TopFn)


@pytest.mark.parametrize(
    ("fn", "text"),
    [
        (SumFn(), "SumFn()"),
        (TopFn(3), "TopFn(3)"),
        (TopFn(3, key=len, reverse=True), "TopFn(3, key=len, reverse=True)"),
        (MinFn(), "MinFn()"),
        (SampleFn(2, seed=5), "SampleFn(2, seed=5)"),
        (CallableFn(any), "CallableFn(any)"),
        (TupleFn(sum, TopFn(1)), "TupleFn(SumFn(), TopFn(1))"),
    ],
)
def test_aggregations_are_readable_values(fn, text):
    assert repr(fn) == text
    assert pickle.loads(pickle.dumps(fn)) == fn
    assert hash(copy.copy(fn)) == hash(fn)


def test_different_aggregations_differ():
    assert MinFn() != MaxFn() and TopFn(2) != TopFn(3) and TupleFn(min, max) != TupleFn(max, min)
