"""The handle of a running batch."""

from __future__ import annotations

import uuid

from pyspark import InheritableThread
from pyspark.sql import SparkSession

from headrace.engine.batch.execution import Batch
from headrace.engine.handle import LiveDisplay, Metrics, Status, with_results
from headrace.engine.settings import current
from headrace.engine.spark.counters import Counters
from headrace.engine.worker.blame import plain_error
from headrace.model.errors import PipelineError


class BatchHandle(LiveDisplay):
    """A running batch, in a thread of its own; its Spark jobs carry a tag, so that `stop` cancels no others."""

    def __init__(self, spark: SparkSession, batch: Batch, counters: Counters) -> None:
        self._spark, self._batch, self._counters = spark, batch, counters
        self._tag = f"headrace-{uuid.uuid4().hex}"
        self._status = Status()
        self._error: BaseException | None = None
        self._stopping = False
        batch.progress = self._at
        self._thread = InheritableThread(target=self._run, daemon=True)
        self._thread.start()

    def wait(self, timeout: float | None = None) -> Status:
        """Waits for the end, or for `timeout` seconds; raises what the pipeline failed with."""
        if timeout is None and (watch := current().watch) is not None:
            return watch(self)
        self._thread.join(timeout)
        if self._error is not None:
            raise self._error
        return self.status()

    def stop(self, *, drain: bool = False) -> None:
        """Stops the pipeline where it is. Sinks that have not completed leave nothing behind.

        With `drain`, waits for the end: a batch has read all it will.
        """
        if drain:
            self._thread.join()
        self._stopping = True
        self._spark.sparkContext.cancelJobsWithTag(self._tag)
        self._thread.join()

    def status(self) -> Status:
        """Returns how far the pipeline is."""
        self._status.bad, self._status.recorded = self._counters.bad_records(), self._counters.recorded()
        if self._status.state == "running":
            tracker = self._spark.sparkContext.statusTracker()
            stages = [info for id in tracker.getActiveStageIds() if (info := tracker.getStageInfo(id)) is not None]
            self._status.tasks_done = sum(info.numCompletedTasks for info in stages)
            self._status.tasks = sum(info.numTasks for info in stages)
        return self._status

    def metrics(self) -> Metrics:
        """Elements in and out of each transform, by label, with its own metrics; of sources, bad records by reason."""
        return with_results(self._counters.metrics(), self._counters.recorded())

    def savepoint(self, path: str) -> None:
        """Only a stream has savepoints."""
        raise PipelineError(f"a batch has no savepoints, got {path!r}; say run(stream=True, ...) to stream it")

    def _at(self, stage: str) -> None:
        if self._stopping:
            raise _Stopped
        self._status.stage = stage

    def _run(self) -> None:
        self._spark.sparkContext.addJobTag(self._tag)
        try:
            self._batch.run()
            self._status.state = "done"
        except BaseException as error:
            if self._stopping:
                self._status.state = "stopped"
            else:
                self._error = plain_error(error)
                self._status.state = "failed"
        finally:
            self._batch.refused.say()
            self._spark.sparkContext.removeJobTag(self._tag)


class _Stopped(Exception):
    pass
