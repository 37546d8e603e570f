"""Values of views and of statements as JSON."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal
from typing import Any

import pytest

from headrace.model.jsontext import dumps


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (2**63, 2**63),
        (0.1, 0.1),
        ([math.inf, -math.inf], ["Infinity", "-Infinity"]),
        ([("a", 3), ("b", math.nan)], [["a", 3], ["b", "NaN"]]),
        ({("a", 1): 2}, {'["a",1]': 2}),
        (dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC), "2026-01-31T12:00:00Z"),
        (dt.date(2026, 1, 31), "2026-01-31"),
        (dt.timedelta(milliseconds=1500), 1.5),
        (Decimal("1.10"), 1.1),
        (Decimal("3"), 3),
        (Decimal(2**100), 2**100),
        (Decimal("0.1234567890123456789"), "0.1234567890123456789"),
        (Decimal("NaN"), "NaN"),
        (b"\x00\xff", "AP8="),
        ({"b", "a"}, ["a", "b"]),
        ("<script>\u2028 é", "<script>\u2028 é"),
        ("\ud800", "\ud800"),
    ],
)
def test_values(value: Any, encoded: Any) -> None:
    assert json.loads(dumps({"value": value})) == {"value": encoded}
