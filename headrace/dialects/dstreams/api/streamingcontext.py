"""StreamingContext: the sources of a program, its life cycle, and how it is continued after a crash."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

from pyspark import RDD, SparkContext, StorageLevel

from headrace.dialects.dstreams.api.dstream import DStream
from headrace.dialects.dstreams.api.listener import StreamingListener
from headrace.dialects.dstreams.errors import StreamingContextError
from headrace.dialects.dstreams.execution.batchclock import BatchClock, SystemClock
from headrace.dialects.dstreams.execution.batchrun import BatchRun
from headrace.dialects.dstreams.execution.listenerbus import ListenerBus
from headrace.dialects.dstreams.execution.streamprogram import (
    Output,
    Program,
    ProgramFolder,
    load_program,
    temporary_folder,
)
from headrace.dialects.dstreams.graph.fileinputs import FileInput
from headrace.dialects.dstreams.graph.inputs import Input, QueueInput
from headrace.dialects.dstreams.graph.nodes import InputNode, Node, StateNode, TransformNode, times
from headrace.dialects.dstreams.graph.topicinputs import KafkaInput, SocketInput, TopicInput
from headrace.engine.spark.session import spark_session
from headrace.model.kafkasecurity import KafkaSecurity
from headrace.model.topics import address

_log: Final = logging.getLogger("headrace.dstreams")


class StreamingContext:
    """A program of DStreams: its sources, and what starts and stops it.

    Names, parameters and defaults are those of pyspark.streaming; `clock` decides when batches are due.

    >>> from headrace.dstreams import ManualClock
    >>> from headrace.engine.spark.session import spark_session
    >>> clock = ManualClock()
    >>> ssc = StreamingContext(spark_session().sparkContext, 1, clock=clock)
    >>> lengths = ssc.queueStream([["a", "bb"], ["ccc"]]).map(len)
    >>> lengths.foreachRDD(lambda time, rdd: print(rdd.collect()))
    >>> ssc.start()
    >>> clock.advance(3); ssc.stop(stopSparkContext=False, stopGraceFully=True)
    [1, 2]
    [3]
    []
    """

    _active: ClassVar[StreamingContext | None] = None
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(
        self,
        sparkContext: SparkContext,
        batchDuration: float | None = None,
        jssc: None = None,
        *,
        clock: BatchClock | None = None,
    ) -> None:
        if jssc is not None:
            raise StreamingContextError("StreamingContext: there is no JVM's context here, got jssc; leave it out")
        if batchDuration is None or not int(batchDuration * 1000) > 0:
            raise StreamingContextError(
                f"StreamingContext: batchDuration is the seconds of an interval, at least 0.001, got {batchDuration!r}"
            )
        self._sc = sparkContext
        self._clock: BatchClock = clock or SystemClock()
        self._program = Program(int(batchDuration * 1000))
        self._directory: str | None = None
        self._folder: Path | None = None  # of the run that this one continues
        self._run: BatchRun | None = None
        self._state: Literal["new", "active", "stopped"] = "new"
        self._bus = ListenerBus(SystemClock().time)

    # Contexts that exist.

    @classmethod
    def getOrCreate(
        cls, checkpointPath: str, setupFunc: Callable[[], StreamingContext], *, clock: BatchClock | None = None
    ) -> StreamingContext:
        """Returns the program whose checkpoint is in a directory or, if there is none, the one that a function makes.

        The program is the one that was started, with its functions; its sources and states continue where they were.
        `clock` is for one that is continued.
        """
        return cls._continued(checkpointPath, clock) or cls._created(checkpointPath, setupFunc)

    @classmethod
    def getActive(cls) -> StreamingContext | None:
        """Returns the context that was started and not stopped; None if there is none."""
        return cls._active

    @classmethod
    def getActiveOrCreate(
        cls, checkpointPath: str | None, setupFunc: Callable[[], StreamingContext]
    ) -> StreamingContext:
        """Returns the active context; if there is none, that of getOrCreate, or what the function makes."""
        if not callable(setupFunc):
            raise TypeError("setupFunc should be callable.")
        if (active := cls.getActive()) is not None:
            return active
        return setupFunc() if checkpointPath is None else cls.getOrCreate(checkpointPath, setupFunc)

    @classmethod
    def _created(cls, path: str, setup: Callable[[], StreamingContext]) -> StreamingContext:
        ssc = setup()
        ssc.checkpoint(path)
        return ssc

    @classmethod
    def _continued(cls, path: str, clock: BatchClock | None) -> StreamingContext | None:
        """Returns the program of a checkpoint; None if there is none."""
        folder = ProgramFolder(path).latest()
        if folder is None:
            return None
        sc = spark_session().sparkContext
        program = load_program(folder, sc)
        ssc = cls(sc, program.interval / 1000, clock=clock)
        ssc._program, ssc._directory, ssc._folder = program, path, folder
        return ssc

    @property
    def sparkContext(self) -> SparkContext:
        """The Spark context."""
        return self._sc

    # Life cycle.

    def start(self) -> None:
        """Starts the program."""
        with StreamingContext._lock:
            if self._state == "active":
                _log.warning("StreamingContext has already been started")
                return
            if self._state == "stopped":
                raise StreamingContextError("StreamingContext has been stopped; make a new one, or use getOrCreate")
            if StreamingContext._active is not None:
                raise StreamingContextError(
                    "Only one StreamingContext may be started in a process, and one is running; stop it first, or use "
                    "StreamingContext.getActiveOrCreate"
                )
            self._program.check(has_checkpoint=self._directory is not None)
            self._run = self._prepared()
            try:
                self._run.start()
            except BaseException:
                if self._folder is None and self._directory is not None:  # let getOrCreate ask for the program again
                    ProgramFolder(self._directory).withdraw(self._run.folder)
                self._run = None
                raise
            self._state, StreamingContext._active = "active", self

    def _prepared(self) -> BatchRun:
        """Stores the program, if it is new and has a directory, and returns its run."""
        program, folder, temporary = self._program, self._folder, False
        if folder is None:
            program.zero = self._clock.time() // program.interval * program.interval
            program.complete()
            temporary = self._directory is None
            stored = None if self._directory is None else ProgramFolder(self._directory)
            folder = temporary_folder() if stored is None else stored.begin()
            run = self._new_run(folder, temporary)
            if stored is not None:
                self._store_rdds(run)
                stored.store(folder, program)
            return run
        return self._new_run(folder, temporary)

    def _new_run(self, folder: Path, temporary: bool) -> BatchRun:
        return BatchRun(self._program, self._sc, folder, self._clock, self._bus, temporary=temporary)

    def _store_rdds(self, run: BatchRun) -> None:
        """Writes RDDs that the program was given to its directory: they are not pickled with it."""
        for source in self._program.inputs:
            if isinstance(source, QueueInput):
                source.save(run)
        for node in self._program.nodes():
            if isinstance(node, StateNode):
                node.begin(run)

    def awaitTermination(self, timeout: float | None = None) -> None:
        """Waits until the program is stopped, or for so many seconds; raises the error that it has ended with."""
        self._started_run().wait(timeout)

    def awaitTerminationOrTimeout(self, timeout: float) -> bool:
        """Waits until the program is stopped, or for so many seconds; returns whether it was stopped."""
        return self._started_run().wait(timeout)

    def stop(self, stopSparkContext: bool = True, stopGraceFully: bool = False) -> None:
        """Stops the program; gracefully, when what was received is processed. By default stops Spark, too.

        Called by a function of a batch, it returns at once: the batch is completed, and then the program ends.
        """
        if self._run is not None and self._run.in_batch:  # another thread may have the lock, and wait for this batch
            self._state = "stopped"
            if StreamingContext._active is self:
                StreamingContext._active = None
            self._run.stop_after_batch(
                gracefully=stopGraceFully, then=self._sc.stop if stopSparkContext else lambda: None
            )
            return
        with StreamingContext._lock:
            try:
                if self._state == "active" and self._run is not None:
                    self._run.stop(gracefully=stopGraceFully)
            finally:
                self._state = "stopped"
                if StreamingContext._active is self:
                    StreamingContext._active = None
        if self._run is not None:
            self._run.finish()
        if stopSparkContext:
            self._sc.stop()

    def remember(self, duration: float) -> None:
        """Sets for how many seconds RDDs can be asked for with DStream.slice."""
        self._check_can_change()
        self._program.remember = int(duration * 1000)

    def checkpoint(self, directory: str) -> None:
        """Sets the directory of the program, its log and its state, from which getOrCreate continues it."""
        if self._state == "active":
            raise StreamingContextError("StreamingContext.checkpoint: the program runs; set the directory before start")
        if self._folder is None:
            ProgramFolder(directory)
            self._directory = directory

    def addStreamingListener(self, streamingListener: StreamingListener) -> None:
        """Adds a listener, whose methods are called when something happens to a batch."""
        self._bus.listeners.append(streamingListener)

    # Sources.

    def socketTextStream(
        self, hostname: str, port: int, storageLevel: StorageLevel = StorageLevel.MEMORY_AND_DISK_2
    ) -> DStream[str]:
        """Reads the lines that a server sends. They are written to disk before they count as received."""
        return self._input(SocketInput(hostname, port, len(self._program.inputs)))

    def textFileStream(self, directory: str) -> DStream[str]:
        """Reads the lines of files that are moved to a directory, unless their names begin with a dot."""
        return self._input(FileInput(directory))

    def binaryRecordsStream(self, directory: str, recordLength: int) -> DStream[bytes]:
        """Reads records of a fixed length from files that are moved to a directory."""
        return self._input(FileInput(directory, recordLength))

    def queueStream(
        self, rdds: list[Any], oneAtATime: bool = True, default: RDD[Any] | Iterable[Any] | None = None
    ) -> DStream[Any]:
        """Reads RDDs or lists of a queue: one in each batch, or all in the first; then, in each batch, the default."""
        queue = [self._rdd(each) for each in rdds]
        last = None if default is None else self._rdd(default)
        return self._input(QueueInput(queue, oneAtATime, last, len(self._program.inputs)))

    def topicStream(
        self,
        topic: str,
        *,
        log: str | None = None,
        start: Literal["earliest", "latest"] = "latest",
        security: KafkaSecurity | None = None,
    ) -> DStream[Any]:
        """Reads the records of a topic: of an embedded log its values, of Kafka (key, value) as bytes.

        `topic`, `log` and `security` are those of hr.ReadTopic.
        """
        place = address(topic, log=log, security=security)
        if start not in ("earliest", "latest"):
            raise StreamingContextError(f"topicStream: start is 'earliest' or 'latest', got {start!r}")
        if place.log is None:
            return self._input(KafkaInput(place, start))
        number = len(self._program.inputs)
        return self._input(TopicInput(str(Path(place.log).absolute()), place.name, start, number=number))

    def _rdd(self, elements: RDD[Any] | Iterable[Any]) -> RDD[Any]:
        return elements if isinstance(elements, RDD) else self._sc.parallelize(list(elements))

    def _input(self, source: Input) -> DStream[Any]:
        self._check_can_change()
        node = InputNode(source, len(self._program.inputs), self._program.interval)
        self._program.inputs.append(source)
        return DStream(node, self)

    # Several streams.

    def transform(self, dstreams: list[DStream[Any]], transformFunc: Callable[..., RDD[Any]]) -> DStream[Any]:
        """Applies a function to a tuple of the RDDs of several streams."""
        nodes = [each._node for each in dstreams]
        return DStream(TransformNode(nodes, lambda _, *rdds: transformFunc(rdds), nodes[0].slide), self)

    def union(self, *dstreams: DStream[Any]) -> DStream[Any]:
        """Puts the elements of several streams together."""
        if not dstreams:
            raise ValueError("should have at least one DStream to union")
        if len(dstreams) == 1:
            return dstreams[0]
        if len({each._node.slide for each in dstreams}) > 1:
            raise ValueError("All DStreams should have same slide duration")
        return self.transform(list(dstreams), lambda rdds: rdds[0].context.union(list(rdds)))

    # What streams ask of their context.

    def _check_can_change(self) -> None:
        if self._state == "active":
            raise StreamingContextError(
                "Adding new inputs, transformations, and output operations after starting a context is not supported"
            )
        if self._state == "stopped":
            raise StreamingContextError(
                "Adding new inputs, transformations, and output operations after stopping a context is not supported"
            )

    def _add_output(self, node: Node, function: Callable[[datetime, RDD[Any]], object], name: str) -> None:
        self._check_can_change()
        self._program.outputs.append(Output(node, function, name))

    def _started_run(self) -> BatchRun:
        if self._run is None:
            raise StreamingContextError("StreamingContext: it has not been started; call start() first")
        return self._run

    def _slice(self, node: Node, begin: datetime | float, end: datetime | float) -> list[RDD[Any]]:
        run = self._started_run()
        first, last = (int((each.timestamp() if isinstance(each, datetime) else each) * 1000) for each in (begin, end))
        wanted = times(node, run, first - 1, min(last, run.done))
        return [rdd for rdd in (node.get(run, each) for each in wanted) if rdd is not None]
