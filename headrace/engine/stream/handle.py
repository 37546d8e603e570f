"""The handle of a running stream."""

from __future__ import annotations

import itertools
import json
import logging
import threading
from collections import Counter
from concurrent.futures import Future
from typing import Any

from pyspark import InheritableThread
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from headrace.engine.handle import LiveDisplay, Metrics, Status, StreamStatus, with_results
from headrace.engine.settings import current
from headrace.engine.spark.driverworkers import await_worker, never_connected
from headrace.engine.stream.directfiles import is_left_to_spark
from headrace.engine.stream.query import Stream
from headrace.engine.stream.status import exchange_status, source_statuses, source_watermark
from headrace.engine.worker.blame import plain_error
from headrace.model.errors import PipelineError
from headrace.model.times import SECOND

_log = logging.getLogger("headrace.stream")

_LOOK = 0.1  # seconds from one look at the stream to the next, where nothing tells of its end


class StreamHandle(LiveDisplay):
    """A running stream. `stop()` stops it between or in batches; run again with its checkpoint, it goes on."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._status = Status()
        self._error: BaseException | None = None
        self._stopping = False
        self._starting = threading.Lock()  # held to start the query again, or never to do so any more
        self._query: StreamingQuery = stream.start()
        self._thread = InheritableThread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def query(self) -> StreamingQuery:
        """Spark's own handle, for its progress and metrics."""
        return self._query

    def wait(self, timeout: float | None = None) -> Status:
        """Waits for the end, or for `timeout` seconds; raises the error that the stream failed with."""
        if timeout is None and (watch := current().watch) is not None:
            return watch(self)
        self._thread.join(timeout)
        if self._error is not None:
            raise self._error
        return self.status()

    def stop(self, *, drain: bool = False) -> None:
        """Stops the stream where it is; a batch it is in the middle of is done again when it is run again.

        With `drain`, it stops reading instead, all windows fire as at the end of time, what they give is delivered, and
        the stream is done: it cannot be run again.
        """
        if drain and self._thread.is_alive():
            self._stream.drain()
            while self._thread.is_alive() and not self._stream.delivery.drained.wait(_LOOK):
                pass
        with self._starting:
            self._stopping = True
            self._query.stop()
        self._thread.join()
        if drain and self._error is not None:
            raise self._error

    def halt(self) -> None:
        """Stops the stream between two micro-batches: all of the last one is done and nothing of the next has begun.

        What it has read and what it has kept are then what its checkpoint says of the last micro-batch.
        """
        delivery, halted = self._stream.delivery, threading.Event()

        def between() -> None:
            halted.set()
            raise _Halted

        # The first batch of a run may be one that an earlier run had begun.
        self._stream.wake()
        while delivery.batches == 0 and self._thread.is_alive():
            self._thread.join(_LOOK)
        self._stopping = True
        delivery.before.put(between)
        if self._thread.is_alive():
            self._stream.wake()
        self._thread.join()
        if not halted.is_set():
            raise PipelineError("the stream ended before it could be stopped between two micro-batches; run it again")

    def savepoint(self, path: str) -> None:
        """Copies the checkpoint to the directory `path`, as it is before the next batch; the stream then goes on.

        `run(savepoint=path, checkpoint=...)` begins another stream there, with the sources where they were.
        """
        copied: Future[None] = Future()

        def copy() -> None:
            try:
                with self._stream.receivers.paused():
                    self._stream.checkpoint.copy_to(path)
                copied.set_result(None)
            except BaseException as error:
                copied.set_exception(error)

        self._stream.delivery.before.put(copy)
        if self._thread.is_alive():
            self._stream.wake()
        while not copied.done() and self._thread.is_alive():
            self._thread.join(_LOOK)
        if not copied.done():  # the stream has ended without another batch
            self._stream.delivery.catch_up()
        copied.result()

    def status(self) -> StreamStatus:
        """Returns the progress of the stream; it prints as a table."""
        stream, delivery, progress = self._stream, self._stream.delivery, self._progress()
        shards = dict(delivery.shards)  # a batch may be changing it
        return StreamStatus(
            self._status.state,
            f"batch {delivery.batches}",
            bad=stream.counters.bad_records(),
            recorded=dict(delivery.metrics),
            batches=delivery.batches,
            batch_seconds=None if progress is None else progress["durationMs"]["triggerExecution"] / 1000,
            sources=source_statuses(
                stream.line, shards, progress, {label: delivery.records[label] for label in stream.direct_files}
            ),
            exchanges={each.label: exchange_status(each, shards) for each in stream.line.exchanges},
            notes=stream.checkpoint.notes,
        )

    def watermark_of(self, source: str) -> int | None:
        """Returns the watermark of a source, by its label: all that a sink needs of the status in every batch."""
        return source_watermark(source, dict(self._stream.delivery.shards))

    def metrics(self) -> Metrics:
        """Returns counts by label: elements in and out of each transform; of groupings, late and refused elements.

        Late and refused elements are counted over the whole life of the checkpoint, the others in this run. Of sources:
        elements out, elements too far ahead of the clock, bad records by reason, and partitions that are idle now.
        Metrics of functions (`hr.metrics`) are those of this run's micro-batches that all sinks have.
        """
        metrics = with_results(self._stream.counters.metrics(), self._stream.delivery.metrics)
        shards = self._stream.delivery.shards
        for exchange in self._stream.line.exchanges:
            reports = [shards[name] for name in exchange.names() if name in shards]
            counts = metrics.setdefault(exchange.label, {})
            counts["late"] = sum(report.late for report in reports)
            counts["refused"] = sum(report.refused for report in reports)
            idle = {partition for report in reports for partition in report.idle}
            for source, count in Counter(source for source, _ in idle).items():
                metrics.setdefault(source, {})["idle"] = count
        for label, counts in self._stream.receivers.counts().items():
            metrics.setdefault(label, {}).update(counts)
        return metrics

    def _progress(self) -> dict[str, Any] | None:
        """Returns Spark's progress of the last batch."""
        last = self._query.lastProgress
        return None if last is None else json.loads(last.json)

    def _run(self) -> None:
        drained = self._stream.delivery.drained
        try:
            self._follow()
            done = drained.is_set() or (self._stream.ends and not self._stopping)
            if done and self._stream.ends:
                self._stream.refused.check()
            self._status.state = "done" if done else "stopped"
        except BaseException as error:
            if not self._stopping or drained.is_set():
                self._error = plain_error(error)
            self._status.state = "stopped" if self._error is None else "failed"
        finally:
            self._stream.refused.say(again=True)
            self._stream.close()

    def _follow(self) -> None:
        """Waits for the end of the query, and notes if it was drained, even if a batch after that failed."""
        drained = self._stream.delivery.drained
        try:
            self._await_end()
        except Exception:
            if not drained.is_set():
                raise
        if drained.is_set():
            self._stream.checkpoint.drained()
        else:
            self._stream.receivers.check()

    def _await_end(self) -> None:
        """Waits for the end of the query, and starts it again after failures that another start cures.

        That is as often as no batch came of it for want of a worker, and once if only Spark can read a file.
        """
        for start in itertools.count(2):
            try:
                return self._await_query()
            except StreamingQueryException as error:
                by_spark = self._stream.may_leave_to_spark and is_left_to_spark(error)
                if not by_spark and (self._stream.delivery.batches or not never_connected(error)):
                    raise
            if by_spark:
                _log.info("Spark reads the sources of this stream from here on, since something is out of the ordinary")
                self._stream.leave_files_to_spark()
            else:
                _log.warning(
                    "this machine is busy: a Python worker of the stream was not ready in the 10 s that Spark waits; "
                    "nothing is lost, start %s follows",
                    start,
                )
                await_worker(self._stream.spark.sparkContext.pythonExec)
            with self._starting:
                if self._stopping:
                    return
                self._query = self._stream.start_query()

    def _await_query(self) -> None:
        if self._stream.draining:  # and was not done with it when it last stopped
            self._stream.drain()
            while self._query.isActive and not self._stream.delivery.drained.wait(_LOOK):
                pass
            self._query.stop()
            self._query.awaitTermination()  # raises what it failed with
        elif self._stream.ends:
            self._query.processAllAvailable()
            self._stream.end()
            self._query.processAllAvailable()
            self._step_again()
            self._query.stop()
        else:
            self._query.awaitTermination()

    def _step_again(self) -> None:
        """Causes batches after the end of the sources, as long as shards want to be stepped again, each at its time."""
        while (wait := self._stream.time_until_again()) is not None:
            if wait and self._query.awaitTermination(max(1, wait // SECOND)):
                return
            if not wait:
                self._stream.step_again()
                self._query.processAllAvailable()


class _Halted(Exception):
    """Raised in place of a batch that must not begin."""


def start(stream: Stream) -> StreamHandle:
    """Starts a stream."""
    try:
        return StreamHandle(stream)
    except BaseException:
        stream.close()
        raise
