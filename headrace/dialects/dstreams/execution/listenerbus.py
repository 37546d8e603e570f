"""Tells listeners what happens to batches: objects with the methods that Spark's have in the JVM."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

_log: Final = logging.getLogger("headrace.dstreams")


@dataclass(frozen=True)
class Time:
    """A time of a batch."""

    millis: int

    def milliseconds(self) -> int:
        return self.millis

    def __str__(self) -> str:
        return f"{self.millis} ms"


@dataclass(frozen=True)
class StreamInputInfo:
    """The number of elements that an input had in a batch."""

    _number: int
    _records: int

    def inputStreamId(self) -> int:
        return self._number

    def numRecords(self) -> int:
        return self._records

    def metadata(self) -> dict[str, Any]:
        return {}

    def metadataDescription(self) -> str | None:
        return None


@dataclass(frozen=True)
class OutputOperationInfo:
    """An output operation of a batch; times are in milliseconds."""

    _time: Time
    _id: int
    _name: str
    _start: int | None = None
    _end: int | None = None
    _failure: str | None = None

    def batchTime(self) -> Time:
        return self._time

    def id(self) -> int:
        return self._id

    def name(self) -> str:
        return self._name

    def description(self) -> str:
        return self._name

    def startTime(self) -> int:
        return -1 if self._start is None else self._start

    def endTime(self) -> int:
        return -1 if self._end is None else self._end

    def duration(self) -> int:
        return -1 if self._start is None or self._end is None else self._end - self._start

    def failureReason(self) -> str | None:
        return self._failure


@dataclass(frozen=True)
class BatchInfo:
    """A batch; times and delays are in milliseconds, -1 while they are not known."""

    _time: Time
    _submitted: int
    _started: int | None = None
    _ended: int | None = None
    _inputs: dict[int, StreamInputInfo] = field(default_factory=dict)
    _outputs: dict[int, OutputOperationInfo] = field(default_factory=dict)

    def batchTime(self) -> Time:
        return self._time

    def streamIdToInputInfo(self) -> dict[int, StreamInputInfo]:
        return self._inputs

    def submissionTime(self) -> int:
        return self._submitted

    def processingStartTime(self) -> int:
        return -1 if self._started is None else self._started

    def processingEndTime(self) -> int:
        return -1 if self._ended is None else self._ended

    def schedulingDelay(self) -> int:
        return -1 if self._started is None else self._started - self._submitted

    def processingDelay(self) -> int:
        return -1 if self._started is None or self._ended is None else self._ended - self._started

    def totalDelay(self) -> int:
        return -1 if self._ended is None else self._ended - self._submitted

    def numRecords(self) -> int:
        return sum(each.numRecords() for each in self._inputs.values())

    def outputOperationInfos(self) -> dict[int, OutputOperationInfo]:
        return self._outputs


@dataclass(frozen=True)
class Event:
    """The argument of a listener: one of these, by the method that Spark's event has."""

    _info: BatchInfo | OutputOperationInfo | int

    def batchInfo(self) -> BatchInfo:
        assert isinstance(self._info, BatchInfo)
        return self._info

    def outputOperationInfo(self) -> OutputOperationInfo:
        assert isinstance(self._info, OutputOperationInfo)
        return self._info

    def time(self) -> int:
        assert isinstance(self._info, int)
        return self._info


class RunningBatch:
    """A batch while its outputs run."""

    def __init__(self, bus: ListenerBus, info: BatchInfo) -> None:
        self._bus, self.info = bus, info

    @contextmanager
    def output(self, number: int, name: str) -> Iterator[None]:
        """Reports the beginning and the end of an output operation."""
        info = OutputOperationInfo(self.info.batchTime(), number, name, self._bus.clock())
        self._bus.post("onOutputOperationStarted", info)
        try:
            yield
        except BaseException:
            info = replace(info, _failure=traceback.format_exc())
            raise
        finally:
            info = replace(info, _end=self._bus.clock())
            self.info.outputOperationInfos()[number] = info
            self._bus.post("onOutputOperationCompleted", info)


class ListenerBus:
    """The listeners of a context. One that fails is logged, and harms nobody else."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self.clock = clock
        self.listeners: list[Any] = []

    def post(self, method: str, info: BatchInfo | OutputOperationInfo | int) -> None:
        for listener in self.listeners:
            try:
                getattr(listener, method)(Event(info))
            except Exception:
                _log.exception("a StreamingListener failed in %s", method)

    def started(self) -> None:
        self.post("onStreamingStarted", self.clock())

    @contextmanager
    def batch(self, time: int, sizes: list[int], submitted: int) -> Iterator[RunningBatch]:
        """Reports the beginning and the end of a batch that was due at `submitted`, unless it fails."""
        inputs = {number: StreamInputInfo(number, size) for number, size in enumerate(sizes)}
        info = BatchInfo(Time(time), min(submitted, self.clock()), _inputs=inputs)
        self.post("onBatchSubmitted", info)
        running = RunningBatch(self, replace(info, _started=self.clock()))
        self.post("onBatchStarted", running.info)
        yield running
        self.post("onBatchCompleted", replace(running.info, _ended=self.clock()))
