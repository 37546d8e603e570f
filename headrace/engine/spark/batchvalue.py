"""A number that the driver sets before each micro-batch, for the expressions of a query.

A literal of another value is other generated code, which Spark compiles anew for every batch. An element of a literal
array is read from the array, which travels with the tasks: the code stays as it is.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions"


class BatchValue:
    """A whole number of 64 bits that is 0 until it is set.

    >>> from headrace.engine.spark.session import spark_session
    >>> value = BatchValue(spark_session())
    >>> more = spark_session().range(2).select((F.col("id") + value.column).alias("more"))
    >>> value.set(1_700_000_000_000_000)
    >>> [row.more for row in more.collect()]
    [1700000000000000, 1700000000000001]
    """

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        gateway: Any = spark.sparkContext._gateway
        longs = gateway.new_array(jvm.long, 1)
        self._cell: Any = getattr(jvm, f"{_EXPRESSIONS}.UnsafeArrayData").fromPrimitiveArray(longs)
        kind = jvm.org.apache.spark.sql.types.DataType.fromDDL("array<bigint>")
        literal = getattr(jvm, f"{_EXPRESSIONS}.Literal").create(self._cell, kind)
        array = Column(getattr(jvm, "org.apache.spark.sql.classic.ExpressionUtils").column(literal))
        # Where the element is could be known beforehand, but Spark would then write its value into the code.
        self.column: Column = F.get(array, F.least(F.spark_partition_id(), F.lit(0)))

    def set(self, value: int) -> None:
        """Sets the value for jobs that begin from now on."""
        self._cell.setLong(0, value)
