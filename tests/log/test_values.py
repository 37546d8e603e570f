"""Values of a topic as columns: what a column cannot hold is refused, and never changed."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.log.errors import LogError
from headrace.log.values import Values

ROWS = Values("n bigint, i int, day date, at timestamp, name string")


@pytest.mark.parametrize("row", [{"n": 1.5}, {"i": -0.5}, {"n": 5e-8}, {"day": 1.5}])
def test_fractions_are_not_cut_off(row: dict[str, Any]) -> None:
    """Regression: Arrow makes 1 of 1.5 without a word."""
    ((column, value),) = row.items()
    with pytest.raises(LogError, match=rf"column '{column}' is an? (bigint|int|date), got {value}$"):
        ROWS.encode([{"n": 3}, row])


@pytest.mark.parametrize(
    ("row", "wrong"),
    [
        ({"n": "many"}, "column 'n' is a bigint, got 'many'"),
        ({"i": 2**40}, "column 'i' is an int, got 1099511627776"),
        ({"day": "noon"}, "column 'day' is a date, got 'noon'"),
        ({"at": "noon"}, "column 'at' is a timestamp, got 'noon'"),
        ({"name": 3}, "column 'name' is a string, got 3"),
        ({"name": ["x" * 100]}, f"column 'name' is a string, got ['{'x' * 58}..."),
        ({"names": "x"}, "there is no column 'names'; there are n, i, day, at, name"),
    ],
)
def test_a_refusal_names_the_column_its_type_and_the_value(row: dict[str, Any], wrong: str) -> None:
    with pytest.raises(LogError) as refusal:
        ROWS.encode([{"n": 3}, row])
    assert str(refusal.value) == f"a value is not {ROWS.kind}: {wrong}"


def test_whole_numbers_with_a_point_are_whole() -> None:
    assert ROWS.encode([{"n": 2.0, "i": -1.0}]).to_pylist()[0] == {
        "n": 2,
        "i": -1,
        "day": None,
        "at": None,
        "name": None,
    }
