"""What it means for a row to match a query: each value against each constant, as Spark compares them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any


def matches(conditions: Sequence[tuple[str, Any]], row: Sequence[Any]) -> bool:
    """Returns whether each value of a row fulfils the condition beside it: an operator and a constant."""
    return all(_holds(operator, constant, value) for (operator, constant), value in zip(conditions, row, strict=True))


def _holds(operator: str, constant: Any, value: Any) -> bool:
    if value is None:
        return False
    if operator == "in":
        return any(_compare(value, each) == 0 for each in constant)
    if operator == "between":
        return _compare(value, constant[0]) >= 0 and _compare(value, constant[1]) <= 0
    order = _compare(value, constant)
    return {"<": order < 0, "<=": order <= 0, ">": order > 0, ">=": order >= 0}[operator]


def _compare(left: Any, right: Any) -> int:
    """Compares two values; NaN is the greatest number, and equals itself."""
    left_nan, right_nan = _is_nan(left), _is_nan(right)
    if left_nan or right_nan:
        return int(left_nan) - int(right_nan)
    return int(left > right) - int(left < right)


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)
