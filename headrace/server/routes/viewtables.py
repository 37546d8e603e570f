"""Reads a view as an Arrow table: keys, window_start, window_end, and the answers of its aggregations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa

from headrace.model.jsontext import dumps
from headrace.model.times import MAX_TIME, MIN_TIME
from headrace.views.declare.layout import Layout
from headrace.views.errors import ViewError
from headrace.views.query.queries import MOST_ROWS, Provenance, Query, Row
from headrace.views.stores.store import StoredView

_TIME: Final = pa.timestamp("us", tz="UTC")
_KEYS: Final = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": _TIME,
    "binary": pa.binary(),
}
_NUMBERS: Final = {"bigint": pa.int64(), "double": pa.float64()}


def table_of(view: StoredView, since: Any, until: Any, limit: int) -> tuple[pa.Table, Provenance]:
    """Reads the rows of windows that begin from `since` to before `until`, in one snapshot; refused above `limit`."""
    parts, rows = [], 0
    for page in view.pages(Query(since=since, until=until, limit=MOST_ROWS)):
        rows += len(page.rows)
        if rows > limit:
            raise ViewError(
                f"view {view.layout.name!r} has more than {limit:,} rows in these windows; "
                "ask for fewer, with from and to"
            )
        parts.append(page.rows)
    return table(view.layout, [row for part in parts for row in part]), page.provenance


def table(layout: Layout, rows: list[Row]) -> pa.Table:
    """Makes a table of rows."""
    columns = {
        name: pa.array([row.key[name] for row in rows], _KEYS[kind.name])
        for name, kind in zip(layout.keys, layout.types, strict=True)
    }
    columns["window_start"] = _times(row.window.start for row in rows)
    columns["window_end"] = _times(row.window.end for row in rows)
    for name, kind in zip(layout.aggregations, layout.kinds, strict=True):
        columns[name] = _answers([row.values[name] for row in rows], _NUMBERS.get(kind))
    return pa.table(columns)


def _times(times: Iterable[int]) -> pa.Array:
    return pa.array([time if MIN_TIME < time < MAX_TIME else None for time in times], _TIME)


def _answers(values: list[Any], kind: pa.DataType | None) -> pa.Array:
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, OverflowError):  # values of several types become JSON
        return pa.array([dumps(value).decode() for value in values], pa.string())
