"""Constants in SQL as Python values."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any, Final

from sqlglot import exp

from headrace.dialects.sql.grammar import ContinuousSql
from headrace.dialects.sql.sqlerrors import SqlError, error_at
from headrace.model.times import instant


def literal_value(node: exp.Expr, text: str) -> Any:
    """Returns the value of a constant."""
    match node:
        case exp.Null():
            return None
        case exp.Boolean():
            return bool(node.this)
        case exp.Literal():
            return node.name if node.is_string else int(node.name) if node.name.isdigit() else float(node.name)
        case exp.Neg():
            return -literal_value(node.this, text)
        case exp.Cast():
            return literal_value(node.this, text)  # TIMESTAMP '...', DATE '...'
        case exp.Anonymous() if node.name.lower() == "array":
            return [literal_value(each, text) for each in node.expressions]
    shown = node.sql(dialect=ContinuousSql, normalize_functions=False)
    raise error_at(node, text, f"a value is a constant, got {shown}")


def _timestamp(value: Any) -> datetime:
    return datetime.fromtimestamp(instant(value) / 1_000_000, UTC)


_TYPED: Final[dict[str, Callable[[Any], Any]]] = {
    "TIMESTAMP": _timestamp,
    "TIMESTAMP_LTZ": _timestamp,
    "DATE": date.fromisoformat,
    "DOUBLE": float,
    "FLOAT": float,
}


def typed_value(name: str, value: Any, kind: str) -> Any:
    """Returns a constant as a value of a column's type."""
    if value is None or kind not in _TYPED:
        return value
    try:
        return _TYPED[kind](value)
    except (TypeError, ValueError):
        raise SqlError(f"the column {name!r} is {kind.lower()}, got {value!r}") from None
