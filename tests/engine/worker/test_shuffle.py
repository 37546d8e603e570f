"""Into a shuffle: rows and accumulators say all that the other side needs, however the pairs were bundled."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.columns.cells import decode_cells
from headrace.engine.worker import shuffle
from headrace.engine.worker.blame import WorkerFailure
from headrace.engine.worker.bundles import Bundle
from headrace.engine.worker.hidden import END, START, TIME
from headrace.engine.worker.shuffle import KEY, SPELLING, VALUE, FromRows, ToAccumulators, ToRows, shuffle_schema
from headrace.model.algebra import CollectFn, CountFn, FirstFn, LastFn, MaxFn, MeanFn, SumFn, combine_fn
from headrace.model.keys import decode_keys, encode_key
from headrace.model.panes import NO_PANE
from tests.reference import canonical_key, canonical_value

keys = st.sampled_from([1, 1.0, True, "a", "", None, float("nan"), b"a", (1, "x"), ("a", None), frozenset({1}), 2**70])
pairs = st.lists(st.tuples(keys, st.integers(-5, 5)), min_size=1, max_size=15)


def bundles(elements: list[Any], size: int, *, windowed: bool) -> list[Bundle]:
    """Elements in bundles; the i-th is at time i, and its windows are [i % 2, 2)."""
    made = []
    for at in range(0, len(elements), size):
        times = np.arange(at, min(at + size, len(elements)), dtype=np.int64)
        windows = (times % 2, np.full(len(times), 2)) if windowed else (None, None)
        made.append(Bundle(elements[at : at + size], times, *windows))
    return made


def rows(output: Any, parts: list[Bundle]) -> pa.Table:
    batches = [batch for part in parts for batch in output.add(part)]
    return pa.Table.from_batches([*batches, *output.finish()], schema=output.schema())


def keys_of(table: pa.Table) -> list[Any]:
    column, spelling = table.column(KEY).combine_chunks(), table.column(SPELLING).combine_chunks()
    return decode_keys(column, spelling)


@given(pairs, st.integers(1, 15), st.booleans(), st.booleans())
def test_pairs_are_rows(elements: list[Any], size: int, windowed: bool, timed: bool) -> None:
    output = ToRows("group", shuffle_schema(windowed=windowed, timed=timed))
    table = rows(output, bundles(elements, size, windowed=windowed))
    assert table.column(KEY).to_pylist() == [encode_key(key) for key, _ in elements]
    assert [canonical_value(key) for key in keys_of(table)] == [canonical_value(key) for key, _ in elements]
    assert list(map(type, keys_of(table))) == [type(key) for key, _ in elements]
    assert decode_cells(table.column(VALUE).combine_chunks()) == [value for _, value in elements]
    if timed:
        assert table.column(TIME).to_pylist() == list(range(len(elements)))
    if windowed:
        assert table.column(START).to_pylist() == [i % 2 for i in range(len(elements))]
        assert table.column(END).to_pylist() == [2] * len(elements)


@given(st.lists(st.one_of(st.integers(), st.text(), st.none()), min_size=1), st.integers(1, 9), st.booleans())
def test_elements_without_keys_go_there_and_back(elements: list[Any], size: int, windowed: bool) -> None:
    output = ToRows("spread", shuffle_schema(keyed=False, windowed=windowed, timed=True))
    parts = bundles(elements, size, windowed=windowed)
    batches = rows(output, parts).to_batches()
    back = list(FromRows(NO_PANE).bundles(iter(batches)))
    assert [e for b in back for e in b.elements] == elements
    assert [t for b in back for t in b.all_times().tolist()] == list(range(len(elements)))
    assert [w for b in back for w in b.windows()] == [w for b in parts for w in b.windows()]


FNS: list[Any] = [
    CountFn(),
    SumFn(),
    MeanFn(),
    MaxFn(),
    CollectFn(),
    FirstFn(),
    LastFn(),
    combine_fn(lambda a, b: a + b),
]


@pytest.mark.parametrize("held_keys", [1, 3, 1000])
@pytest.mark.parametrize("fn", FNS, ids=str)
@given(elements=pairs, size=st.integers(1, 15), windowed=st.booleans())
def test_accumulators_merge_to_the_whole(
    held_keys: int, fn: Any, elements: list[Any], size: int, windowed: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shuffle, "MAX_ACCUMULATORS", held_keys)
        output = ToAccumulators("total", fn, shuffle_schema(windowed=windowed, timed=False))
        table = rows(output, bundles(elements, size, windowed=windowed))
    accs: dict[Any, Any] = {}
    starts = table.column(START).to_pylist() if windowed else [0] * table.num_rows
    for key, start, cell in zip(
        table.column(KEY).to_pylist(), starts, decode_cells(table.column(VALUE).combine_chunks()), strict=True
    ):
        acc = fn.load(cell)
        accs[key, start] = fn.merge(accs[key, start], acc) if (key, start) in accs else acc
    wanted: dict[Any, list[Any]] = defaultdict(list)
    for i, (key, value) in enumerate(elements):
        wanted[encode_key(key), i % 2 if windowed else 0].append((i, value) if fn.timed else value)
    assert {at: canonical_value(fn.finish(acc)) for at, acc in accs.items()} == {
        at: canonical_value(fn.finish(fn.add_all(fn.zero(), values))) for at, values in wanted.items()
    }


def test_a_task_sends_each_key_once() -> None:
    output = ToAccumulators("total", SumFn(), shuffle_schema(windowed=False, timed=False))
    table = rows(output, bundles([("a", 1), ("b", 2)] * 50, 7, windowed=False))
    assert sorted(zip(keys_of(table), decode_cells(table.column(VALUE).combine_chunks()), strict=True)) == [
        ("a", 50),
        ("b", 100),
    ]


@given(pairs)
def test_keys_that_are_equal_in_python_are_combined_as_one(elements: list[Any]) -> None:
    output = ToAccumulators("n", CountFn(), shuffle_schema(windowed=False, timed=False))
    table = rows(output, bundles(elements, 100, windowed=False))
    plain = [key for key, _ in elements if key == key]
    assert len({canonical_key(key) for key in keys_of(table)}) == len({canonical_key(key) for key, _ in elements})
    assert sum(1 for key in keys_of(table) if key == key) == len(set(plain))


@pytest.mark.parametrize("bad", [1, "ab", (1,), (1, 2, 3), None, {1: 2}])
@pytest.mark.parametrize("fn", [None, SumFn(), CountFn(), FirstFn()], ids=str)
def test_what_is_no_pair_is_refused(bad: Any, fn: Any) -> None:
    schema = shuffle_schema(windowed=False, timed=False)
    output = ToRows("meet", schema) if fn is None else ToAccumulators("meet", fn, schema)
    with pytest.raises(WorkerFailure, match=r'"label": "meet".*must be pairs'):
        rows(output, [Bundle([("a", 1), bad])])


@pytest.mark.parametrize("key", [["x"], object()], ids=["list", "object"])
@pytest.mark.parametrize("fn", [None, SumFn(), CountFn()], ids=str)
def test_keys_without_an_encoding_are_refused_with_the_reason(key: Any, fn: Any) -> None:
    schema = shuffle_schema(windowed=False, timed=False)
    output = ToRows("meet", schema) if fn is None else ToAccumulators("meet", fn, schema)
    with pytest.raises(WorkerFailure, match=r'"label": "meet".*has no encoding'):
        rows(output, [Bundle([(key, 1)])])


def test_values_that_cannot_travel_name_the_transform() -> None:
    output = ToRows("meet", shuffle_schema(windowed=False, timed=False))
    with pytest.raises(WorkerFailure, match='"label": "meet"'):
        rows(output, [Bundle([("a", (x for x in "ab"))])])


def test_schemas_hold_only_what_is_needed() -> None:
    assert shuffle_schema(windowed=False, timed=False).names == [KEY, SPELLING, VALUE]
    assert shuffle_schema(windowed=True, timed=True).names == [KEY, SPELLING, START, END, TIME, VALUE]
    assert shuffle_schema(keyed=False, windowed=False, timed=True).names == [TIME, VALUE]
