"""Converts partial aggregates, as objects or as a pipeline's columns, to Arrow columns in the order of a store's table.

Many rows are converted at once, without a Python object for each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace.engine.worker.hidden import END, START
from headrace.model.safebytes import encode
from headrace.model.windows import GLOBAL_WINDOW
from headrace.views.declare.layout import Layout, Partial
from headrace.views.declare.partialaggregates import is_number
from headrace.views.errors import ViewError

_TYPES: Final = {str: pa.string(), int: pa.int64(), bytes: pa.binary()}
_KINDS: Final = {"bigint": pa.int64(), "double": pa.float64(), "bytes": pa.binary()}
_FITTING: Final[dict[str, Callable[[pa.DataType], bool]]] = {
    "string": pa.types.is_string,
    "bigint": pa.types.is_signed_integer,
    "boolean": pa.types.is_boolean,
    "date": pa.types.is_date32,
    "timestamp": pa.types.is_timestamp,
    "binary": pa.types.is_binary,
    "double": pa.types.is_floating,
    "bytes": pa.types.is_binary,
}


def stored_schema(layout: Layout) -> pa.Schema:
    """Returns the Arrow schema of a view's rows.

    >>> import headrace as hr
    >>> stored_schema(Layout.of("hits", keys={"url": "string"}, aggregations={"n": hr.count()})).names
    ['url', '__nulls', '__start', '__end', 'n']
    """
    keys = [(name, _TYPES[kind.stored]) for name, kind in zip(layout.keys, layout.types, strict=True)]
    place = [(name, pa.int64()) for name in ("__nulls", "__start", "__end")]
    accumulators = [(name, _KINDS[kind]) for name, kind in zip(layout.aggregations, layout.kinds, strict=True)]
    return pa.schema([*keys, *place, *accumulators])


def rows_of_partials(layout: Layout, partials: Sequence[Partial]) -> pa.RecordBatch:
    """Converts partial aggregates to rows.

    >>> import headrace as hr
    >>> hits = Layout.of("hits", keys={"url": "string"}, aggregations={"n": hr.count()})
    >>> rows_of_partials(hits, [Partial(("foo.com",), 0, 60, (3,)), Partial((None,), 0, 60, (1,))]).to_pylist()[1]
    {'url': '', '__nulls': 1, '__start': 0, '__end': 60, 'n': 1}
    """
    rows = [
        (*layout.place(key, start, end), *layout.stored(accumulators)) for key, start, end, accumulators in partials
    ]
    schema = stored_schema(layout)
    columns: Sequence[Any] = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.record_batch(arrays, schema=schema)


def rows_of_columns(layout: Layout, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Converts a record batch of the pipeline of a view's partials to rows.

    >>> import headrace as hr
    >>> hits = Layout.of("hits", keys={"url": "string"}, aggregations={"n": hr.count()})
    >>> batch = pa.record_batch({"url": ["foo.com"], "n": [3], "__start": [0], "__end": [60]})
    >>> rows_of_columns(hits, batch).to_pylist()
    [{'url': 'foo.com', '__nulls': 0, '__start': 0, '__end': 60, 'n': 3}]
    """
    size, columns = batch.num_rows, []
    nulls = pa.repeat(pa.scalar(0, pa.int64()), size)
    for position, name in enumerate(layout.keys):
        column = batch.column(name)
        columns.append(_key(layout, position, column))
        if column.null_count:
            nulls = pc.add(nulls, pc.multiply(column.is_null().cast(pa.int64()), 1 << position))
    columns.append(nulls)
    for name, bound in ((START, GLOBAL_WINDOW.start), (END, GLOBAL_WINDOW.end)):
        columns.append(
            batch.column(name) if name in batch.schema.names else pa.repeat(pa.scalar(bound, pa.int64()), size)
        )
    columns += [_accumulator(layout, position, batch.column(name)) for position, name in enumerate(layout.aggregations)]
    return pa.record_batch(columns, schema=stored_schema(layout))


def _key(layout: Layout, position: int, column: pa.Array) -> pa.Array:
    kind = layout.types[position]
    _check(layout, f"the key {layout.keys[position]!r}", kind.name, column)
    if kind.name == "string" and pc.any(pc.match_substring_regex(column, "[\\x00\\x01]")).as_py():
        column = pa.array([layout.stored_key(position, each) for each in column.to_pylist()], pa.string())
    if kind.name == "date":
        column = column.cast(pa.int32())
    if kind.name == "timestamp":
        column = column.cast(pa.timestamp("us", column.type.tz))
    return column.cast(_TYPES[kind.stored]).fill_null(kind.zero)


def _accumulator(layout: Layout, position: int, column: pa.Array) -> pa.Array:
    name, kind = layout.aggregations[position], layout.kinds[position]
    if kind == "bytes" and is_number(layout.fns[position]):
        return pa.array([encode(each) for each in column.to_pylist()], pa.binary())
    _check(layout, repr(name), kind, column)
    if column.null_count:
        raise ViewError(f"view {layout.name!r}: {name!r} has no accumulator in {column.null_count} rows")
    if kind == "double":
        number = column.cast(pa.float64())
        return pc.if_else(pc.is_nan(number), pa.scalar(None, pa.float64()), number)  # SQLite stores no NaN
    return column.cast(_KINDS[kind])


def _check(layout: Layout, what: str, kind: str, column: pa.Array) -> None:
    if not _FITTING[kind](column.type):
        raise ViewError(f"view {layout.name!r}: {what} is a {kind}, but the pipeline gives {column.type}")
