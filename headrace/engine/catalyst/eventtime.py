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


def event_time_of(node: Node, data: DataFrame, column: str | None, what: str = "event_time") -> Column:
    """Microseconds since the epoch from a column of timestamps, ISO 8601 text or seconds, or null; `what` names it."""
    if column is None:
        return F.lit(None).cast("long")
    if column not in data.columns:
        raise PipelineError(f"{node}: {what}={column!r} is no column; there are {', '.join(data.columns)}")
    kind, given = data.schema[column].dataType, F.col(parsing.quoted(column))
    if isinstance(kind, NumericType):
        seconds = given.try_cast("decimal(38,6)")
        return F.when(_in_years(seconds, SECOND), F.round(seconds * SECOND).cast("long"))
    if isinstance(kind, StringType):
        given = parsing.text_time(given)
    elif not isinstance(kind, TimestampType | TimestampNTZType):
        raise PipelineError(
            f"{node}: {what}={column!r} is a {kind.simpleString()}; it must be a timestamp, text or seconds"
        )
    time = F.unix_micros(given.cast("timestamp"))
    return F.when(_in_years(time, 1), time)


def _in_years(time: Column, unit: int) -> Column:
    """Whether a time is in the years 1 to 9999."""
    return (time >= YEAR_1 // unit) & (time < YEAR_10000 // unit)
