"""Runs a program: a thread follows the log of batches and runs each batch, in order.

A batch whose outputs are done is noted as done, so that it is not run again. One that was interrupted is run again by
the next run: with the same elements, the same time and the same state before it.
"""

from __future__ import annotations

import shutil
import threading
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path

from pyspark import RDD, InheritableThread, SparkContext

from headrace.dialects.dstreams.errors import StreamingContextError
from headrace.dialects.dstreams.execution.batchclock import BatchClock
from headrace.dialects.dstreams.execution.batchgenerator import BatchGenerator
from headrace.dialects.dstreams.execution.batchlog import BatchLog
from headrace.dialects.dstreams.execution.listenerbus import ListenerBus
from headrace.dialects.dstreams.execution.streamprogram import Program
from headrace.dialects.dstreams.graph.inputs import Cut
from headrace.dialects.dstreams.graph.nodes import StateNode
from headrace.local.atomicfile import replace_file
from headrace.local.filelock import file_lock


class _Stopped(Exception):
    """The program is stopped, and a batch is interrupted."""


class BatchRun:
    """A program that runs, in its directory. It is what nodes know as Batches."""

    def __init__(
        self, program: Program, sc: SparkContext, folder: Path, clock: BatchClock, bus: ListenerBus, *, temporary: bool
    ) -> None:
        assert program.zero is not None
        self.program, self.sc, self.folder, self.bus = program, sc, folder, bus
        self.zero, self.run = program.zero, uuid.uuid4().hex
        self.log = BatchLog(folder, program.zero, program.interval, bus.clock)
        self.error: BaseException | None = None
        self.ended = threading.Event()
        self.done = self._read_done()
        self._progress = threading.Condition()
        self._nodes, self._horizon = program.nodes(), program.horizon()
        self._slots: dict[int, RDD[int]] = {}
        self._cuts: dict[int, list[Cut]] = {}
        self._temporary, self._halted, self._locks = temporary, False, ExitStack()
        self._batch_thread: int | None = None  # that runs batches now
        self._last_batch = False  # whether no batch begins after the one that runs
        self._stopping = False
        self._finisher: threading.Thread | None = None
        self._generator = BatchGenerator(self.log, program.inputs, clock, self._wake, self._fail)
        self._tag = f"headrace-dstreams-{self.run}"
        self._runner = InheritableThread(target=self._run_batches, name="batches", daemon=True)

    def start(self) -> None:
        """Starts the stream and the inputs. Refuses a program that runs already, in this process or another."""
        if not self._locks.enter_context(file_lock(self.folder / "lock", wait=False)):
            raise StreamingContextError(
                f"StreamingContext.start: another process runs this program, in {self.folder}; stop that one first"
            )
        try:
            self._start()
        except BaseException:
            for source in self.program.inputs:
                source.stop()
            self._locks.close()
            self._remove_temporary()
            raise

    def _start(self) -> None:
        for number, source in enumerate(self.program.inputs):
            source.start(self, self.log.earlier(number))
        self._runner.start()
        self.bus.started()
        self._generator.start()

    @property
    def in_batch(self) -> bool:
        """Whether the caller is a function of a batch."""
        return threading.get_ident() == self._batch_thread

    def stop_after_batch(self, *, gracefully: bool, then: Callable[[], object]) -> None:
        """Stops when the batch is done whose function calls this, which cannot wait for it; then calls a function."""
        if not self._stopping:
            self._stopping = True
            self._last_batch = not gracefully
            self._finisher = threading.Thread(target=self._finish, args=(gracefully, then), name="end of the program")
            self._finisher.start()

    def finish(self) -> None:
        """Waits until all is done that `stop_after_batch` has begun."""
        if self._finisher is not None:
            self._finisher.join()

    def _finish(self, gracefully: bool, then: Callable[[], object]) -> None:
        with self._progress:
            while self._batch_thread is not None and not gracefully:
                self._progress.wait(0.1)
        self.stop(gracefully=gracefully)
        then()

    def stop(self, *, gracefully: bool) -> None:
        """Stops; gracefully, when all batches that are due are done."""
        self._stopping = True
        try:
            self._generator.stop(gracefully=gracefully)
        except Exception as error:  # an input has failed
            self.error = self.error or error
        if gracefully:
            with self._progress:
                while self.done < self.log.last() and not self.ended.is_set():
                    self._progress.wait(0.1)
        self._halt()
        for node in self._nodes:
            node.close()
        self._locks.close()
        self._remove_temporary()

    def _remove_temporary(self) -> None:
        if self._temporary:
            for source in self.program.inputs:
                source.leave()
            shutil.rmtree(self.folder, ignore_errors=True)

    def wait(self, timeout: float | None) -> bool:
        """Waits for the end; raises the error that a batch failed with."""
        ended = self.ended.wait(timeout)
        if ended:
            self.finish()
        if self.error is not None:
            raise self.error
        return ended

    def cut(self, number: int, time: int) -> Cut:
        if time not in self._cuts:
            self._cuts[time] = self.log.batch(time).cuts
        return self._cuts[time][number]

    def slots(self, count: int) -> RDD[int]:
        if count not in self._slots:
            self._slots[count] = self.sc.parallelize(range(count), count)
        return self._slots[count]

    def _run_batches(self) -> None:
        """Runs batches as they are logged, until the program is stopped or one fails."""
        self.sc.addJobTag(self._tag)
        try:
            while self._await_batch():
                self._batch_thread = threading.get_ident()
                try:
                    self._run_batch(self.done + self.program.interval)
                finally:
                    with self._progress:
                        self._batch_thread = None
                        self._progress.notify_all()
        except BaseException as error:
            if not (self._halted or isinstance(error, _Stopped)):
                self.error = self.error or error
        finally:
            self.ended.set()
            self._wake()

    def _await_batch(self) -> bool:
        """Waits for a batch in the log that is not done; returns False if no batch shall begin any more."""
        with self._progress:
            while not (self._halted or self._last_batch) and self.log.last() <= self.done:
                self._progress.wait()
            return not (self._halted or self._last_batch)

    def _wake(self) -> None:
        with self._progress:
            self._progress.notify_all()

    def _halt(self) -> None:
        """Ends the thread that runs batches: none begins, and jobs of the one that runs are cancelled."""
        self._halted = True
        self._wake()
        while not self.ended.wait(0.05):
            self.sc.cancelJobsWithTag(self._tag)

    def _run_batch(self, batch_time: int) -> None:
        cuts, logged = self.log.batch(batch_time)
        self._cuts[batch_time] = cuts
        moment = datetime.fromtimestamp(batch_time / 1000)
        sizes = [source.size(cut) for source, cut in zip(self.program.inputs, cuts, strict=True)]
        with self.bus.batch(batch_time, sizes, logged) as batch:
            for number, output in enumerate(self.program.outputs):
                if self._halted:
                    raise _Stopped
                rdd = output.node.get(self, batch_time)
                if rdd is not None:
                    with batch.output(number, output.name):
                        output.function(moment, rdd)
            for node in self._nodes:
                if isinstance(node, StateNode):  # even if no output reads it now: the next version needs this one
                    node.complete(self, batch_time)
        replace_file(self.folder / "done", str(batch_time).encode())
        for node in self._nodes:
            node.forget(self, batch_time - node.horizon)
        oldest = batch_time - self._horizon
        for time in sorted(time for time in list(self._cuts) if time <= oldest):
            released = self._cuts.pop(time)
            for source, cut in zip(self.program.inputs, released, strict=True):
                source.release(cut)
        self.log.release(oldest)
        with self._progress:
            self.done = batch_time
            self._progress.notify_all()

    def _read_done(self) -> int:
        try:
            return int((self.folder / "done").read_bytes())
        except FileNotFoundError:
            return self.zero

    def _fail(self, error: BaseException) -> None:
        """Ends the run with an error of the inputs."""
        self.error = self.error or error
        self._halt()
