"""Tests schemas: read from types, and elements converted to columns and back."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import pickle
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Optional

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.model.schema import (
    column_values,
    common_type,
    item_type,
    pair_types,
    return_type,
    row_type,
    rows_schema,
    schema_of,
)
from headrace.model.times import MAX_TIME, MIN_TIME


class Visit(NamedTuple):
    user: str
    n: int
    at: dt.date | None = None


@dataclass(frozen=True)
class Sale:
    item: str
    price: float
    tags: list[str] = dataclasses.field(default_factory=list)


@dataclass
class Changing:
    n: int


class Untyped(NamedTuple):
    what: Any


class Unresolved(NamedTuple):
    what: "DoesNotExist"  # type: ignore[name-defined]  # noqa: F821, UP037


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (int, ("value",)),
        (str, ("value",)),
        (bytes, ("value",)),
        (bool, ("value",)),
        (float, ("value",)),
        (dt.date, ("value",)),
        (list[int], ("value",)),
        (int | None, ("value",)),
        (Optional[str], ("value",)),  # noqa: UP045
        (tuple[str, int], ("_1", "_2")),
        (tuple[str, list[float]], ("_1", "_2")),
        (Visit, ("user", "n", "at")),
        (Sale, ("item", "price", "tags")),
        (Changing, ("n",)),
    ],
)
def test_types_with_columns(kind: object, names: tuple[str, ...]) -> None:
    schema = schema_of(kind)
    assert schema is not None
    assert schema.names == names


@pytest.mark.parametrize(
    "kind",
    [
        *(None, Any, object, list, dict, tuple, complex, Exception, Untyped, Unresolved),
        *(dict[str, int], tuple[int, ...], tuple[str, Any], tuple[()], set[int], list[Any], int | str),
    ],
)
def test_types_without_columns(kind: object) -> None:
    assert schema_of(kind) is None


ELEMENTS: list[tuple[object, list[Any]]] = [
    (int, [1, -(2**63), 2**63 - 1]),
    (str, ["", "é", "𝄞"]),
    (bytes, [b"", b"\0"]),
    (float, [0.5, float("inf")]),
    (bool, [True, False]),
    (int | None, [1, None]),
    (dt.date, [dt.date(1969, 12, 31), dt.date(2026, 1, 1)]),
    (list[int], [[], [1, 2]]),
    (tuple[str, int], [("a", 1), ("b", 2)]),
    (Visit, [Visit("amy", 1), Visit("bob", 2, dt.date(2026, 1, 1))]),
    (Sale, [Sale("tea", 1.5, ["x"]), Sale("milk", 2.0)]),
    (Changing, [Changing(1)]),
]


@pytest.mark.parametrize(("kind", "elements"), ELEMENTS, ids=lambda value: str(value)[:30])
def test_elements_come_back_as_they_were(kind: object, elements: list[Any]) -> None:
    schema = schema_of(kind)
    assert schema is not None
    back = schema.to_elements(schema.to_columns(elements))
    assert back == elements
    assert list(map(type, back)) == list(map(type, elements))
    assert schema.to_elements(schema.to_columns([])) == []


@given(st.lists(st.tuples(st.text(), st.integers(-(2**63), 2**63 - 1), st.binary(), st.booleans())))
def test_tuples_come_back_as_they_were(elements: list[Any]) -> None:
    schema = schema_of(tuple[str, int, bytes, bool])
    assert schema is not None
    assert schema.to_elements(schema.to_columns(elements)) == elements


@pytest.mark.parametrize(
    ("kind", "elements"),
    [
        (int, ["a"]),
        (int, [2**63]),
        (str, [1]),
        (str, ["\ud800"]),
        (tuple[str, int], [("a",)]),
        (tuple[str, int], [("a", 1, 2)]),
        (tuple[str, int], [("a", 1), ("b",)]),
        (tuple[str, int], [1]),
        (Sale, ["tea"]),
    ],
)
def test_elements_of_another_type_do_not_become_columns(kind: object, elements: list[Any]) -> None:
    schema = schema_of(kind)
    assert schema is not None
    with pytest.raises((pa.ArrowException, ValueError, TypeError, AttributeError, OverflowError)):
        schema.to_columns(elements)


def test_rows_have_the_names_of_their_columns() -> None:
    (row,) = rows_schema(pa.schema({"user": pa.string(), "count": pa.int64()})).to_elements(
        [pa.array(["a"]), pa.array([1])]
    )
    assert row == ("a", 1)
    assert (row.user, row.count) == ("a", 1)
    assert row._asdict() == {"user": "a", "count": 1}
    assert pickle.loads(pickle.dumps(row)) == row
    assert pickle.loads(pickle.dumps(row)).user == "a"


def test_rows_are_tuples() -> None:
    row = row_type(("user", "n"))._make(["a", 1])
    user, n = row
    assert (user, n) == row == ("a", 1) and hash(row) == hash(("a", 1)) and {("a", 1): 2}[row] == 2
    assert row < ("b", 0) and (*row, 2) == ("a", 1, 2) and json.dumps(row) == '["a", 1]'
    assert row != row_type(("user", "n"))._make(["a", 2])
    with pytest.raises(AttributeError):
        row.user = "b"  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        row.other = "b"  # type: ignore[attr-defined]


@given(st.lists(st.none() | st.integers(MIN_TIME, MAX_TIME)), st.integers(0, 3))
@example([-62135596800000000, 253402300799999999], 0)
def test_timestamps_are_decoded_as_arrow_does(micros: list[int | None], skipped: int) -> None:
    column = pa.array(micros, pa.timestamp("us", tz="UTC")).slice(skipped)
    try:
        expected = column.to_pylist()
    except (OverflowError, ValueError) as error:
        with pytest.raises(type(error)):
            column_values(column)
    else:
        found = column_values(column)
        assert found == expected
        assert all(one is None or one.tzinfo is two.tzinfo for one, two in zip(found, expected, strict=True))


def test_rows_with_odd_names() -> None:
    row = row_type(("a b", "class", "1"))._make([1, 2, 3])
    assert repr(row) == "Row(a b=1, class=2, 1=3)"
    assert getattr(row, "a b") == 1


def returns_any(x: Any) -> Any: ...
def returns_pair(x: Any) -> tuple[str, int]: ...  # type: ignore[empty-body]
def returns_undeclared(x): ...  # type: ignore[no-untyped-def]
def returns_unresolved(x: Any) -> "DoesNotExist": ...  # type: ignore[name-defined]  # noqa: F821, UP037


@pytest.mark.parametrize(
    ("fn", "kind"),
    [
        (returns_pair, tuple[str, int]),
        (returns_any, None),
        (returns_undeclared, None),
        (returns_unresolved, None),
        (str, str),
        (Visit, Visit),
        (Sale, Sale),
        (dict, None),
        (len, None),
        (lambda x: x, None),
    ],
)
def test_return_types(fn: Any, kind: object) -> None:
    assert return_type(fn) == kind


@pytest.mark.parametrize(
    ("hint", "item"),
    [
        (list[int], int),
        (Iterator[str], str),
        (Iterable[tuple[str, int]], tuple[str, int]),
        (Generator[int, None, None], int),
        (list[int] | None, int),
        (Optional[Iterator[str]], str),  # noqa: UP045
        (list[int] | list[str], None),
        (Iterator[Any], None),
        (list, None),
        (None, None),
        (Any, None),
        (str, None),
        (tuple[int, str], None),
    ],
)
def test_item_types(hint: object, item: object) -> None:
    assert item_type(hint) == item


def test_pair_types() -> None:
    assert pair_types(tuple[str, int]) == (str, int)
    assert pair_types(tuple[str, Any]) == (str, Any)
    for other in (tuple[int, ...], tuple[int], tuple[int, int, int], int, list[int], None, tuple):
        assert pair_types(other) is None


@pytest.mark.parametrize(
    ("elements", "kind"),
    [
        ([1, 2], int),
        ([True], bool),
        ([1, True], None),
        ([1, 2.0], None),
        ([2**63], None),
        ([], None),
        ([None], None),
        ([("a", 1), ("b", 2)], tuple[str, int]),
        ([("a", 1), ("b", None)], None),
        ([("a", 1), ("b",)], None),
        ([("a", (1, "x"))], None),
        ([()], None),
        ([[1]], None),
        ([{"a": 1}], None),
        ([Visit("a", 1)], Visit),
        ([Sale("a", 1.0)], Sale),
        ([Visit("a", 1), ("a", 1)], None),
        ([dt.datetime(2026, 1, 1)], None),
        ([dt.date(2026, 1, 1)], dt.date),
    ],
    ids=lambda value: str(value)[:30],
)
def test_common_types(elements: list[Any], kind: object) -> None:
    common = common_type(elements)
    if kind is None:
        assert schema_of(common) is None
    else:
        assert common == kind
