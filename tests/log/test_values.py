"""Values of a topic as columns: what a column cannot hold is refused, and never changed."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.log.errors import LogError
from headrace.log.values import Values

ROWS = Values("n bigint, i int, day date")


@pytest.mark.parametrize("row", [{"n": 1.5}, {"i": -0.5}, {"n": 5e-8}, {"day": 1.5}])
def test_fractions_are_not_cut_off(row: dict[str, Any]) -> None:
    """Regression: Arrow makes 1 of 1.5 without a word."""
    with pytest.raises(LogError, match="has whole numbers, got"):
        ROWS.encode([{"n": 3}, row])


def test_whole_numbers_with_a_point_are_whole() -> None:
    assert ROWS.encode([{"n": 2.0, "i": -1.0}]).to_pylist()[0] == {"n": 2, "i": -1, "day": None}
