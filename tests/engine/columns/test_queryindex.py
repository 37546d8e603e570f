"""The index of queries finds what comparing each row with each query finds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.columns import queryindex
from headrace.engine.columns.queryindex import QueryIndex
from headrace.model.matching import GREATEST, LEAST, Parameter, range_of, sort_key
from tests.reference_matching import matches
from tests.scale import examples

TEXTS = st.sampled_from(["", "a", "b", "ab", "ä", "\0"])
INTS = st.one_of(st.integers(-3, 3), st.sampled_from([LEAST, LEAST + 1, GREATEST - 1, GREATEST]))
FLOATS = st.sampled_from([-math.inf, -1.5, -5e-324, -0.0, 0.0, 5e-324, 1.0, 1.5, math.inf, math.nan, -math.nan])
TYPES = {pa.string(): TEXTS, pa.int64(): INTS, pa.int32(): st.integers(-(2**31), 2**31 - 1), pa.float64(): FLOATS}
ORDERS = ("<", "<=", ">", ">=")


def constants_of(condition: tuple[str, Any]) -> list[Any]:
    operator, constant = condition
    if operator == "in":
        return [value if isinstance(value, str) else sort_key(value) for value in constant]
    if operator == "between":
        low, high = range_of(">=", constant[0])[0], range_of("<=", constant[1])[1]
        return [low, high]
    return list(range_of(operator, constant))


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[Parameter], list[list[tuple[str, Any]]], list[pa.Array]]:
    kinds = draw(st.lists(st.sampled_from(list(TYPES)), min_size=1, max_size=3))
    parameters, conditions = [], []
    for number, kind in enumerate(kinds):
        sets = kind == pa.string() or draw(st.booleans())
        parameters.append(Parameter(f"c{number}", "in" if sets else "range"))
        values = TYPES[kind]
        conditions.append(
            st.tuples(st.just("in"), st.lists(values, max_size=4))
            if sets
            else st.one_of(
                st.tuples(st.sampled_from(ORDERS), values), st.tuples(st.just("between"), st.tuples(values, values))
            )
        )
    queries = draw(st.lists(st.tuples(*conditions).map(list), max_size=12))
    rows = draw(st.lists(st.tuples(*(st.none() | TYPES[kind] for kind in kinds)), max_size=20))
    columns = [pa.array([row[number] for row in rows], kind) for number, kind in enumerate(kinds)]
    return parameters, queries, columns


@examples(1000)
@given(cases(), st.sampled_from([1, 7, 1_000_000]))
def test_the_index_finds_what_comparing_each_row_with_each_query_finds(case: Any, pairs: int) -> None:
    parameters, queries, columns = case
    index = QueryIndex(parameters, [tuple(map(constants_of, query)) for query in queries])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(queryindex, "_PAIRS", pairs)
        pieces = [np.stack(pair, axis=1) for pair in index.matches(columns)]
    found = [tuple(pair) for piece in pieces for pair in piece.tolist()]
    rows = list(zip(*(column.to_pylist() for column in columns), strict=True))
    expected = [
        (number, query)
        for number, row in enumerate(rows)
        for query in range(len(queries))
        if matches(queries[query], row)
    ]
    assert sorted(found) == expected
    assert [row for row, _ in found] == [row for row, _ in expected]  # in order
