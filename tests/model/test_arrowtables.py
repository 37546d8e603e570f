"""Tables of pandas, polars and Arrow, and rows with a schema, as Arrow tables of types that Spark has."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any, NamedTuple

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import headrace as hr
from headrace.model.arrowtables import rows_table, table_of

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


def table(data: Any) -> pa.Table:
    found = table_of(data)
    assert found is not None
    return found


def test_tables_of_all_libraries_are_alike() -> None:
    columns: dict[str, Any] = {"city": ["Rome", None], "n": [1, 2], "at": [NOON, None], "parts": [[1], None]}
    arrow = pa.table({**columns, "at": pa.array(columns["at"], pa.timestamp("us", tz="UTC"))})
    expected = arrow.to_pylist()
    for data in (arrow, arrow.to_batches()[0], pl.DataFrame(columns), pd.DataFrame(columns)):
        made = table(data)
        assert made.schema.types == [pa.string(), pa.int64(), pa.timestamp("us", tz="UTC"), pa.list_(pa.int64())]
        assert made.to_pylist() == expected


def test_others_are_no_tables() -> None:
    for data in ([1], {"a": [1]}, "a", 7, pd.Series([1]), pl.Series([1]), pa.array([1])):
        assert table_of(data) is None


def test_types_that_spark_has_not_become_wider_ones() -> None:
    arrow = pa.table(
        {
            "u8": pa.array([255], pa.uint8()),
            "u64": pa.array([2**64 - 1], pa.uint64()),
            "category": pa.array(["a"]).dictionary_encode(),
            "large": pa.array(["x"], pa.large_string()),
            "naive": pa.array([dt.datetime(2026, 1, 1)], pa.timestamp("ns")),
            "nothing": pa.nulls(1),
            "nested": pa.array([[{"n": 1}]], pa.large_list(pa.struct([("n", pa.uint32())]))),
            "map": pa.array([[("k", 1)]], pa.map_(pa.large_string(), pa.uint8())),
        }
    )
    made = table(arrow)
    assert dict(zip(made.column_names, map(str, made.schema.types), strict=True)) == {
        "u8": "int16",
        "u64": "decimal128(20, 0)",
        "category": "string",
        "large": "string",
        "naive": "timestamp[us, tz=UTC]",
        "nothing": "string",
        "nested": "list<item: struct<n: int64>>",
        "map": "map<string, int16>",
    }
    (row,) = made.to_pylist()
    assert row["u64"] == Decimal(2**64 - 1) and row["nested"] == [{"n": 1}] and row["map"] == [("k", 1)]
    assert row["naive"] == dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def test_an_index_with_a_name_is_a_column_and_others_number_rows() -> None:
    frame = pd.DataFrame({"city": ["Rome", "Oslo", "Rome"], "price": [1.0, float("nan"), 3.0]})
    assert table(frame.groupby("city").sum()).to_pylist() == [
        {"city": "Oslo", "price": 0.0},
        {"city": "Rome", "price": 4.0},
    ]
    assert table(frame[frame.city == "Oslo"]).to_pylist() == [{"city": "Oslo", "price": None}]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (pd.DataFrame({1: [2]}), "a column of the DataFrame is called 1; names of columns are text"),
        (pd.DataFrame({"a": ["x", 1]}), "a column of the DataFrame has values of several types: .*column a"),
        (pa.table([[1], [2]], names=["a", "a"]), "the table has two columns 'a'"),
        (pa.table({}), "the table has no columns"),
        (pa.table({"t": pa.array([1], pa.timestamp("ns"))}), "the column 't' of .*ns.* round it to microseconds"),
        (pl.LazyFrame({"a": [1]}), r"got a LazyFrame; call its collect\(\)"),
        (7, "got a int"),
    ],
)
def test_tables_that_are_refused(data: Any, message: str) -> None:
    with pytest.raises(hr.PipelineError, match=message):
        hr.Create(data)


class Sale(NamedTuple):
    city: str
    price: float | None


COLUMNS = pa.schema({"city": pa.string(), "n": pa.int64(), "at": pa.timestamp("us", tz="UTC")})


def test_rows_are_dicts_or_tuples_in_order() -> None:
    rows = [{"n": 2, "city": "Rome"}, ("Oslo", 3, dt.datetime(2026, 1, 1, 12)), {}]
    assert rows_table(rows, COLUMNS).to_pylist() == [
        {"city": "Rome", "n": 2, "at": None},
        {"city": "Oslo", "n": 3, "at": NOON},
        {"city": None, "n": None, "at": None},
    ]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"town": "Rome"}, "row 1 has 'town', which is no column of the schema; there are city, n, at"),
        (("Rome",), r"with a schema, a row is a dict, or a tuple of 3 values, but row 1 is \('Rome',\)"),
        ({"n": "two"}, "row 1 has 'two' in the column 'n', which is no int64"),
        ({"n": 1.5}, "row 1 has 1.5 in the column 'n', which is no int64"),
        ({"n": 2**63}, f"row 1 has {2**63} in the column 'n'"),
        ({"at": "noon"}, "row 1 has 'noon' in the column 'at'"),
    ],
)
def test_rows_that_do_not_fit_are_named(row: Any, message: str) -> None:
    with pytest.raises(hr.PipelineError, match=message):
        hr.Create([{}, row], schema=COLUMNS)


def test_the_element_type_of_created_tables() -> None:
    p = hr.Pipeline()
    of_class = p | "class" >> hr.Create([{"city": "Rome"}], schema=Sale)
    assert of_class.element_type is Sale
    of_table = p | "table" >> hr.Create(pa.table({"n": [1]}))
    assert of_table.schema is not None and of_table.schema.names == ("n",)
    assert repr(of_table) == "<PCollection of rows from 'table', bounded>"
    assert str(hr.Create(pa.table({"n": [1, 2], "m": [1, 2]}))) == "Create(2 rows of n, m)"


def test_what_create_refuses() -> None:
    arrow = pa.table({"n": [1]})
    for args, message in [
        ({"elements": arrow, "schema": "n long"}, "a table has its own columns"),
        ({"elements": arrow, "event_time": "at"}, "event_time='at' is no column; there are n"),
        ({"elements": [1], "event_time": "at"}, "event_time names a column"),
        ({"elements": [hr.TimestampedValue({}, 1)], "schema": COLUMNS, "event_time": "at"}, "has a time already"),
        ({"elements": arrow, "event_time": "n", "bad": "ignore"}, "bad must be"),
    ]:
        with pytest.raises(hr.PipelineError, match=message):
            hr.Create(**args)  # type: ignore[arg-type]
