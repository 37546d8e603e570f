"""Sliding views: `WITH (sw = '1 hour', step = '5 minutes')` is always the answer over the last hour.

Time is the stream's. The view is the answer over the hour that ends with the last whole step that the watermark has
passed. It is computed in windows that overlap, each of which emits once; its row replaces that of the window before,
and groups that have no rows any more expire after a step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from sqlglot import exp

from headrace.dialects.sql.grammar import After, Emit, Phase, WindowTable
from headrace.dialects.sql.planner import Planned
from headrace.dialects.sql.relations import spelled
from headrace.dialects.sql.sqlerrors import SqlError, error_at
from headrace.dialects.sql.sqlstatements import CreateQuery, CreateStream
from headrace.model.times import duration, format_duration

UNTIL: Final = "_until"
"""The hidden column with the end of the window that a row is of."""
_ALL: Final = "_all"  # the hidden key of what has no GROUP BY
_STEPS: Final = 20  # in the length of a view that names no step
_OTHERS: Final = ("with_", "joins", "distinct", "qualify", "laterals", "order", "limit", "offset", "emit")


@dataclass(frozen=True)
class Sliding:
    """The length of the past that a view shows, and the step by which it moves on, in microseconds."""

    length: int
    step: int


def sliding_of(statement: CreateQuery) -> Sliding | None:
    """Returns how a view slides; None if it does not."""
    if "sw" not in statement.options:
        if "step" in statement.options:
            raise SqlError("step is how far a sliding view moves on; write WITH (sw = '1 hour', step = '5 minutes')")
        return None
    if statement.kind == "transform":
        raise SqlError("sw is for views, whose rows change; a transform groups by windows of HOP(...)")
    if "ttl" in statement.options or "ttl_column" in statement.options:
        raise SqlError("a view with sw has no ttl: its rows are those of the last sw")
    length = _positive("sw", str(statement.options["sw"]))
    step = _positive("step", str(statement.options["step"])) if "step" in statement.options else length // _STEPS
    if not step or length % step:
        shown = f"{format_duration(step)} and {format_duration(length)}"
        raise SqlError(f"sw must be so many steps long, got a step of {shown}; give a step that divides it")
    return Sliding(length, step)


def sliding_query(sliding: Sliding, statement: CreateQuery, streams: Mapping[str, CreateStream]) -> exp.Select:
    """Returns the query that computes a sliding view: its own, in windows, with the end of the window as a column."""
    query, text = statement.query, statement.text
    source = query.args["from_"].this if query.args.get("from_") is not None else None
    if (
        not isinstance(query, exp.Select)
        or any(query.args.get(part) for part in _OTHERS)
        or not isinstance(source, exp.Table)
        or not isinstance(source.this, exp.Identifier)
        or query.find(exp.Window)
    ):
        raise error_at(query, text, "sw is for a SELECT of aggregates over one stream, with WHERE, GROUP BY and HAVING")
    name = spelled(source.name, streams)
    if name is None or streams[name].event_time is None:
        raise error_at(source, text, "sw needs a stream with an event time; add WATERMARK FOR column AS ... to it")
    slid = query.copy()
    sizes = [exp.Interval(this=exp.Literal.string(format_duration(each))) for each in (sliding.step, sliding.length)]
    table = WindowTable(
        this=slid.args["from_"].this.copy(), kind="HOP", time=exp.to_identifier(streams[name].event_time), sizes=sizes
    )
    slid.args["from_"].set("this", exp.Table(this=table))
    shown = [*slid.expressions, exp.alias_(exp.column("window_end"), UNTIL)]
    group = slid.args.get("group")
    keys = [] if group is None else list(group.expressions)
    if not keys:
        shown.append(exp.alias_(exp.Boolean(this=True), _ALL))
        keys = [exp.Boolean(this=True)]
    if group is not None and not group.expressions:
        raise error_at(query, text, "sw: write the columns of GROUP BY one by one")
    slid.set("expressions", shown)
    slid.set("group", exp.Group(expressions=[*keys, exp.column("window_end")]))
    slid.set("emit", Emit(phases=[Phase(expressions=[After(kind="WATERMARK")])]))
    return slid


def slid(planned: Planned) -> Planned:
    """Returns the plan of a sliding view, in which rows are known by the columns of its own GROUP BY."""
    if planned.key is None:
        raise SqlError("sw: the columns of GROUP BY must be in the SELECT, since a group's row replaces the one before")
    key = tuple(name for name in planned.key if name != UNTIL)
    added = [name for name in (UNTIL, _ALL) if name in planned.columns]
    return replace(planned, key=key, retracts=False, hidden=(*planned.hidden, *added))


def _positive(name: str, text: str) -> int:
    try:
        length = duration(text)
    except ValueError as error:
        raise SqlError(f"{name}: {error}") from None
    if length <= 0:
        raise SqlError(f"{name} must be positive, got {text!r}; give a duration such as '1 hour'")
    return length
