"""Tests the bytes of accumulators and keys in stores: all are decoded, keys sort alike, and decoding runs no code."""

from __future__ import annotations

import datetime as dt
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.model.agg import Aggregation
from headrace.model.safebytes import EncodingError, decode, encode
from headrace.views.declare.layout import Layout
from headrace.views.errors import ViewError

PLAIN = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
    st.decimals(allow_nan=False),
    st.dates(),
    (st.datetimes() | st.datetimes(timezones=st.just(dt.UTC))).map(lambda time: time.replace(fold=0)),
    st.timedeltas(),
)
VALUES = st.recursive(
    PLAIN, lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(PLAIN, inner), max_leaves=8
)


@given(VALUES)
def test_values_come_back_with_their_types(value: Any) -> None:
    again = decode(encode(value))
    assert again == value
    assert repr(again) == repr(value)


@given(st.binary() | st.binary().map(lambda data: b"j" + data))
def test_bytes_from_elsewhere_are_refused_or_harmless(data: bytes) -> None:
    try:
        encode(decode(data))
    except EncodingError as error:
        assert "not the bytes of an accumulator" in str(error)


def test_a_pickle_is_not_run() -> None:
    with pytest.raises(EncodingError, match="not the bytes of an accumulator"):
        decode(pickle.dumps(print))


AGGREGATIONS: dict[str, tuple[Aggregation, list[Any], list[Any]]] = {
    "count": (hr.count(), ["a"], ["b", "c"]),
    "sum": (hr.sum("x"), [1], [2**70, 5]),
    "mean": (hr.mean("x"), [1.5], [2, 7]),
    "variance": (hr.variance("x"), [1, 2], [9]),
    "min": (hr.min("x"), ["b"], ["a", "c"]),
    "max": (hr.max("x"), [dt.date(2026, 1, 1)], [dt.date(2025, 1, 1)]),
    "first": (hr.first("x"), [(20, "b")], [(10, "a")]),
    "last": (hr.last("x"), [(20, "b")], [(10, "a")]),
    "max_by": (hr.max_by("x", "y"), [("a", 5), ("b", None)], [("c", 7)]),
    "top": (hr.top("x", 2), [3, 1, 4], [1, 5, 9]),
    "collect": (hr.collect("x"), ["a"], ["b"]),
    "quantiles": (hr.quantiles("x", 3), [1, 2], [9, 3]),
    "approx_distinct": (hr.approx_distinct("x"), ["a", "b"], ["b", "c"]),
    "heavy_hitters": (hr.heavy_hitters("x", 2), ["a", "b", "a"], ["b", "b"]),
    "theta": (hr.theta("x"), ["a", "b"], ["b", "", 3]),
    "count_min": (hr.count_min("x"), ["a", b"b"], ["b", "", 3]),
    "count_min of many": (hr.count_min("x"), list(range(1200)), ["b", 3]),
    "frequency": (hr.frequency("x", of=["a", 3]), ["a", b"b"], ["a", "", 3]),
    "second_moment": (hr.second_moment("x"), ["a", b"b"], ["a", "", 3]),
    "second_moment of many": (hr.second_moment("x"), ["a", "b"], list(range(1200))),
    "rank": (hr.rank("x", of=[1, 3]), [1, 2], [9, 3]),
    "histogram": (hr.histogram("x", bins=[0, 2, 9]), [1, 2], [9, 3]),
    "bloom": (hr.bloom("x", items=100), ["a", b"b"], ["a", "", 3]),
    "sample": (hr.sample("x", 9), ["a", "a"], ["a"]),
}


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_every_aggregation_merges_after_it_was_kept(name: str) -> None:
    aggregation, here, there = AGGREGATIONS[name]
    fn = aggregation.fn
    layout = Layout.of("v", keys={}, aggregations={"x": aggregation})
    stored = [layout.stored((fn.dump(fn.add_all(fn.zero(), values)),)) for values in (here, there)]
    merged = layout.merge(layout.load(stored[0]), layout.load(stored[1]))
    again = layout.load(layout.dump(merged))
    assert layout.finish(again)["x"] == fn.finish(fn.add_all(fn.zero(), [*here, *there]))


TEXTS = st.text(alphabet=st.sampled_from("\0\1\2aé\U0010ffff"), max_size=4)


@given(TEXTS, TEXTS)
def test_kept_text_has_the_order_and_the_prefixes_of_the_text(one: str, other: str) -> None:
    layout = Layout.of("v", keys={"k": "string"}, aggregations={})
    stored, other_stored = layout.stored_key(0, one), layout.stored_key(0, other)
    assert "\0" not in stored
    assert (stored < other_stored, stored.startswith(other_stored)) == (one < other, one.startswith(other))
    assert layout.key((stored, 0, 0, 1)) == (one,)


OTHER_TYPES = [
    ("string", b"a"),
    ("string", "\ud800"),
    ("bigint", True),
    ("bigint", 2**63),
    ("bigint", 1.0),
    ("boolean", 1),
    ("date", dt.datetime(2026, 1, 1)),
    ("timestamp", True),
    ("timestamp", "soon"),
    ("binary", "a"),
]


@pytest.mark.parametrize(("kind", "value"), OTHER_TYPES)
def test_keys_of_another_type_are_refused(kind: str, value: Any) -> None:
    layout = Layout.of("v", keys={"k": kind}, aggregations={})
    with pytest.raises(ViewError, match=f"the key 'k' is a {kind}, got"):
        layout.place((value,), 0, 1)


def test_totals_beyond_64_bits_are_refused_by_name() -> None:
    layout = Layout.of("v", keys={}, aggregations={"total": hr.sum("x")}, columns={"x": "bigint"})
    with pytest.raises(ViewError, match="'total' must be an integer of 64 bits, got 9223372036854775808"):
        layout.stored((2**63,))
