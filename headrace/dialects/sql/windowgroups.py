"""Spark's windows in GROUP BY, `window(at, '1 minute')` and `session_window(at, '5 minutes')`, as tables in windows."""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from headrace.dialects.sql.grammar import WindowTable
from headrace.dialects.sql.sqlerrors import error_at

_USAGE: Final = {
    "window": "window(at, size), window(at, size, slide) or window(at, size, slide, offset)",
    "session_window": "session_window(at, gap)",
}


def with_window_table(query: exp.Select, text: str) -> exp.Select:
    """Returns a query that groups by a window function as one over a table in windows; others as they are."""
    group = query.args.get("group")
    calls = [each for each in group.expressions if _is_window(each)] if group is not None else []
    if not calls:
        return query
    if len(calls) > 1 or query.args.get("joins"):
        raise error_at(calls[-1], text, "a query has one window, over one table; write TUMBLE(TABLE t, ...) in FROM")
    (call,) = calls
    name = call.name.lower()
    windowed = query.copy()
    source = windowed.args["from_"].this
    windowed.args["from_"].set("this", exp.Table(this=_window_table(call, source.copy(), text)))
    bounds = [exp.column(each) for each in ("window_start", "window_end")]
    keys = [each for each in windowed.args["group"].expressions if not _is_window(each)]
    windowed.args["group"].set("expressions", [*keys, *bounds])
    for column in list(windowed.find_all(exp.Column)):
        if column.table.lower() == name and column.name.lower() in ("start", "end"):
            column.replace(exp.column(f"window_{column.name.lower()}"))
        elif not column.table and column.name.lower() == name:
            raise error_at(column, text, f"a window is no column here; write {name}.start and {name}.end")
    return windowed


def _is_window(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.lower() in _USAGE


def _window_table(call: exp.Anonymous, source: exp.Expr, text: str) -> WindowTable:
    name, (time, *sizes) = call.name.lower(), call.expressions or [exp.Null()]
    most = 3 if name == "window" else 1
    if not isinstance(time, exp.Column) or not 1 <= len(sizes) <= most:
        raise error_at(call, text, f"it is {_USAGE[name]}, with the column of the event time and intervals")
    if not all((isinstance(each, exp.Literal) and each.is_string) or isinstance(each, exp.Interval) for each in sizes):
        raise error_at(call, text, f"it is {_USAGE[name]}, with intervals such as '1 minute'")
    size, *rest = [exp.Interval(this=each.copy()) if isinstance(each, exp.Literal) else each.copy() for each in sizes]
    kind = "SESSION" if name == "session_window" else "HOP" if rest else "TUMBLE"
    ordered = [rest[0], size, *rest[1:]] if rest else [size]
    return WindowTable(this=source, kind=kind, time=time.this.copy(), sizes=ordered)
