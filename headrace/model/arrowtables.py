"""Arrow tables of what users have: tables of pandas, polars and Arrow, and rows with a schema.

Their columns get types that Spark has, and keep their values: what would lose some is refused.
"""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from headrace.model.errors import PipelineError

_WIDER: Final = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
    pa.null(): pa.string(),
}
"""Types that Spark does not have, and those that take their values."""
_UNFIT: Final = (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError)
"""Errors that say that values are not of a type."""


def is_spark_frame(data: object) -> bool:
    """Returns whether this is a DataFrame of Spark, which is not imported to find out."""
    return type(data).__name__ == "DataFrame" and type(data).__module__.startswith("pyspark.sql")


def table_of(data: Any) -> pa.Table | None:
    """Returns the Arrow table of a table of pandas, polars, Arrow or whatever exports Arrow streams; of others, None.

    An index of pandas is a column if it has a name; other indexes only number the rows. Missing values of pandas (NaN,
    NaT) are nulls. Instants without a time zone are in UTC.

    >>> import pandas as pd
    >>> table_of(pd.DataFrame({"n": [1, 2]}, index=pd.Index(["a", "b"], name="word"))).to_pylist()
    [{'word': 'a', 'n': 1}, {'word': 'b', 'n': 2}]
    >>> table_of([1, 2]) is None
    True
    """
    table = _arrow_table(data)
    if table is None:
        return None
    names = table.column_names
    if not names:
        raise PipelineError("Create: the table has no columns; give it at least one")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise PipelineError(f"Create: the table has two columns {twice[0]!r}; names of columns must differ, rename one")
    columns = [_with_sparks_type(name, column) for name, column in zip(names, table.columns, strict=True)]
    return pa.table(columns, names=names)


def _arrow_table(data: Any) -> pa.Table | None:
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if (pandas := sys.modules.get("pandas")) is not None and isinstance(data, pandas.DataFrame):
        return _from_pandas(data)
    if not hasattr(data, "__arrow_c_stream__"):
        return None
    try:
        return pa.RecordBatchReader.from_stream(data).read_all()
    except pa.ArrowInvalid:  # a stream of values, such as a polars.Series, and not of rows
        return None


def _from_pandas(frame: Any) -> pa.Table:
    if wrong := [name for name in frame.columns if not isinstance(name, str)]:
        raise PipelineError(
            f"Create: a column of the DataFrame is called {wrong[0]!r}; names of columns are text: "
            "df.columns = map(str, df.columns)"
        )
    named = [name for name in frame.index.names if name is not None]
    frame = frame.reset_index(level=named) if named else frame
    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise PipelineError(
            f"Create: a column of the DataFrame has values of several types: {'; '.join(map(str, error.args))}; "
            "convert it, e.g. with df.astype"
        ) from None


def _with_sparks_type(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    target = _sparks_type(column.type)
    if target == column.type:
        return column
    try:
        return column.cast(target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        remedy = "; round it to microseconds" if pa.types.is_timestamp(column.type) else ""
        raise PipelineError(
            f"Create: the column {name!r} of {column.type} does not fit into {target}, the type that Spark has: "
            f"{error}{remedy}"
        ) from None


def _sparks_type(kind: pa.DataType) -> pa.DataType:
    """Returns the type in which Spark stores the values of an Arrow type."""
    if kind in _WIDER:
        return _WIDER[kind]
    if pa.types.is_dictionary(kind):
        return _sparks_type(kind.value_type)
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz="UTC")
    if pa.types.is_duration(kind):
        return pa.duration("us")
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(_sparks_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([kind.field(at).with_type(_sparks_type(kind.field(at).type)) for at in range(kind.num_fields)])
    if pa.types.is_map(kind):
        return pa.map_(_sparks_type(kind.key_type), _sparks_type(kind.item_type))
    return kind


def rows_table(rows: Sequence[Any], columns: pa.Schema) -> pa.Table:
    """Makes a table of rows: dicts by the names of columns, or tuples in their order. What a dict lacks is null.

    >>> rows_table([{"a": 1}, (2, "x")], pa.schema({"a": pa.int64(), "b": pa.string()})).to_pylist()
    [{'a': 1, 'b': None}, {'a': 2, 'b': 'x'}]
    """
    names = columns.names
    values = [_in_order(row, names, at) for at, row in enumerate(rows)]
    return pa.table(
        [_column([row[at] for row in values], field) for at, field in enumerate(columns)],
        schema=columns,
    )


def _in_order(row: Any, names: Sequence[str], at: int) -> Sequence[Any]:
    if isinstance(row, Mapping):
        if unknown := [name for name in row if name not in names]:
            raise PipelineError(
                f"Create: row {at} has {unknown[0]!r}, which is no column of the schema; there are {', '.join(names)}"
            )
        return [row.get(name) for name in names]
    if isinstance(row, tuple | list) and len(row) == len(names):
        return row
    raise PipelineError(
        f"Create: with a schema, a row is a dict, or a tuple of {len(names)} values, but row {at} is {row!r:.200}"
    )


def _column(values: Sequence[Any], field: pa.Field) -> pa.Array:
    try:
        return _array(values, field.type)
    except _UNFIT:
        at = next(at for at, value in enumerate(values) if not _fits(value, field.type))
        raise PipelineError(
            f"Create: row {at} has {values[at]!r:.200} in the column {field.name!r}, which is no {field.type}"
        ) from None


def _fits(value: Any, kind: pa.DataType) -> bool:
    try:
        _array([value], kind)
    except _UNFIT:
        return False
    return True


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        values = [_in_utc(value) for value in values]
    elif pa.types.is_integer(kind) and any(type(value) is float and not value.is_integer() for value in values):
        raise ValueError("a fraction, which Arrow would cut off")
    return pa.array(values, kind)


def _in_utc(value: Any) -> Any:
    return value.replace(tzinfo=dt.UTC) if isinstance(value, dt.datetime) and value.tzinfo is None else value
