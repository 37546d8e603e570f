"""Tables in windows as window functions: TUMBLE, HOP and SESSION, by event time or by a number of rows."""

from __future__ import annotations

from sqlglot import exp

from headrace.dialects.sql.grammar import Rows, WindowTable
from headrace.dialects.sql.intervals import interval_of
from headrace.dialects.sql.sqlerrors import error_at
from headrace.model.times import format_duration
from headrace.model.windows import CountWindows, FixedWindows, Sessions, SlidingWindows, WindowFn

_USAGE = {
    "TUMBLE": "TUMBLE(TABLE t, DESCRIPTOR(at), size) or TUMBLE(TABLE t, DESCRIPTOR(at), size, offset)",
    "HOP": "HOP(TABLE t, DESCRIPTOR(at), slide, size) or HOP(TABLE t, DESCRIPTOR(at), slide, size, offset)",
    "SESSION": "SESSION(TABLE t, DESCRIPTOR(at), gap)",
}


def window_fn(table: WindowTable, text: str) -> WindowFn:
    """Returns the windows of a table in windows."""
    kind, sizes = table.args["kind"], list(table.args["sizes"])
    if kind == "TUMBLE" and len(sizes) == 1 and isinstance(sizes[0], Rows):
        return CountWindows(_count(sizes[0], text))
    needed = {"TUMBLE": (1, 2), "HOP": (2, 3), "SESSION": (1, 1)}[kind]
    if not needed[0] <= len(sizes) <= needed[1]:
        raise error_at(table, text, f"it is {_USAGE[kind]}, got {len(sizes)} sizes")
    if any(isinstance(size, Rows) for size in sizes):
        raise error_at(table, text, "only TUMBLE has windows of a number of ROWS")
    lengths = [interval_of(size, text) for size in sizes]
    shown = [format_duration(length) for length in lengths]
    try:
        match kind:
            case "TUMBLE":
                return FixedWindows(*shown)
            case "HOP":
                slide, size, *offset = shown
                return SlidingWindows(size, slide, *offset)
            case _:
                return Sessions(shown[0])
    except ValueError as error:
        raise error_at(table, text, str(error)) from None


def _count(rows: Rows, text: str) -> int:
    number = rows.this
    if not isinstance(number, exp.Literal) or number.is_string or not number.name.isdigit() or number.name == "0":
        raise error_at(rows, text, f"the number of ROWS must be a positive int, got {number.sql(dialect='spark')}")
    return int(number.name)
