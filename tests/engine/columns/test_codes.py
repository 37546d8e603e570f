"""Codes of columns and of steps, by arrays where numbers are close to each other, against the values themselves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.columns.codes import Codes
from headrace.model.windows import FixedWindows

NEAR = st.lists(st.integers(-3, 9))
FAR = st.lists(st.one_of(st.integers(-3, 9), st.sampled_from([-(2**63), 2**63 - 1, 10**12])))


def numbered(values: Sequence[object]) -> list[int]:
    """The definition: each value has the number of distinct values before its first row."""
    first: dict[object, int] = {}
    return [first.setdefault(value, len(first)) for value in values]


@given(
    st.one_of(NEAR, FAR, st.lists(st.one_of(st.none(), st.integers(0, 3)))), st.sampled_from([pa.int64(), pa.int16()])
)
def test_a_column_is_numbered_in_order_of_first_rows(values: list[int | None], kind: pa.DataType) -> None:
    fits = [None if value is None else max(min(value, 2**15 - 1), -(2**15)) for value in values]
    values = values if kind == pa.int64() else fits
    codes = Codes.of_column(pa.array(values, kind))
    assert codes.numbers.tolist() == numbered(values)
    assert codes.count == len(set(values))
    assert codes.first_rows().tolist() == [values.index(value) for value in dict.fromkeys(values)]


@given(st.lists(st.tuples(st.integers(0, 4), st.one_of(st.integers(0, 3), st.integers(10**9, 10**9 + 3)))))
def test_columns_are_numbered_together(rows: list[tuple[int, int]]) -> None:
    columns = [pa.array([row[at] for row in rows], pa.int64()) for at in (0, 1)]
    assert Codes.of_columns(columns, len(rows)).numbers.tolist() == numbered(rows)


@given(
    st.lists(st.one_of(st.integers(-30, 30), st.integers(-(2**61), 2**61)), min_size=1),
    st.integers(1, 12),
    st.integers(0, 11),
)
def test_numbers_of_one_step_are_those_of_one_window(times: list[int], size: int, offset: int) -> None:
    window = FixedWindows(f"{size} us", offset=f"{offset % size} us")
    codes = Codes.of_steps(np.array(times), window.size, window.offset)
    starts = window.assign(np.array(times)).start.tolist()
    assert numbered(codes.numbers.tolist()) == numbered(starts)
    assert max(codes.numbers.tolist()) < codes.count
