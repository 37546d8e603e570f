"""Tests that the JSON of columns is that of `json.dumps` for each row."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.edges.jsoncolumns import json_arrays, json_objects, json_text, json_values

TEXT = st.text(st.characters(codec="utf-8"))
INSTANTS = st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30), timezones=st.just(dt.UTC))
COLUMNS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "text": (pa.string(), TEXT),
    'a "quoted" näme': (pa.large_string(), TEXT),
    "int": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "small": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "float": (pa.float64(), st.floats(allow_nan=False, allow_infinity=False)),
    "bool": (pa.bool_(), st.booleans()),
    "time": (pa.timestamp("us", tz="UTC"), INSTANTS),
    "date": (pa.date32(), st.dates()),
    "list": (pa.list_(pa.string()), st.lists(st.none() | TEXT, max_size=3)),
}
ROWS = st.lists(st.fixed_dictionaries({name: st.none() | each for name, (_, each) in COLUMNS.items()}), max_size=6)


@given(ROWS)
def test_columns_give_what_rows_give(rows: list[dict[str, Any]]) -> None:
    columns = {name: pa.array([row[name] for row in rows], kind) for name, (kind, _) in COLUMNS.items()}
    expected = [json.loads(json_text({name: row[name] for name in columns})) for row in rows]
    objects = [json.loads(each) for each in json_objects(columns, len(rows)).to_pylist()]
    arrays = [json.loads(each) for each in json_arrays(list(columns.values()), len(rows)).to_pylist()]
    # By their texts: 1 and 1.0 and True are equal to Python.
    assert list(map(repr, objects)) == list(map(repr, expected))
    assert list(map(repr, arrays)) == [repr(list(row.values())) for row in expected]


def test_no_columns() -> None:
    assert json_objects({}, 2).to_pylist() == [b"{}", b"{}"]
    assert json_arrays([], 1).to_pylist() == [b"[]"]


@pytest.mark.parametrize("column", [pa.array([1.0, float("nan")]), pa.array([float("inf")]), pa.array([b"a"])])
def test_what_is_no_json(column: pa.Array) -> None:
    with pytest.raises((ValueError, TypeError), match="not JSON"):
        json_values(column)
