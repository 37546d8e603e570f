"""How many new files, or records of topics, a running query reads in its next micro-batch.

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
"""How many records of a topic the first batch takes, when nobody knows yet how long they take."""


class Admission:
    """Keeps the batches of a query near a time, by how much each of its sources may read in one.

    Sources in the directory `control` are the engine's own, and not limited here.
    """

    def __init__(self, spark: SparkSession, control: Folder, files: Pace, records: Pace) -> None:
        self.files, self.records = files, records
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
        files = [source for source in limits if self._has_files(source)]
        topics = [source for source in limits if self._has_records(source)]
        if not files and not topics:
            return
        self.files = self.files.after(self._files_read(files), took)
        self.records = self.records.after(max(map(self._records_read, topics), default=0), took)
        spark = self._jvm.org.apache.spark.sql
        max_files = spark.connector.read.streaming.ReadLimit.maxFiles(self.files.limit)
        told = json.dumps({"_type": "ReadMaxRows", "max_rows": self.records.limit})  # as Spark tells Python's sources
        max_records = spark.execution.datasources.v2.python.PythonStreamingSourceReadLimit(told)
        changed = self._jvm.java.util.HashMap()
        for source, before in limits.items():
            changed.put(source, max_files if source in files else max_records if source in topics else before)
        # It is a Scala variable, which only the query itself sets otherwise.
        getattr(self._execution, "uniqueSources_$eq")(self._jvm.PythonUtils.toScalaMap(changed))

    def _files_read(self, sources: list[Any]) -> int:
        """How many files the last batch read of a source, at most."""
        seen = {str(source): int(source.seenFiles().size()) for source in sources}
        read = max((count - self._seen.get(name, 0) for name, count in seen.items()), default=0)
        self._seen = seen
        return read

    def _records_read(self, source: Any) -> int:
        """How many records of a topic this batch has read, which is not committed yet."""
        before, now = self._execution.committedOffsets().get(source), self._execution.availableOffsets().get(source)
        if now.isEmpty():
            return 0
        start = source.initialOffset() if before.isEmpty() else before.get()
        return _total(now.get()) - _total(start)

    def _limits(self) -> dict[Any, Any]:
        found, limits = self._execution.uniqueSources().iterator(), {}
        while found.hasNext():
            pair = found.next()
            limits[pair._1()] = pair._2()
        return limits

    def _has_files(self, source: Any) -> bool:
        name = str(source)
        return name.startswith("FileStreamSource[") and self._own not in name

    def _has_records(self, source: Any) -> bool:
        return str(source.getClass().getSimpleName()).startswith(("PythonMicroBatchStream", "KafkaMicroBatchStream"))


def _total(offset: Any) -> int:
    """The offsets of a topic's partitions, added up; Kafka's have the name of the topic around them."""
    held = json.loads(offset.json())
    return sum(sum(at.values()) if isinstance(at, dict) else at for at in held.values())
