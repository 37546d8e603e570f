"""How many new files a running query reads in its next micro-batch.

Spark takes the limits of its sources from their options when a query starts, keeps them in a map in the query, and asks
each source with its limit before every batch. That map is what is changed here. What a batch did read is in Spark's log
of offsets, so that a batch that is run again reads the same.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.engine.files import Folder
from headrace.engine.pressure import Pace


class Admission:
    """Keeps the batches of a query near a time, by how many files each of its sources may read in one.

    Sources in the directory `control` are the engine's own, and not limited here.
    """

    def __init__(self, spark: SparkSession, control: Folder, pace: Pace) -> None:
        self.pace = pace
        self._jvm: Any = spark._jvm
        self._own = f"[{control}"
        self._execution: Any = None
        self._seen: dict[str, int] = {}

    def begin(self, query: StreamingQuery) -> None:
        """The query has started."""
        self._execution = query._jsq.streamingQuery()

    def after(self, took: float) -> None:
        """A batch took so many seconds: sets how much the next one reads."""
        if self._execution is None:  # a first batch that was over before the start was
            return
        limits = self._limits()
        files = [source for source in limits if self._limited(source)]
        if not files:
            return
        seen = {str(source): int(source.seenFiles().size()) for source in files}
        read = max(count - self._seen.get(name, 0) for name, count in seen.items())
        self._seen = seen
        self.pace = self.pace.after(read, took)
        limit = self._jvm.org.apache.spark.sql.connector.read.streaming.ReadLimit.maxFiles(self.pace.limit)
        changed = self._jvm.java.util.HashMap()
        for source, before in limits.items():
            changed.put(source, limit if source in files else before)
        # It is a Scala variable, which only the query itself sets otherwise.
        getattr(self._execution, "uniqueSources_$eq")(self._jvm.PythonUtils.toScalaMap(changed))

    def _limits(self) -> dict[Any, Any]:
        found, limits = self._execution.uniqueSources().iterator(), {}
        while found.hasNext():
            pair = found.next()
            limits[pair._1()] = pair._2()
        return limits

    def _limited(self, source: Any) -> bool:
        name = str(source)
        return name.startswith("FileStreamSource[") and self._own not in name
