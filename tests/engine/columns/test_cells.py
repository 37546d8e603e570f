"""Cells: values come back as they were, type and all, whatever they were encoded with."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.columns.cells import decode_cells, encode_cells, numbers_of

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(),
    st.sampled_from(["\ud800", ""]),
    st.binary(),
)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=2) | st.tuples(inner), max_leaves=3)
one_kind = st.sampled_from(
    [
        st.integers(-(2**63), 2**63 - 1),
        st.integers(),
        st.floats(allow_nan=False),
        st.text(),
        st.binary(),
        st.none(),
        st.booleans(),
        st.just("\ud800"),
    ]
).flatmap(lambda kind: st.lists(kind, max_size=6))
columns = st.one_of(st.lists(values, max_size=6), one_kind)


def same(decoded: list[Any], expected: list[Any]) -> bool:
    return decoded == expected and list(map(type, decoded)) == list(map(type, expected))


@given(columns)
def test_values_come_back_as_they_were(column: list[Any]) -> None:
    assert same(decode_cells(encode_cells(column)), column)


@given(st.lists(columns, max_size=4), st.integers(0, 9), st.integers(0, 9))
def test_cells_of_several_calls_follow_one_another(parts: list[list[Any]], start: int, count: int) -> None:
    cells = pa.concat_arrays([pa.array([], pa.binary()), *map(encode_cells, parts)])
    together = [value for part in parts for value in part]
    assert same(decode_cells(cells), together)
    assert same(decode_cells(cells.slice(start, count)), together[start : start + count])


def test_nan_and_signed_zero_survive() -> None:
    nan, zero = decode_cells(encode_cells([math.nan, -0.0]))
    assert math.isnan(nan)
    assert math.copysign(1, zero) == -1


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1), st.data())
def test_numbers_of_a_slice(numbers: list[int], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(numbers) - 1))
    decoded = numbers_of(encode_cells(numbers).slice(start), b"i")
    assert decoded is not None
    assert decoded.tolist() == numbers[start:]


@pytest.mark.parametrize("mixed", [["12345678"], [b"12345678"], [1, "x"], [2**63], [1.5], [None], [True]])
def test_what_is_no_int_is_not_read_as_one(mixed: list[Any]) -> None:
    assert numbers_of(pa.concat_arrays([encode_cells([1]), encode_cells(mixed)]), b"i") is None
