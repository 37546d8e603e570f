"""Running a graph: one handle for whoever started it."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any, Literal

from pyspark import InheritableThread
from pyspark.sql import SparkSession

from headrace.engine.batch.execution import Batch
from headrace.engine.plan.fusion import explain, plan
from headrace.engine.settings import current
from headrace.engine.spark.counters import Counters
from headrace.engine.spark.session import ship_package, spark_session
from headrace.engine.worker.blame import plain
from headrace.model.badrecords import BadRecords
from headrace.model.errors import PipelineError
from headrace.model.pipeline import Graph
from headrace.model.validate import validate

State = Literal["running", "done", "failed", "stopped"]


@dataclass
class Status:
    """How far a run is: its state, the sink it is at, the tasks of the current Spark job, and sources' bad records."""

    state: State = "running"
    stage: str = ""
    tasks_done: int = 0
    tasks: int = 0
    bad: dict[str, BadRecords] = field(default_factory=dict)

    @property
    def line(self) -> str:
        """The status in one line."""
        return self.stage


class Handle:
    """A running pipeline: `wait()` for its end, `stop()` it, ask for its `status()` and `metrics()`.

    >>> import headrace as hr
    >>> p = hr.Pipeline()
    >>> _ = p | hr.Create([1, 2, 3]) | "large" >> hr.Filter(lambda n: n > 1) | hr.Collect()
    >>> handle = p.run()
    >>> isinstance(handle, hr.Handle), handle.wait().state
    (True, 'done')
    >>> handle.metrics()["large"]
    {'in': 3, 'out': 2}
    """

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
        """How far the pipeline is."""
        self._status.bad = self._counters.bad_records()
        if self._status.state == "running":
            tracker = self._spark.sparkContext.statusTracker()
            stages = [info for id in tracker.getActiveStageIds() if (info := tracker.getStageInfo(id)) is not None]
            self._status.tasks_done = sum(info.numCompletedTasks for info in stages)
            self._status.tasks = sum(info.numTasks for info in stages)
        return self._status

    def metrics(self) -> dict[str, dict[str, int]]:
        """Elements in and out of each transform, by label; of sources, bad records by reason."""
        return self._counters.metrics()

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
                self._error = plain(error)
                self._status.state = "failed"
        finally:
            self._spark.sparkContext.removeJobTag(self._tag)


class _Stopped(Exception):
    pass


def run(
    graph: Graph,
    *,
    spark: SparkSession | None,
    master: str | None,
    stream: bool = False,
    **options: Any,
) -> Handle:
    """Plans the graph and starts it; `options` are those of a stream."""
    streaming = stream or not graph.bounded
    planned = None if streaming else plan(graph)
    validate(graph)
    if (instead := current().instead) is not None:
        return instead(explain(graph, stream=stream))
    given = [name for name, value in options.items() if value is not None]
    if not streaming and given:
        raise PipelineError(f"a batch has no {' and no '.join(given)}; say run(stream=True, ...) to stream it")
    session = spark or spark_session(master)
    ship_package(session)
    counters = Counters(session.sparkContext)
    if planned is None:
        from headrace.engine.stream import handle, query  # a batch needs none of it

        return handle.start(query.Stream(session, graph, counters, query.Options(**options)))
    return Handle(session, Batch(session, planned, counters, lambda stage: None), counters)
