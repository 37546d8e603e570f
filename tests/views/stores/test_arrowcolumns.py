"""Rows of stores as columns: what Spark gives as Arrow becomes the same rows as partials, one by one, do."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.model.safebytes import encode
from headrace.model.windows import GLOBAL_WINDOW
from headrace.views.declare.layout import Layout, Partial
from headrace.views.errors import ViewError
from headrace.views.stores.arrowcolumns import rows_of_columns, rows_of_partials
from tests.scale import examples

KINDS = {"s": "string", "i": "int", "b": "boolean", "d": "date", "t": "timestamp", "x": "binary"}
LAYOUT = Layout.of(
    "typed",
    keys=KINDS,
    aggregations={"n": hr.count(), "w": hr.sum("grams"), "paid": hr.sum("price"), "most": hr.max("n")},
    columns={"grams": "double", "price": "decimal(9,2)"},
)
GIVEN = pa.schema(
    [
        *[("s", pa.string()), ("i", pa.int32()), ("b", pa.bool_()), ("d", pa.date32())],
        *[("t", pa.timestamp("us", "UTC")), ("x", pa.binary())],
        *[("n", pa.int64()), ("w", pa.float64()), ("paid", pa.decimal128(19, 2)), ("most", pa.binary())],
    ]
)
TIMES = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1), timezones=st.just(dt.UTC))
KEYS = st.tuples(
    *(st.none() | each for each in (st.text("a\0\1é\U0010ffff", max_size=3), st.integers(-(2**31), 2**31 - 1))),
    *(st.none() | each for each in (st.booleans(), st.dates(), TIMES, st.binary(max_size=3))),
)
ACCUMULATORS = st.tuples(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.decimals(-999, 999, places=2),
    st.integers(0, 9).map(lambda n: [n]),
)


@examples(60)
@given(st.lists(st.tuples(KEYS, st.integers(-9, 9), ACCUMULATORS), max_size=8))
def test_columns_and_partials_are_the_same_rows(drawn: list[tuple[Any, ...]]) -> None:
    partials = [Partial(key, start, start + 1, kept) for key, start, kept in drawn]
    rows = [(*key, *kept[:3], encode(kept[3])) for key, _, kept in drawn]
    columns: Any = list(zip(*rows, strict=True)) or [()] * len(GIVEN)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, GIVEN, strict=True)]
    given = pa.record_batch(arrays, schema=GIVEN)
    starts = pa.array([start for _, start, _ in drawn], pa.int64())
    windowed = given.append_column("__start", starts).append_column("__end", pa.compute.add(starts, 1))
    assert rows_of_columns(LAYOUT, windowed).equals(rows_of_partials(LAYOUT, partials))
    everywhere = [Partial(key, GLOBAL_WINDOW.start, GLOBAL_WINDOW.end, kept) for key, _, kept in drawn]
    assert rows_of_columns(LAYOUT, given).equals(rows_of_partials(LAYOUT, everywhere))


def test_columns_that_do_not_fit_are_refused() -> None:
    layout = Layout.of("hits", keys={"url": "string"}, aggregations={"n": hr.count()})
    with pytest.raises(ViewError, match="the key 'url' is a string, but the pipeline gives int64"):
        rows_of_columns(layout, pa.record_batch({"url": [1], "n": [1]}))
    with pytest.raises(ViewError, match="'n' is a bigint, but the pipeline gives double"):
        rows_of_columns(layout, pa.record_batch({"url": ["a"], "n": [1.5]}))
    with pytest.raises(ViewError, match="'n' has no accumulator in 1 rows"):
        rows_of_columns(layout, pa.record_batch({"url": ["a"], "n": pa.array([None], pa.int64())}))


def test_numbers_that_stores_do_not_keep() -> None:
    layout = Layout.of("w", keys={}, aggregations={"w": hr.sum("x")}, columns={"x": "double"})
    found = rows_of_columns(layout, pa.record_batch({"w": [math.nan, math.inf, 0.5]}))
    assert found.column("w").to_pylist() == [None, math.inf, 0.5]
    paid = Layout.of("p", keys={}, aggregations={"p": hr.sum("x")}, columns={"x": "decimal(9,2)"})
    decimal = pa.record_batch({"p": pa.array([Decimal("1.50")], pa.decimal128(9, 2))})
    assert rows_of_columns(paid, decimal).column("p").to_pylist() == [encode(Decimal("1.50"))]
