"""Accumulators as columns against the same as Python objects: the same answers, whatever the numbers."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.aggregation.accumulators import (
    Accumulators,
    IncomingRows,
    ObjectAccumulators,
    RowKind,
    accumulators,
)
from headrace.engine.aggregation.arrayaccumulators import ArrayAccumulators, encode_accumulators, load_accumulator
from headrace.engine.aggregation.columnsfn import ColumnsFn
from headrace.engine.aggregation.kernels import kernels_of
from headrace.engine.columns.arrays import runs
from headrace.engine.columns.cells import decode_cells, encode_cells
from headrace.engine.columns.numbercells import Numbers, write_records
from headrace.model.algebra import (
    CombineFn,
    CountFn,
    FirstFn,
    LastFn,
    MaxByFn,
    MaxFn,
    MeanFn,
    MeanOrNoneFn,
    MinByFn,
    MinFn,
    SumFn,
    SumOrNoneFn,
    TopFn,
    VarianceFn,
    VarianceOrNoneFn,
)
from headrace.model.schema import UTC_TIMES, column_values
from tests.scale import examples

Fn = CombineFn[Any, Any, Any]
UTC_VALUES = column_values(pa.array([0], UTC_TIMES))
SLOTS = 4
FNS: list[Fn] = [
    *(SumFn(), CountFn(), MeanFn(), MinFn(), MaxFn(), VarianceFn()),
    *(SumOrNoneFn(), MeanOrNoneFn(), VarianceOrNoneFn()),
]

ints = st.integers(-1000, 1000)
wide = st.one_of(ints, st.integers(-(2**63), 2**63 - 1), st.integers(-(2**70), 2**70))
floats = st.one_of(st.floats(-1e6, 1e6), st.sampled_from([0.0, math.inf, -math.inf, math.nan]))
tame = st.floats(-1e6, 1e6).filter(lambda x: x == 0 or abs(x) > 1e-6)
columns_of = st.sampled_from([ints, wide, floats, tame, st.one_of(ints, floats)])
few = st.sampled_from([None, 0, 1, 2, 2**63])
near = st.sampled_from([None, -0.5, 0.0, 1.5, math.nan, math.inf])
few_ints = st.sampled_from([0, 1, 2])
UTC = UTC_VALUES[0].tzinfo
times = st.one_of(
    st.sampled_from([dt.datetime.min.replace(tzinfo=UTC), dt.datetime.max.replace(tzinfo=UTC), UTC_VALUES[0]]),
    st.datetimes(dt.datetime(1969, 12, 31), dt.datetime(1970, 1, 2)).map(lambda time: time.replace(tzinfo=UTC, fold=0)),
)
OF_TIMES: list[Fn] = [MinFn(), MaxFn(), CountFn(), FirstFn(), LastFn(), SumFn()]
steps = st.sampled_from(["add", "add", "add", "merge", "clear", "store"])


def same(a: Any, b: Any) -> bool:
    """Ints to the last digit; floats but for the rounding of sums in another order."""
    if isinstance(a, tuple):
        return isinstance(b, tuple) and len(a) == len(b) and all(map(same, a, b))
    if a is None or b is None or (isinstance(a, int) and isinstance(b, int)):
        return a == b
    if isinstance(a, dt.datetime):
        return repr(a) == repr(b)  # with the same time zone
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    return math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-4)


def cells_of(values: list[Any], *, record: bool) -> pa.BinaryArray:
    """Values as whoever sends them would: rows of numbers as records, if they are."""
    if record and values:
        columns = [numbers_of(column) for column in zip(*values, strict=True)]
        if None not in columns:
            return write_records(columns)  # type: ignore[arg-type]
    return encode_cells(values)


def numbers_of(values: Any) -> Numbers | None:
    """Numbers, or times as they come from a column."""
    if all(value is None or isinstance(value, dt.datetime) for value in values):
        return Numbers.of_column(pa.array(values, UTC_TIMES))
    return Numbers.of(values)


def sent(fn: Fn, slots: list[int], values: list[Any], *, lifted: bool) -> tuple[np.ndarray, np.ndarray, IncomingRows]:
    """Runs of rows, of values or, lifted, of accumulators of one value or two."""
    order, starts = runs(np.array(slots, np.int64))
    ordered = [values[i] for i in order.tolist()]
    if lifted:
        accs = [fn.add_all(fn.zero(), [value] * (1 + i % 2)) for i, value in enumerate(ordered)]
        cells = encode_accumulators(fn, accs)
        times = [0] * len(values)
    else:
        times = [time for time, _ in ordered] if fn.timed else [0] * len(values)
        ordered = [value for _, value in ordered] if fn.timed else ordered
        cells = cells_of(ordered, record=isinstance(fn, ColumnsFn))
    return np.array(slots, np.int64)[order][starts], starts, IncomingRows(cells, np.array(times, np.int64))


def agree(fn: Fn, vectors: Accumulators, objects: Accumulators) -> None:
    every = np.arange(SLOTS)
    got, wanted = decode_cells(vectors.results(every)), decode_cells(objects.results(every))
    assert all(map(same, list(map(_plain, got)), wanted)), (fn, got, wanted)


def _plain(result: Any) -> Any:
    return tuple(result) if isinstance(result, tuple) else result


def check(fn: Fn, data: st.DataObject, value: st.SearchStrategy[Any], *, lifted: bool) -> None:
    vectors: Accumulators = accumulators(fn, RowKind.ACCUMULATORS if lifted else RowKind.VALUES)
    objects: Accumulators = ObjectAccumulators(fn, lifted)
    assert isinstance(vectors, ArrayAccumulators)
    for column in (vectors, objects):
        column.reserve(SLOTS)
    for step in data.draw(st.lists(steps, min_size=1, max_size=6)):
        some = np.array(data.draw(st.lists(st.integers(0, SLOTS - 1), min_size=1, max_size=SLOTS, unique=True)))
        if step == "add":
            pairs = data.draw(st.lists(st.tuples(st.integers(0, SLOTS - 1), value), min_size=1, max_size=8))
            rows = sent(fn, [slot for slot, _ in pairs], [value for _, value in pairs], lifted=lifted)
            vectors, objects = vectors.add(*rows), objects.add(*rows)
        elif step == "merge":
            for column in (vectors, objects):
                column.merge(some, np.zeros(1, np.int64))
                column.clear(some[1:])
        elif step == "clear":
            for column in (vectors, objects):
                column.clear(some)
        else:  # written, and read by a new one, which had something else
            cells, every = vectors.dump(np.arange(SLOTS)), np.arange(SLOTS)
            vectors = accumulators(fn, RowKind.ACCUMULATORS if lifted else RowKind.VALUES)
            vectors.reserve(SLOTS)
            vectors = vectors.load(every, cells.take(pa.array(every[::-1]))).load(every, cells)
        agree(fn, vectors, objects)


@examples(150)
@given(st.data(), st.sampled_from([MinByFn(), MaxByFn()]), st.sampled_from([few, near]), st.sampled_from([few, near]))
def test_values_by_others(data: st.DataObject, fn: Fn, value: Any, by: Any) -> None:
    """Of equal ones the least or greatest value; a value may be missing; pairs are combined before they are sent."""
    check(fn, data, st.tuples(value, by), lifted=True)


@examples(150)
@given(st.data(), st.sampled_from([FirstFn(), LastFn()]), st.sampled_from([few, near]), st.booleans())
def test_first_and_last(data: st.DataObject, fn: Fn, value: Any, lifted: bool) -> None:
    """Of several at one time the least or greatest; a value may be missing. Values alone, or combined before."""
    check(fn, data, st.tuples(st.integers(-2, 2), value), lifted=lifted)


@examples(150)
@given(st.data(), st.lists(st.sampled_from(OF_TIMES), min_size=1, max_size=4))
def test_times(data: st.DataObject, fns: list[Fn]) -> None:
    """Times of columns, beside numbers; some are missing."""
    fn = ColumnsFn(tuple(fns))
    row = st.tuples(*[st.none() | (ints if isinstance(each, SumFn) else times) for each in fns])
    check(fn, data, st.tuples(st.integers(-2, 2), row) if fn.timed else row, lifted=False)


@examples(150)
@given(st.data(), st.sampled_from([MinByFn(), MaxByFn()]), st.booleans(), st.booleans())
def test_times_by_numbers_and_numbers_by_times(data: st.DataObject, fn: Fn, of_times: bool, by_times: bool) -> None:
    """As a task folds columns; what it sends is what accumulators are."""
    value, by = st.none() | (times if of_times else few_ints), st.none() | (times if by_times else few_ints)
    drawn = data.draw(st.lists(st.tuples(st.integers(0, SLOTS - 1), value, by), min_size=1, max_size=10))
    several = ColumnsFn((fn,))
    task = ArrayAccumulators(several, kernels_of(several) or (), lifted=True)
    task.reserve(SLOTS)
    columns = [numbers_of([row[at] for row in drawn]) for at in (1, 2)]
    assert task.add_values(np.array([slot for slot, _, _ in drawn]), [columns])  # type: ignore[list-item]
    shard = accumulators(several, RowKind.ACCUMULATORS)
    shard.reserve(SLOTS)
    every = np.arange(SLOTS)
    shard = shard.add(every, every, IncomingRows(task.dump(every), np.zeros(SLOTS, np.int64)))
    assert isinstance(shard, ArrayAccumulators)
    rows = [[(value, by) for slot, value, by in drawn if slot == at] for at in range(SLOTS)]
    wanted = [(fn.finish(fn.add_all(fn.zero(), of)),) for of in rows]
    assert repr(list(map(tuple, decode_cells(shard.results(every))))) == repr(wanted)


@examples(150)
@given(st.data(), st.sampled_from(FNS), columns_of, st.booleans())
def test_one_aggregation(data: st.DataObject, fn: Fn, value: st.SearchStrategy[Any], lifted: bool) -> None:
    if isinstance(fn, VarianceFn):
        value = data.draw(st.sampled_from([ints, tame]))  # of others objects give what rounding gives them
    check(fn, data, value, lifted=lifted)


@examples(150)
@given(st.data(), st.lists(st.tuples(st.sampled_from(FNS), columns_of), min_size=1, max_size=3), st.booleans())
def test_several_aggregations_with_nulls(data: st.DataObject, drawn: list[Any], lifted: bool) -> None:
    columns = [(fn, tame if isinstance(fn, VarianceFn) else values) for fn, values in drawn]
    fn = ColumnsFn(tuple(fn for fn, _ in columns))
    value = st.tuples(*[st.one_of(st.none(), values) for _, values in columns])
    check(fn, data, value, lifted=lifted)


@examples(100)
@given(st.data(), st.sampled_from([ints, wide, tame]))
def test_what_is_taken_back(data: st.DataObject, values: st.SearchStrategy[Any]) -> None:
    """Adds and takes back in any order; what remains is what was not taken back."""
    fn = data.draw(st.sampled_from([SumFn(), CountFn(), MeanFn(), ColumnsFn((SumFn(), CountFn(), MeanFn()))]))
    several = isinstance(fn, ColumnsFn)
    value = st.tuples(*[st.one_of(st.none(), values)] * 3) if several else values
    pairs = data.draw(st.lists(st.tuples(st.integers(0, SLOTS - 1), value, st.booleans()), min_size=1, max_size=12))
    vectors: Accumulators = accumulators(fn, RowKind.SIGNED_VALUES)
    vectors.reserve(SLOTS)
    expected: list[list[Any]] = [[] for _ in range(SLOTS)]
    for back in (False, True):
        rows = [(slot, value) for slot, value, taken in pairs if taken or not back]
        if rows:
            order, starts = runs(np.array([slot for slot, _ in rows]))
            cells = cells_of([rows[i][1] for i in order.tolist()], record=several)
            slots = np.array([slot for slot, _ in rows])[order][starts]
            vectors = vectors.add(slots, starts, IncomingRows(cells, np.zeros(len(rows)), np.full(len(rows), back)))
    for slot, value, taken in pairs:
        if not taken:
            expected[slot].append(value)
    for got, left in zip(decode_cells(vectors.results(np.arange(SLOTS))), expected, strict=True):
        assert same(
            _plain(got), fn.finish(fn.add_all(fn.zero(), left)) if left or not several else fn.finish(fn.zero())
        )


def test_ints_stay_exact_beyond_64_bits() -> None:
    column: Accumulators = accumulators(SumFn())
    column.reserve(2)
    for _ in range(5):
        cells = encode_cells([2**62, 1])
        column = column.add(np.array([0, 1]), np.array([0, 1]), IncomingRows(cells, np.zeros(2, np.int64)))
    assert isinstance(column, ObjectAccumulators)
    assert decode_cells(column.results(np.array([0, 1]))) == [5 * 2**62, 5]


def test_means_of_large_ints_are_rounded_once() -> None:
    values = [2**60 + 1, 2**60 + 3, 5]
    column: Accumulators = accumulators(MeanFn())
    column.reserve(1)
    column = column.add(np.array([0]), np.array([0]), IncomingRows(encode_cells(values), np.zeros(3, np.int64)))
    assert isinstance(column, ArrayAccumulators)
    assert decode_cells(column.results(np.array([0]))) == [sum(values) / 3]


@pytest.mark.parametrize("fn", [MinFn(), MaxFn()])
def test_nan_is_above_all_numbers(fn: Fn) -> None:
    column: Accumulators = accumulators(fn)
    column.reserve(2)
    cells = encode_cells([math.nan, 1.0, math.nan])
    column = column.add(np.array([0, 1]), np.array([0, 2]), IncomingRows(cells, np.zeros(3, np.int64)))
    assert isinstance(column, ArrayAccumulators)
    first, alone = decode_cells(column.results(np.array([0, 1])))
    assert math.isnan(alone) and (first == 1.0 if isinstance(fn, MinFn) else math.isnan(first))


@given(st.lists(st.lists(wide, max_size=3), min_size=1, max_size=5))
def test_accumulators_travel_as_numbers_or_as_they_are(values: list[list[int]]) -> None:
    for fn in [*FNS, TopFn(2), ColumnsFn((SumFn(), MinFn()))]:
        if isinstance(fn, VarianceFn):
            continue
        rows = [[(value, value) for value in some] if isinstance(fn, ColumnsFn) else some for some in values]
        accs = [fn.add_all(fn.zero(), some) if some else fn.zero() for some in rows]
        wanted = [fn.finish(acc) for acc in accs]
        back = [load_accumulator(fn, data) for data in decode_cells(encode_accumulators(fn, accs))]
        assert repr([fn.finish(acc) for acc in back]) == repr(wanted)  # as NaN is not equal to itself
