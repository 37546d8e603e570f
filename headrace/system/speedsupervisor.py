"""Supervises the speed layers of a system: starts each, and starts it again when it failed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Literal

from pyspark import InheritableThread
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from headrace.engine.stream.handle import StreamHandle
from headrace.model.times import SECOND
from headrace.views.errors import ViewError
from headrace.views.layers.speedlayer import SpeedLayer

_log = logging.getLogger("headrace.system")

_POLL: Final = 0.2  # seconds between two looks at a layer that catches up
_LONGEST_WAIT: Final = 60  # seconds until a layer that fails again and again is started again


class SpeedSupervisor:
    """Supervises one speed layer; `poll` is called now and then. `error` is the last failure of the layer, until it
    has completed a micro-batch again."""

    def __init__(self, layer: SpeedLayer, clock: Callable[[], int]) -> None:
        self.layer, self.handle = layer, None
        self.error: str | None = None
        self._clock, self._failures, self._next_start = clock, 0, 0

    handle: StreamHandle | None

    @property
    def state(self) -> Literal["running", "failed", "stopped"]:
        """Whether the layer runs, has failed and will be started again, or was not started."""
        if self.error is not None:
            return "failed"
        return "stopped" if self.handle is None else "running"

    def poll(self) -> None:
        """Starts the layer if it is due, and checks whether it has failed."""
        if self.handle is None:
            if self._clock() >= self._next_start:
                self._start()
        elif self.handle.status().state != "running":
            self._failed(self.handle)
        elif self.error is not None and self.handle.status().batches:
            self.error, self._failures = None, 0

    def catch_up(self) -> None:
        """Waits until the layer has processed all that is in its topic now. Raises the error that it fails with."""
        if self.handle is None:
            raise ViewError(f"the speed layer of view {self.layer.view.name!r} cannot be started: {self.error}")
        waiting = InheritableThread(target=_process_available, args=(self.handle.query,), daemon=True)
        waiting.start()
        while waiting.is_alive():
            waiting.join(_POLL)
            self.handle.wait(0)

    def stop(self) -> None:
        """Stops the layer where it is."""
        if self.handle is not None:
            self.handle.stop()
            self.handle = None

    def _start(self) -> None:
        try:
            self.handle = self.layer.start()
        except Exception as error:
            self._schedule_start(error)

    def _failed(self, handle: StreamHandle) -> None:
        self.handle = None
        try:
            handle.wait(0)
            self._schedule_start(RuntimeError("the stream was stopped from outside"))
        except Exception as error:
            self._schedule_start(error)

    def _schedule_start(self, error: Exception) -> None:
        seconds = min(2**self._failures, _LONGEST_WAIT)
        self._failures += 1
        self.error, self._next_start = str(error).partition("\n")[0], self._clock() + seconds * SECOND
        _log.error("the speed layer of view %r failed, next start in %s s: %s", self.layer.view.name, seconds, error)


def _process_available(query: StreamingQuery) -> None:
    with suppress(StreamingQueryException):  # the handle raises it
        query.processAllAvailable()
