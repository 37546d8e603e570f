"""Groups out of sorted rows, without Spark: at every batch size, and streamed where a group is large."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.engine.worker import grouped as grouped_module
from headrace.engine.worker.bundles import Bundle
from headrace.engine.worker.grouped import (
    CombinedValues,
    GroupedValues,
    SortedGroups,
    grouping_kind,
    needs_times,
    sort_columns,
)
from headrace.engine.worker.program import Output
from headrace.engine.worker.shuffle import KEY, ORDER, ToAccumulators, ToRows, shuffle_schema
from headrace.model.algebra import CollectFn, CombineFn, CountFn, FirstFn, LastFn, MeanFn, SumFn, combine_fn
from headrace.model.panes import GLOBAL, ONLY_PANE, Windowing
from headrace.model.times import MAX_TIME, SECOND
from tests.reference import Element, combine_per_key, group_by_key, multiset, window_into

FIXED = Windowing(hr.FixedWindows(10))
LATEST = Windowing(hr.FixedWindows(10), timestamp_combiner="latest")
SESSIONS = Windowing(hr.Sessions(10))


class Pairwise(hr.WindowFn):
    """Merges windows two by two, which no running maximum can."""

    merging = True

    def windows_of(self, time: int, key: object) -> list[tuple[int, int]]:
        return [(time, time + 1)]

    def merge(self, windows: Any) -> list[list[int]]:
        return [list(range(at, min(at + 2, len(windows)))) for at in range(0, len(windows), 2)]


WINDOWINGS = [
    Windowing(window, timestamp_combiner=combiner)
    for window in (hr.GlobalWindows(), hr.FixedWindows(10), hr.SlidingWindows(10, 5), hr.Sessions(5), Pairwise())
    for combiner in ("end_of_window", "earliest", "latest")
]


def elements(data: list[tuple[Any, Any, int]], windowing: Windowing) -> list[Element]:
    """(key, value, seconds) as windowed pairs."""
    timed = [Element((key, value), seconds * SECOND) for key, value, seconds in data]
    return list(window_into(timed, windowing))


def bundle(pairs: list[Element], *, windowed: bool) -> Bundle:
    times, windows = [e.timestamp for e in pairs], np.array([e.window for e in pairs], np.int64).reshape(-1, 2)
    starts, ends = windows.T if windowed else (None, None)
    return Bundle([e.value for e in pairs], np.array(times, np.int64), starts, ends)


def shuffled(output: Output, pairs: list[Element], order: list[str], *, per_bundle: int = 3) -> pa.Table:
    """The rows that an exchange delivers: those of every bundle, sorted."""
    windowed = "__start" in output.schema().names
    batches: list[pa.RecordBatch] = []
    for at in range(0, len(pairs), per_bundle):
        batches += output.add(bundle(pairs[at : at + per_bundle], windowed=windowed))
        batches += output.finish()
    rows = pa.Table.from_batches(batches, schema=output.schema()).to_pylist()
    return pa.Table.from_pylist(sorted(rows, key=lambda row: [row[n] for n in order]), schema=output.schema())


def batched(table: pa.Table, size: int) -> Iterator[pa.RecordBatch]:
    """Batches of this size, with empty ones in between, as Spark may deliver them."""
    for at in range(0, table.num_rows, size):
        yield from table.slice(at, size).combine_chunks().to_batches()
        yield pa.RecordBatch.from_pylist([], schema=table.schema)


def windowed_elements(head: SortedGroups, batches: Iterator[pa.RecordBatch]) -> list[Element]:
    """What a head gives. Values are read before the next group is asked for, as they must be."""
    elements = []
    for made in head.bundles(batches):
        for value, time, window in zip(made.elements, made.all_times().tolist(), made.windows(), strict=True):
            copied = (value[0], list(value[1])) if isinstance(head, GroupedValues) else value
            elements.append(Element(copied, time, hr.Window(*window), made.pane))
    return elements


def grouped(pairs: list[Element], windowing: Windowing, size: int) -> list[Element]:
    schema = shuffle_schema(
        windowed=not windowing.is_global, timed=needs_times(windowing), ordered=ORDER in sort_columns(windowing)
    )
    rows = shuffled(ToRows("group", schema), pairs, sort_columns(windowing))
    return windowed_elements(GroupedValues("group", windowing), batched(rows, size))


def combined(pairs: list[Element], windowing: Windowing, fn: CombineFn[Any, Any, Any], size: int) -> list[Element]:
    timed = needs_times(windowing)
    schema = shuffle_schema(windowed=not windowing.is_global, timed=timed, ordered=ORDER in sort_columns(windowing))
    output = ToRows("sum", schema) if timed else ToAccumulators("sum", fn, schema)
    rows = shuffled(output, pairs, sort_columns(windowing))
    return windowed_elements(CombinedValues("sum", windowing, fn, lifted=not timed), batched(rows, size))


data = st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(-5, 5), st.integers(0, 40)), max_size=20)


@given(data, st.sampled_from(WINDOWINGS), st.integers(1, 25))
def test_groups_at_every_batch_size(rows: list[Any], windowing: Windowing, size: int) -> None:
    pairs = elements(rows, windowing)
    groups = grouped(pairs, windowing, size)
    assert multiset(groups) == multiset(group_by_key(pairs, windowing))
    assert all(group.pane == ONLY_PANE for group in groups)


FNS = [CountFn(), SumFn(), MeanFn(), CollectFn(), FirstFn(), LastFn(), combine_fn(lambda a, b: a * b)]


@given(data, st.sampled_from(WINDOWINGS), st.sampled_from(FNS), st.integers(1, 25))
def test_combines_at_every_batch_size(rows: list[Any], windowing: Windowing, fn: Any, size: int) -> None:
    pairs = elements(rows, windowing)
    assert multiset(combined(pairs, windowing, fn, size)) == multiset(combine_per_key(pairs, windowing, fn))


@given(data, st.integers(1, 5), st.integers(1, 25), st.sampled_from(["end_of_window", "earliest", "latest"]))
def test_count_windows_at_every_batch_size(rows: list[Any], n: int, size: int, combiner: Any) -> None:
    windowing = Windowing(hr.CountWindows(n), timestamp_combiner=combiner)
    once = {(key, time): (key, value, time) for key, value, time in rows}  # so that the order is known
    pairs = elements(list(once.values()), windowing)
    assert multiset(grouped(pairs, windowing, size)) == multiset(group_by_key(pairs, windowing))
    assert multiset(combined(pairs, windowing, SumFn(), size)) == multiset(combine_per_key(pairs, windowing, SumFn()))


def test_count_windows_number_from_zero_even_if_elements_were_counted_before() -> None:
    windowing = Windowing(hr.CountWindows(2))
    before = [Element(("k", i), i * SECOND, hr.Window(4, 6)) for i in range(3)]
    assert [tuple(e.window) for e in grouped(before, windowing, 2)] == [(0, 2), (2, 4)]


def test_a_global_group_has_the_last_instant() -> None:
    (only,) = grouped(elements([("a", 1, 3)], GLOBAL), GLOBAL, 10)
    assert only.timestamp == MAX_TIME - 1


@pytest.mark.parametrize(
    ("window", "runs"),
    [
        (hr.GlobalWindows(), "same"),
        (hr.FixedWindows(1), "same"),
        (hr.Sessions(1), "overlapping"),
        (Pairwise(), "custom"),
        (hr.CountWindows(2), "counted"),
    ],
)
def test_runs(window: hr.WindowFn, runs: str) -> None:
    assert grouping_kind(window) == runs


def test_sort_order_and_times_are_what_the_windowing_needs() -> None:
    assert sort_columns(GLOBAL) == [KEY]
    assert sort_columns(FIXED) == [KEY, "__start", "__end"]
    assert sort_columns(Windowing(hr.CountWindows(2))) == [KEY, "__time", "order"]
    assert not needs_times(FIXED)
    assert needs_times(LATEST)


# Large groups


SIZES = {"a": 2, "b": 23, "c": 1, "d": 17, "e": 1, "f": 2}


def large(windowing: Windowing = GLOBAL, *, size: int = 4, timed: bool = False) -> Iterator[Bundle]:
    """Groups of these sizes, in batches of `size` rows."""
    pairs = elements([(key, i, 0) for key, count in SIZES.items() for i in range(count)], windowing)
    schema = shuffle_schema(windowed=not windowing.is_global, timed=timed or needs_times(windowing))
    table = shuffled(ToRows("group", schema), pairs, sort_columns(windowing))
    return GroupedValues("group", windowing, timed=timed).bundles(batched(table, size))


READERS: dict[str, Any] = {
    "not at all": lambda values: None,
    "the first": lambda values: next(iter(values)),
    "some": lambda values: list(itertools.islice(values, 9)),
    "all": list,
    "twice": lambda values: (list(values), list(values)),
    "two at once": lambda values: list(zip(values, values, strict=True)),
    "its length": len,
    "the last": lambda values: values[-1],
    "by position": lambda values: values[min(11, len(values) - 1)],
    "a slice": lambda values: values[1:3],
    "part, then all": lambda values: (list(itertools.islice(values, 3)), list(values)),
    "whether it holds": lambda values: 5 in values,
}


@pytest.mark.parametrize("windowing", [GLOBAL, FIXED, LATEST, SESSIONS])
@pytest.mark.parametrize("size", [1, 3, 4, 7, 50])
@pytest.mark.parametrize("how", READERS)
def test_large_groups_are_read_in_any_way_and_the_next_one_is_right(
    monkeypatch: pytest.MonkeyPatch, windowing: Windowing, size: int, how: str
) -> None:
    monkeypatch.setattr(grouped_module, "LARGE_GROUP", 5)
    keys = []
    for made in large(windowing, size=size):
        for key, values in made.elements:
            expected = sorted(range(SIZES[key]))
            keys.append(key)
            READERS[how](values)
            if how in ("all", "twice", "part, then all", "its length"):
                assert sorted(values) == expected
                assert len(values) == len(expected)
    assert keys == list(SIZES)


def test_a_large_group_is_not_read_before_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grouped_module, "LARGE_GROUP", 5)
    pairs = elements([("a", i, 0) for i in range(90)], GLOBAL)
    rows = shuffled(ToRows("group", shuffle_schema(windowed=False, timed=False)), pairs, [KEY])
    read = 0

    def counted() -> Iterator[pa.RecordBatch]:
        nonlocal read
        for batch in batched(rows, 5):
            read += batch.num_rows
            yield batch

    made = next(iter(GroupedValues("group", GLOBAL).bundles(counted())))
    ((_, values),) = made.elements
    assert read < 20
    assert sum(1 for _ in values) == 90
    assert read == 90


def test_a_position_beyond_a_large_group_is_an_index_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grouped_module, "LARGE_GROUP", 5)
    for made in large():
        for key, values in made.elements:
            with pytest.raises(IndexError):
                values[SIZES[key]]
            with pytest.raises(IndexError):
                values[-SIZES[key] - 1]


def test_large_groups_with_times_give_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grouped_module, "LARGE_GROUP", 5)
    groups = {key: sorted(values) for made in large(timed=True) for key, values in made.elements}
    assert groups == {key: [(0, i) for i in range(size)] for key, size in SIZES.items()}


def test_a_large_session_spans_all_its_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grouped_module, "LARGE_GROUP", 3)
    pairs = elements([("k", i, 4 * i) for i in range(20)] + [("k", -1, 200)], SESSIONS)
    assert multiset(grouped(pairs, SESSIONS, 2)) == multiset(group_by_key(pairs, SESSIONS))


@given(data, st.sampled_from(WINDOWINGS), st.integers(1, 9), st.integers(1, 6))
def test_large_or_not_makes_no_difference(rows: list[Any], windowing: Windowing, size: int, limit: int) -> None:
    pairs = elements(rows, windowing)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grouped_module, "LARGE_GROUP", limit)
        assert multiset(grouped(pairs, windowing, size)) == multiset(group_by_key(pairs, windowing))


# Sums


def sums(values: list[Any], *, per_bundle: int = 1, size: int = 100) -> Any:
    schema = shuffle_schema(windowed=False, timed=False)
    pairs = [Element(("k", value)) for value in values]
    rows = shuffled(ToAccumulators("sum", SumFn(), schema), pairs, [KEY], per_bundle=per_bundle)
    (only,) = windowed_elements(CombinedValues("sum", GLOBAL, SumFn(), lifted=True), batched(rows, size))
    assert only.value[0] == "k"
    return only.value[1]


@pytest.mark.parametrize("size", [1, 2, 100])
@pytest.mark.parametrize("per_bundle", [1, 2])
@pytest.mark.parametrize(
    "values",
    [
        [2**70, 1],
        [2**62] * 5,
        [-(2**63)] * 3,
        [2**63 - 1, 1],
        [-(2**63), -1, 2**63],
        [2**63 - 1, -(2**63 - 1), 5],
        [0],
        [1.5, 2],
        [True, True],
        [0.5, 2**70],
    ],
)
def test_sums_are_exact_beyond_64_bits(values: list[Any], per_bundle: int, size: int) -> None:
    total = sums(values, per_bundle=per_bundle, size=size)
    assert total == sum(values)
    assert type(total) is type(sum(values))


def test_a_failing_merge_names_the_transform() -> None:
    class Stubborn(SumFn):
        def merge(self, a: Any, b: Any) -> Any:
            raise RuntimeError("will not merge")

    schema = shuffle_schema(windowed=False, timed=False)
    pairs = [Element(("k", value)) for value in range(3)]
    rows = shuffled(ToAccumulators("total", Stubborn(), schema), pairs, [KEY], per_bundle=1)
    with pytest.raises(Exception, match=r"total.*will not merge"):
        windowed_elements(CombinedValues("total", GLOBAL, Stubborn(), lifted=True), batched(rows, 10))


def test_no_rows_give_no_groups() -> None:
    assert grouped([], FIXED, 3) == []
    assert combined([], GLOBAL, SumFn(), 3) == []
