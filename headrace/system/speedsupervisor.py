"""The speed layers of a system: each is started, looked after, and started again when it failed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Literal

from pyspark import InheritableThread
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from headrace.engine.handle import Handle
from headrace.engine.stream.handle import StreamHandle
from headrace.model.times import SECOND
from headrace.views.errors import ViewError
from headrace.views.layers.speedlayer import SpeedLayer

_log = logging.getLogger("headrace.system")

_LOOK: Final = 0.2  # seconds from one look at a layer that catches up to the next
_LONGEST_WAIT: Final = 60  # seconds until a layer that fails again and again is tried again


class Speed:
    """One speed layer that is to run. `look` is to be called now and then; what the layer failed with stays in `error`
    until it has done a micro-batch again."""

    def __init__(self, layer: SpeedLayer, clock: Callable[[], int]) -> None:
        self.layer, self.handle = layer, None
        self.error: str | None = None
        self._clock, self._failures, self._again = clock, 0, 0

    handle: Handle | None

    @property
    def state(self) -> Literal["running", "failed", "stopped"]:
        """Whether it runs, has failed and will be tried again, or was not started."""
        if self.error is not None:
            return "failed"
        return "stopped" if self.handle is None else "running"

    def look(self) -> None:
        """Starts the layer if it is time to, and sees whether it has failed."""
        if self.handle is None:
            if self._clock() >= self._again:
                self._start()
        elif self.handle.status().state != "running":
            self._failed(self.handle)
        elif self.error is not None and isinstance(self.handle, StreamHandle) and self.handle.status().batches:
            self.error, self._failures = None, 0

    def catch_up(self) -> None:
        """Waits until the layer has all that is in its topic now. Raises what it fails with meanwhile."""
        if not isinstance(self.handle, StreamHandle):
            raise ViewError(f"the speed layer of view {self.layer.view.name!r} cannot be started: {self.error}")
        waiting = InheritableThread(target=_processed, args=(self.handle.query,), daemon=True)
        waiting.start()
        while waiting.is_alive():
            waiting.join(_LOOK)
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
            self._wait(error)

    def _failed(self, handle: Handle) -> None:
        self.handle = None
        try:
            handle.wait(0)
            self._wait(RuntimeError("the stream was stopped by somebody else"))
        except Exception as error:
            self._wait(error)

    def _wait(self, error: Exception) -> None:
        seconds = min(2**self._failures, _LONGEST_WAIT)
        self._failures += 1
        self.error, self._again = str(error).partition("\n")[0], self._clock() + seconds * SECOND
        _log.error("the speed layer of view %r failed, again in %s s: %s", self.layer.view.name, seconds, error)


def _processed(query: StreamingQuery) -> None:
    with suppress(StreamingQueryException):  # which its handle tells
        query.processAllAvailable()
