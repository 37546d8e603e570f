"""Event times from a column, as Spark expressions."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import NumericType, StringType, TimestampNTZType, TimestampType

from headrace.engine.catalyst import parsing
from headrace.model.badrecords import YEAR_1, YEAR_10000
from headrace.model.errors import PipelineError
from headrace.model.pipeline import Node
from headrace.model.times import SECOND


def event_time_of(
    node: Node, data: DataFrame, column: str | None, what: str = "event_time", *, value: Column | None = None
) -> Column:
    """Returns event times in microseconds from a column of timestamps, ISO 8601 text or seconds; null if there is none.

    `what` names the argument in error messages; `value` is taken in place of the column.
    """
    if column is None:
        return F.lit(None).cast("long")
    if column not in data.columns:
        raise PipelineError(f"{node}: {what}={column!r} is no column; there are {', '.join(data.columns)}")
    kind = data.schema[column].dataType
    value = F.col(parsing.quoted(column)) if value is None else value
    if isinstance(kind, NumericType):
        seconds = value.try_cast("decimal(38,6)")
        return F.when(_in_years(seconds, SECOND), F.round(seconds * SECOND).cast("long"))
    if isinstance(kind, StringType):
        value = parsing.text_time(value)
    elif not isinstance(kind, TimestampType | TimestampNTZType):
        raise PipelineError(
            f"{node}: {what}={column!r} is a {kind.simpleString()}; it must be a timestamp, text or seconds"
        )
    time = F.unix_micros(value.cast("timestamp"))
    return F.when(_in_years(time, 1), time)


def _in_years(time: Column, unit: int) -> Column:
    """Returns whether a time is in the years 1 to 9999."""
    return (time >= YEAR_1 // unit) & (time < YEAR_10000 // unit)
