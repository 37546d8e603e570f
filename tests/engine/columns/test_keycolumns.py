"""Keys as columns have the bytes that the tuples of their rows have, and come back as columns."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.columns.keycolumns import decode_key_columns, encode_key_columns
from headrace.model.keys import decode_keys, encode_keys

KINDS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.string(): st.text(max_size=5),
    pa.binary(): st.binary(max_size=5),
    pa.bool_(): st.booleans(),
    pa.float64(): st.one_of(st.floats(allow_nan=False), st.integers(-5, 5).map(float)),
    pa.timestamp("us", tz="UTC"): st.datetimes(dt.datetime(1900, 1, 1), timezones=st.just(dt.UTC)),
    pa.date32(): st.dates(),
}
PLAIN = {pa.int64(), pa.int16(), pa.string(), pa.binary()}


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[pa.Array], int]:
    kinds = draw(st.lists(st.sampled_from(list(KINDS)), max_size=3))
    rows = draw(st.integers(1, 6))
    return [
        pa.array(draw(st.lists(st.one_of(st.none(), KINDS[kind]), min_size=rows, max_size=rows)), kind)
        for kind in kinds
    ], rows


@given(tables(), st.integers(0, 3))
def test_a_key_has_one_identity(table: tuple[list[pa.Array], int], offset: int) -> None:
    columns, rows = table
    tuples = list(zip(*[column.to_pylist() for column in columns], strict=True)) if columns else [()] * rows
    encoded, spelling = encode_key_columns(columns, rows)
    expected, expected_spelling = encode_keys(tuples)
    assert encoded.to_pylist() == expected.to_pylist()
    assert decode_keys(encoded, spelling) == decode_keys(expected, expected_spelling) == tuples
    spelling = pa.nulls(rows, pa.binary()) if spelling is None else spelling
    offset = min(offset, rows - 1)  # a slice shares its buffers with the rest
    decoded = decode_key_columns(encoded.slice(offset), spelling.slice(offset), len(columns))
    if all(column.type in PLAIN for column in columns):
        assert decoded is not None
    if decoded is not None:
        shown = [column.to_pylist() for column in decoded]
        assert (list(zip(*shown, strict=True)) if columns else tuples[offset:]) == tuples[offset:]
