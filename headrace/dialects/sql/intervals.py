"""Intervals in SQL as durations: INTERVAL '5' SECOND, INTERVAL '1 hour 30 minutes'."""

from __future__ import annotations

from sqlglot import exp

from headrace.dialects.sql.sqlerrors import error_at
from headrace.model.times import duration


def interval_of(node: exp.Expr | None, text: str) -> int:
    """Returns a duration in microseconds."""
    if not isinstance(node, exp.Interval) or not isinstance(node.this, exp.Literal):
        shown = "nothing" if node is None else node.sql(dialect="spark")
        place = exp.Null() if node is None else node
        raise error_at(place, text, f"this must be an interval, such as INTERVAL '10' SECONDS, got {shown}")
    try:
        return duration(f"{node.this.name} {node.unit.name.lower() if node.unit else ''}".strip())
    except ValueError as error:
        raise error_at(node, text, str(error).removeprefix("duration: ")) from None
