"""Tests keys as bytes: equal keys have equal bytes, unequal keys have not, and other keys are refused with a reason."""

from __future__ import annotations

import datetime as dt
import enum
import ipaddress
import math
import pathlib
import subprocess
import sys
import uuid
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.keys import decode_keys, encode_key, encode_keys
from tests.reference import canonical_key, canonical_value


class Point(NamedTuple):
    x: int
    y: int


@dataclass(frozen=True)
class Spot:
    x: int
    note: str = field(default="", compare=False)


@dataclass(frozen=True)
class Other:
    x: int


@dataclass
class Loose:
    x: int


@dataclass(frozen=True, eq=False)
class ByIdentity:
    x: int


class Colour(enum.Enum):
    RED = 1
    GREEN = 2
    CRIMSON = 1  # another name for RED


class Size(enum.IntEnum):
    SMALL = 1


class Level(enum.StrEnum):
    LOW = "low"


class Shouting(str):
    """Text with its own `==`, which ignores case."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and self.lower() == other.lower()

    __hash__ = str.__hash__


class Plain:
    pass


class OwnEquality:
    def __eq__(self, other: object) -> bool:
        return isinstance(other, OwnEquality)

    def __hash__(self) -> int:
        return 1


BERLIN = ZoneInfo("Europe/Berlin")

EQUAL: list[tuple[Any, ...]] = [
    (1, 1.0, True, Decimal(1), Decimal("1.00"), Fraction(1), complex(1), np.int32(1), np.float64(1), Size.SMALL),
    (0, 0.0, -0.0, False, Decimal("-0"), np.uint8(0)),
    (0.5, Decimal("0.5"), Fraction(1, 2), complex(0.5), np.float32(0.5)),
    (math.nan, float("nan"), -math.nan, Decimal("NaN"), np.float64("nan")),
    (math.inf, Decimal("Infinity"), np.float64("inf")),
    (-math.inf, Decimal("-Infinity")),
    (2**70, float(2**70), Decimal(2**70)),
    (2**63, float(2**63)),
    (-(2**63), float(-(2**63))),
    (Fraction(1, 3),),
    (Decimal("0.1"), Fraction(1, 10)),
    (0.1, Fraction(0.1), Decimal.from_float(0.1)),
    (1j,),
    ("", np.str_("")),
    ("é",),
    ("e\u0301",),  # looks the same, and is not
    ("\ud800",),
    ("low", Level.LOW),
    (b"", np.bytes_(b"")),
    (b"low",),
    ((),),
    ((1, 2), (True, 2.0), Point(1, 2)),
    ((1, (2,)),),
    (((1, 2),),),
    ((math.nan,), (float("nan"),)),
    (("a", "b"),),
    (("ab", ""),),
    (("", "ab"),),
    (frozenset({1, "a"}), frozenset({"a", 1.0})),
    (frozenset(),),
    (frozenset({frozenset({1})}),),
    (Spot(1), Spot(1, "seen")),
    (Other(1),),
    (Colour.RED, Colour.CRIMSON),
    (Colour.GREEN,),
    (None,),
    (dt.date(2026, 1, 1),),
    (dt.datetime(2026, 1, 1),),
    (dt.datetime(2026, 1, 1, tzinfo=dt.UTC), dt.datetime(2026, 1, 1, 1, tzinfo=BERLIN)),
    (dt.time(1, 2),),
    (dt.timedelta(days=1), dt.timedelta(hours=24)),
    (dt.timedelta(microseconds=1),),
    (uuid.UUID(int=1),),
    (ipaddress.ip_address("10.0.0.1"),),
    (ipaddress.ip_address("::1"),),
    (pathlib.PurePosixPath("a/b"),),
    (range(0), range(5, 5)),
    (range(0, 3), range(0, 3, 1)),
    (range(0, 4, 2), range(0, 3, 2)),
    (range(1, 2), range(1, 5, 10)),
]


def case_name(keys: tuple[Any, ...]) -> str:
    """The name of a case, the same in every process, which the order of a set's elements is not."""
    key = keys[0]
    return (f"frozenset({sorted(key, key=repr)})" if isinstance(key, frozenset) else repr(key))[:30]


@pytest.mark.parametrize("keys", EQUAL, ids=case_name)
def test_equal_keys_have_equal_encodings(keys: tuple[Any, ...]) -> None:
    assert len({encode_key(key) for key in keys}) == 1


def test_unequal_keys_have_different_encodings() -> None:
    encoded = [encode_key(keys[0]) for keys in EQUAL]
    assert len(set(encoded)) == len(EQUAL)


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        (["a"], "use a tuple"),
        ({"a": 1}, "use a frozenset"),
        ({"a"}, "use a frozenset"),
        (bytearray(b"a"), "use bytes"),
        (Plain(), "equal only to themselves"),
        (object(), "equal only to themselves"),
        (lambda: 1, "equal only to themselves"),
        (OwnEquality(), "its own __eq__"),
        (Shouting("a"), "its own __eq__"),
        (Loose(1), "frozen=True"),
        (ByIdentity(1), "compare by its fields"),
        (("a", ["b"]), "use a tuple"),
        (frozenset({Plain()}), "equal only to themselves"),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_keys_without_an_encoding_are_refused(key: Any, reason: str) -> None:
    with pytest.raises(TypeError, match=reason):
        encode_key(key)


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.integers(),
    st.floats(),
    st.text(max_size=3),
    st.sampled_from(["\ud800", "\0", "s", "1"]),
    st.binary(max_size=3),
    st.decimals(allow_nan=False, allow_infinity=False, places=2, min_value=-3, max_value=3),
    st.fractions(max_denominator=5),
    st.datetimes(),
    st.dates(),
    st.timedeltas(),
    st.uuids(),
)
keys = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3).map(tuple), st.frozensets(inner, max_size=3)),
    max_leaves=6,
)


@given(keys, keys)
def test_keys_meet_exactly_if_python_finds_them_equal(a: Any, b: Any) -> None:
    assert (encode_key(a) == encode_key(b)) == (canonical_key(a) == canonical_key(b))


@given(st.lists(keys, max_size=8))
def test_columns_of_keys_are_encoded_as_single_keys_are(some: list[Any]) -> None:
    encoded, _ = encode_keys(some)
    assert encoded.to_pylist() == [encode_key(key) for key in some]


one_kind = st.sampled_from(
    [
        st.integers(-(2**63), 2**63 - 1),
        st.integers(),
        st.text(),
        st.binary(),
        st.tuples(st.text(max_size=2), st.integers(0, 3)),
        st.tuples(st.tuples(st.binary(max_size=1)), st.text(max_size=1)),
        st.tuples(st.text(max_size=1), st.none()),
        st.just(()),
    ]
).flatmap(lambda kind: st.lists(kind, max_size=8))


@given(one_kind)
def test_the_fast_way_for_one_type_encodes_alike(some: list[Any]) -> None:
    encoded, spelling = encode_keys(some)
    assert encoded.to_pylist() == [encode_key(key) for key in some]
    assert decode_keys(encoded, spelling) == some


@given(st.lists(keys, max_size=8))
def test_decoding_gives_back_the_very_keys(some: list[Any]) -> None:
    decoded = decode_keys(*encode_keys(some))
    assert [canonical_value(key) for key in decoded] == [canonical_value(key) for key in some]
    assert [type(key) for key in decoded] == [type(key) for key in some]


@pytest.mark.parametrize("key", [True, 1.0, -0.0, Decimal("1.10"), Point(1, 2), Spot(1, "x"), Colour.RED, Size.SMALL])
def test_decoding_keeps_the_type(key: Any) -> None:
    (decoded,) = decode_keys(*encode_keys([key]))
    assert type(decoded) is type(key)
    assert repr(decoded) == repr(key)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=2))
def test_bytes_of_ints_sort_as_the_ints_do(numbers: list[int]) -> None:
    assert sorted(numbers, key=encode_key) == sorted(numbers)


def test_encodings_are_the_same_in_every_process() -> None:
    script = "from headrace.model.keys import encode_key; print(encode_key(frozenset('abcdefgh')).hex())"
    encodings = {
        subprocess.run(
            [sys.executable, "-c", script], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert encodings == {encode_key(frozenset("abcdefgh")).hex()}
