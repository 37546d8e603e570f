"""An expression of Spark's that is null where another one fails, whatever it fails with."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, SparkSession

_TRY = "org.apache.spark.sql.catalyst.expressions.TryEval"


def try_eval(spark: SparkSession, column: Column) -> Column:
    """Returns the values of an expression, and null where it fails.

    What Spark computes once for several expressions, it computes before them, out of reach; so the one that may fail
    should stand in a branch of `when`.

    >>> from headrace.engine.spark.session import spark_session
    >>> from pyspark.sql import functions as F
    >>> tried = try_eval(spark_session(), F.when(F.col("id") < 9, F.expr("6 div id")))
    >>> [row[0] for row in spark_session().range(3).select(tried).collect()]
    [None, 6, 3]
    """
    jvm: Any = spark._jvm
    session: Any = spark._jsparkSession
    node: Any = column._jc
    failing = getattr(jvm, _TRY)(session.expression(node))
    return Column(jvm.org.apache.spark.sql.classic.ExpressionUtils.column(failing))
