"""Logs a batch at the end of each interval."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from headrace.dialects.dstreams.execution.batchclock import BatchClock
from headrace.dialects.dstreams.execution.batchlog import BatchLog
from headrace.dialects.dstreams.graph.inputs import Input


class BatchGenerator:
    """A thread that logs batches as they become due; after a pause, those of the time between first."""

    def __init__(
        self,
        log: BatchLog,
        inputs: Sequence[Input],
        clock: BatchClock,
        logged: Callable[[], object],
        failed: Callable[[BaseException], object],
    ) -> None:
        self._log, self._inputs, self._clock, self._logged, self._failed = log, inputs, clock, logged, failed
        self._stopping = threading.Event()
        self._halted = False
        self._thread = threading.Thread(target=self._run, name="batch generator", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, *, gracefully: bool) -> None:
        """Stops logging batches. Gracefully, what inputs have received by then becomes a last batch."""
        self._halted = not gracefully
        self._stopping.set()
        self._thread.join()
        for each in self._inputs:
            each.stop()
        if gracefully and any(each.waiting() for each in self._inputs):
            self._log_batch()

    def _run(self) -> None:
        try:
            while self._clock.wait_until(self._log.last() + self._log.interval, self._stopping):
                if self._halted:
                    return
                self._log_batch()
        except BaseException as error:
            self._failed(error)

    def _log_batch(self) -> None:
        for each in self._inputs:
            if each.failure is not None:
                raise each.failure
        self._log.append(self._log.last() + self._log.interval, [each.cut() for each in self._inputs])
        self._logged()
