"""Asks a running query how many rows its micro-batch has read, which Spark counts anyway, and for those rows again."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

_QUERY: Final = "sql.streaming.queryId"
_ROWS: Final = "numOutputRows"
_SIEVE: Final = "SPARK_PARTITION_ID"
_UNCHECKED: Final = "spark.sql.streaming.unsupportedOperationCheck"


class Sieved(NamedTuple):
    """The counts of a sieve: rows that came to it, and rows that it let through."""

    read: int
    passed: int


def rows_read(spark: SparkSession) -> int:
    """Returns how many rows the scans of the micro-batch have given that this thread delivers.

    The session is the one that started the query. Rows of all its jobs count: a frame that is read twice must be
    persisted.
    """
    return _rows_read(_execution(spark).executedPlan())


def sieve(condition: Column) -> Column:
    """Returns a condition for the rows of a source, for `where`, such that Spark counts what it lets through.

    Spark neither merges it with other conditions nor skips rows that do not meet it: all are read, and counted.
    """
    # The number of a task is no less than 0. It is not deterministic, and so nothing is moved across it.
    return F.when(F.spark_partition_id() >= 0, F.coalesce(condition, F.lit(False))).otherwise(F.lit(False))


def rows_sieved(spark: SparkSession, alias: str) -> Sieved:
    """Returns what the sieve of a part of the query, its only one, has counted in this thread's micro-batch.

    Tasks that failed and were run again count again; what they did not let through is never missing.
    """
    execution = _execution(spark)
    sieves = _sieves(execution.executedPlan())
    if not sieves and (
        left := [
            leaf
            for leaf in _each(_aliased(execution.analyzed(), alias).collectLeaves())
            if leaf.nodeName() != "LocalRelation"
        ]
    ):
        raise LookupError(f"Spark has planned this without its sieve: {left[0]}")
    return Sieved(sum(map(_rows_read, sieves)), sum(map(_counted, sieves)))


def rows_again(spark: SparkSession, alias: str, session: SparkSession) -> DataFrame:
    """Returns the rows of this micro-batch in a part of the query that has an alias, to be read once more.

    `session` is the one of the micro-batch's frame. Spark takes the rows for a stream's, until they are `settled`.
    """
    session.conf.set(_UNCHECKED, "false")  # or it would not run what it takes for a stream
    plan = _aliased(_execution(spark).analyzed(), alias)
    datasets = getattr(session._jvm, "org.apache.spark.sql.classic.Dataset")
    return DataFrame(datasets.ofRows(session._jsparkSession, plan), session)


def settled(rows: DataFrame) -> DataFrame:
    """Returns these rows as a frame that is no stream's."""
    known: Any = rows._jdf.queryExecution().toRdd()
    session = rows.sparkSession
    return DataFrame(session._jsparkSession.internalCreateDataFrame(known, rows._jdf.schema(), False), session)


def _execution(spark: SparkSession) -> Any:
    """Returns the execution of the micro-batch that this thread delivers."""
    queries: Any = spark._jsparkSession.streams()
    return queries.get(spark.sparkContext.getLocalProperty(_QUERY)).streamingQuery().lastExecution()


def _rows_read(plan: Any) -> int:
    return sum(map(_counted, _each(plan.collectLeaves())))


def _counted(node: Any) -> int:
    counted = node.metrics().get(_ROWS)
    return int(counted.get().value()) if counted.isDefined() else 0


def _sieves(plan: Any) -> list[Any]:
    """Returns the lowest sieves of a plan: a user's condition may look like one."""
    if below := [found for child in _each(plan.children()) for found in _sieves(child)]:
        return below
    return [plan] if plan.nodeName() == "Filter" and _SIEVE in plan.condition().toString() else []


def _aliased(plan: Any, alias: str) -> Any:
    if plan.nodeName() == "SubqueryAlias" and plan.alias() == alias:
        return plan
    return next((found for child in _each(plan.children()) if (found := _aliased(child, alias)) is not None), None)


def _each(sequence: Any) -> list[Any]:
    items, found = sequence.iterator(), []
    while items.hasNext():
        found.append(items.next())
    return found
