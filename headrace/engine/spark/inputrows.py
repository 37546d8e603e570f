"""Asks a running query how many rows its micro-batch has read, which Spark counts anyway."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

_QUERY = "sql.streaming.queryId"
_ROWS = "numOutputRows"


def rows_read(spark: SparkSession) -> int:
    """Returns how many rows the scans of the micro-batch have given that this thread delivers.

    The session is the one that started the query. Rows of all its jobs count: a frame that is read twice must be
    persisted.
    """
    queries: Any = spark._jsparkSession.streams()
    execution = queries.get(spark.sparkContext.getLocalProperty(_QUERY)).streamingQuery().lastExecution()
    leaves = execution.executedPlan().collectLeaves().iterator()
    rows = 0
    while leaves.hasNext():
        counted = leaves.next().metrics().get(_ROWS)
        rows += counted.get().value() if counted.isDefined() else 0
    return rows
