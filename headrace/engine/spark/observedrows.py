"""Counts the rows of a DataFrame in the job that reads it anyway."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import Column, DataFrame, Observation


class ObservedRows:
    """A frame, `data`, whose rows Spark counts when a job first reads them all.

    >>> from pyspark.sql import functions as F
    >>> from headrace.engine.spark.session import spark_session
    >>> rows = ObservedRows(spark_session().range(5), F.count_if(F.col("id") > 1).alias("some"))
    >>> rows.data.write.format("noop").mode("overwrite").save()
    >>> rows.counted()
    {'some': 3}
    """

    def __init__(self, data: DataFrame, *metrics: Column) -> None:
        self._data, self._metrics, self._observation = data, metrics, Observation()
        self.data = data.observe(self._observation, *metrics)

    def counted(self) -> dict[str, Any]:
        """Returns what was counted, by name, once that job is done."""
        try:
            return self._observation.get
        except Py4JJavaError:
            # Adaptive execution, which leaves out what turns out to be empty, drops what was observed there.
            return self._data.agg(*self._metrics).collect()[0].asDict()
