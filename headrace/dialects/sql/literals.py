"""Constants in SQL as Python values."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from headrace.dialects.sql.grammar import ContinuousSql
from headrace.dialects.sql.sqlerrors import error_at


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
