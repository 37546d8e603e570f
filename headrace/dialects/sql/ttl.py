"""The time to live of a view's rows: `WITH (ttl = '7 days', ttl_column = 'window_start')`.

Time is the stream's. Groups expire when the watermark has come to the time of their column plus the ttl: their rows are
deleted, their windows are closed, and rows that still come for them are late, which is counted. Rows that are not
grouped expire when the column has had a value that is so much later.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from headrace.dialects.sql.emit import FOREVER, emission_of
from headrace.dialects.sql.planner import Planned
from headrace.dialects.sql.relations import spelled
from headrace.dialects.sql.sliding import UNTIL, sliding_of
from headrace.dialects.sql.sqlerrors import SqlError
from headrace.dialects.sql.sqlstatements import CreateQuery
from headrace.model.grouping import in_panes
from headrace.model.knowncolumns import no_column
from headrace.model.times import duration, format_duration
from headrace.model.windows import CountWindows, Sessions


@dataclass(frozen=True)
class Ttl:
    """A time to live: how long rows stay after the time in a column, in microseconds."""

    age: int
    column: str


def ttl_of(statement: CreateQuery) -> Ttl | None:
    """Returns the time to live that a statement gives to rows; None if they stay."""
    if (sliding := sliding_of(statement)) is not None:
        return Ttl(sliding.step, UNTIL)
    age, column = (statement.options.get(name) for name in ("ttl", "ttl_column"))
    if age is None and column is None:
        return None
    if statement.kind == "transform":
        raise SqlError("ttl is for views; the rows of a stream go by its own `retention`")
    if age is None or column is None:
        raise SqlError("ttl needs the column that it counts from; write WITH (ttl = '7 days', ttl_column = 'at')")
    try:
        length = duration(str(age))
    except ValueError as error:
        raise SqlError(f"ttl: {error}") from None
    if length <= 0:
        raise SqlError(f"ttl must be positive, got {age!r}; give a duration such as '7 days'")
    return Ttl(length, str(column))


def spelled_column(ttl: Ttl, planned: Planned) -> str:
    """Returns the column that a ttl counts from, as the query spells it."""
    column = spelled(ttl.column, planned.columns)
    if column is None:
        raise SqlError(f"ttl_column: {no_column(ttl.column, planned.columns)}")
    return column


def expiring_column(ttl: Ttl, columns: pa.Schema) -> str:
    """Returns the column that a ttl counts from, whose type is known; refuses one that has no times."""
    name = spelled(ttl.column, columns.names)
    assert name is not None, ttl
    if not pa.types.is_timestamp(kind := columns.field(name).type):
        raise SqlError(f"ttl_column: {name!r} is {kind}; a ttl counts from a timestamp")
    return name


def lateness_for(ttl: Ttl, planned: Planned, statement: CreateQuery) -> int | None:
    """Returns how long windows take late rows, so that none comes for a row that has expired; None without groups."""
    column = spelled_column(ttl, planned)
    bound = planned.bounds.get(column)
    if bound is None:
        if in_panes(planned.collection.pipeline.snapshot(), planned.collection):
            raise SqlError(
                f"ttl_column: {column!r} is no bound of windows, so the groups behind the rows would stay; group by "
                "window_start or window_end of a TUMBLE, HOP or SESSION, and name that column"
            )
        return None
    windows, lateness = planned.collection.windowing.window, ttl.age
    if isinstance(windows, CountWindows):
        raise SqlError(f"ttl_column: {column!r} is a number of rows; a ttl counts from a timestamp")
    if bound == "window_start":
        if isinstance(windows, Sessions):
            raise SqlError("ttl_column: a session may still begin earlier; use window_end")
        size: int = windows.size  # type: ignore[attr-defined]
        lateness -= size
        if lateness < 0:
            raise SqlError(
                f"ttl: after {format_duration(ttl.age)}, windows of {format_duration(size)} are not over yet; give at "
                "least their size, or count from window_end"
            )
    emission = emission_of(statement.query.args.get("emit"), statement.text)
    if lateness < emission.lateness != FOREVER:
        raise SqlError(
            f"ttl: WITH LATENESS takes rows for {format_duration(emission.lateness)} after a window has ended, and "
            f"its own row is gone after {format_duration(lateness)}; give less LATENESS, or a longer ttl"
        )
    return lateness
