"""Sets how many new files, or records of topics, a running query reads in its next micro-batch.

Spark takes the limits of its sources from their options when a query starts, keeps them in a map in the query, and asks
each source with its limit before every batch. That map is what is changed here. What a batch did read is in Spark's log
of offsets, so that a batch that is run again reads the same.
"""

from __future__ import annotations

import json
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.engine.spark.files import Folder
from headrace.engine.spark.pace import Pace

FIRST_RECORDS: Final = 10_000
"""How many records of a topic the first batch reads, when nothing is known yet of how long they take."""


class Admission:
    """Keeps the batches of a query near a target time by limiting what each of its sources may read.

    Sources in the directory `control` are the engine's own, and not limited here.
    """

    def __init__(self, spark: SparkSession, control: Folder, files: Pace, records: Pace) -> None:
        self.files, self.records = files, records
        self._jvm: Any = spark._jvm
        self._control = f"[{control}"
        self._execution: Any = None
        self._seen: dict[str, int] = {}

    def begin(self, query: StreamingQuery) -> None:
        """Takes the query, once it has started."""
        self._execution = query._jsq.streamingQuery()

    def after(self, took: float) -> None:
        """Sets how much the next batch reads, after one that took `took` seconds."""
        if self._execution is None:  # a first batch that was over before the start was
            return
        limits = self._limits()
        files = [source for source in limits if self._has_files(source)]
        topics = [source for source in limits if self._has_records(source)]
        if not files and not topics:
            return
        self.files = self.files.after(self._files_read(files), took)
        self.records = self.records.after(max(map(self._records_read, topics), default=0), took)
        spark = self._jvm.org.apache.spark.sql
        max_files = spark.connector.read.streaming.ReadLimit.maxFiles(self.files.limit)
        limit = json.dumps(
            {"_type": "ReadMaxRows", "max_rows": self.records.limit}
        )  # as Spark sends it to Python sources
        max_records = spark.execution.datasources.v2.python.PythonStreamingSourceReadLimit(limit)
        changed = self._jvm.java.util.HashMap()
        for source, before in limits.items():
            changed.put(source, max_files if source in files else max_records if source in topics else before)
        # It is a Scala variable, which only the query itself sets otherwise.
        getattr(self._execution, "uniqueSources_$eq")(self._jvm.PythonUtils.toScalaMap(changed))

    def _files_read(self, sources: list[Any]) -> int:
        """Returns how many files the last batch read of a source, at most."""
        seen = {str(source): int(source.seenFiles().size()) for source in sources}
        read = max((count - self._seen.get(name, 0) for name, count in seen.items()), default=0)
        self._seen = seen
        return read

    def _records_read(self, source: Any) -> int:
        """Returns how many records of a topic this batch, which is not committed yet, has read."""
        before, now = self._execution.committedOffsets().get(source), self._execution.availableOffsets().get(source)
        if now.isEmpty():
            return 0
        start = source.initialOffset() if before.isEmpty() else before.get()
        return _total(now.get()) - _total(start)

    def _limits(self) -> dict[Any, Any]:
        pairs, limits = self._execution.uniqueSources().iterator(), {}
        while pairs.hasNext():
            pair = pairs.next()
            limits[pair._1()] = pair._2()
        return limits

    def _has_files(self, source: Any) -> bool:
        name = str(source)
        return name.startswith("FileStreamSource[") and self._control not in name

    def _has_records(self, source: Any) -> bool:
        return str(source.getClass().getSimpleName()).startswith(("PythonMicroBatchStream", "KafkaMicroBatchStream"))


def _total(offset: Any) -> int:
    """Adds up the offsets of a topic's partitions; Kafka's are nested under the name of the topic."""
    offsets = json.loads(offset.json())
    return sum(sum(at.values()) if isinstance(at, dict) else at for at in offsets.values())
