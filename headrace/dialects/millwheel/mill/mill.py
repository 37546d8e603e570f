"""Mill: runs computations of a directory from this process, each as a stream of its own, on one Spark session.

Several processes may run one directory: each computation belongs to the process that has its lock. A process that takes
one over from another, which perhaps hangs, gets the next token: whatever the older process would still write is refused
by the log.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal

from headrace.dialects.millwheel.api.computation import Computation
from headrace.dialects.millwheel.api.recordsandtimers import ComputationError
from headrace.dialects.millwheel.graph.computationgraph import build, create_streams
from headrace.dialects.millwheel.mill.computationfile import load_computation
from headrace.dialects.millwheel.mill.computationstatus import ComputationStatus, Counts
from headrace.dialects.millwheel.mill.millfolder import POLL_SECONDS, Declared, MillFolder
from headrace.local.processlock import exclusive
from headrace.log import FencedError
from headrace.log.fences import Fence
from headrace.model.pipeline import Pipeline
from headrace.model.times import MAX_TIME, MIN_TIME, now

if TYPE_CHECKING:
    from headrace.engine.handle import StreamStatus
    from headrace.engine.stream.handle import StreamHandle

_PUBLISH_EVERY: Final = 10  # looks at the directory
_MAX_RESTARTS: Final = 3  # of a computation without progress in between
_log = logging.getLogger("headrace.millwheel")


class Owned(ComputationError):
    """Another process runs the computation."""


class RunningComputation:
    """A computation that this process runs."""

    def __init__(
        self, folder: MillFolder, declared: Declared, computation: Computation, spark: Any, *, take_over: bool
    ) -> None:
        self.folder, self.declared, self.computation = folder, declared, computation
        self.name = declared.name
        self._resources = ExitStack()
        try:
            self._own(take_over)
            create_streams(computation, folder.log, self.name)
            self._last = folder.published(self.name) if folder.checkpoint(self.name).exists() else None
            self.counts = Counts(folder.log, self.name)
            if self._last is not None:
                self.counts.total, self.counts.offset = Counter(self._last.counts), self._last.counts_offset
            p = Pipeline(spark=spark)
            build(p, self.name, computation, folder.log, start=declared.start, own=True)
            self.handle: StreamHandle = p.run(checkpoint=str(folder.checkpoint(self.name)))  # type: ignore[assignment]
        except BaseException:
            self._resources.close()
            raise
        self._resources.callback(self.handle.stop)  # before the lock is released

    def _own(self, take_over: bool) -> None:
        if not take_over and (owner := self.folder.owner(self.name)) is not None:
            raise Owned(
                f"{self.name!r} is run by process {owner}; stop that first or, if it hangs, take it over with "
                "--take-over"
            )
        # If two processes come here at once, the one with the newer token goes on, and the other is refused.
        self._owner = Fence.take(self.folder.folder(self.name) / "owner", 0)
        lock = self.folder.lock(self.name, self._owner.token)
        self._resources.enter_context(exclusive(lock, lambda holder: Owned(f"{self.name!r} is run by {holder}")))
        self.folder.lock(self.name, self._owner.token - 2).unlink(missing_ok=True)

    @property
    def owned(self) -> bool:
        """Whether no other process has taken the computation over."""
        try:
            self._owner.check(self.name)
            return True
        except FencedError:
            return False

    @property
    def failed(self) -> bool:
        """Whether its stream has failed."""
        return self.handle.status().state == "failed"

    def status(self) -> ComputationStatus:
        """Returns its status. Before its first micro-batch here, it is as far as it was when it was last seen."""
        status = self.handle.status()
        error = None
        if status.state == "failed":
            try:
                self.handle.wait(0)
            except Exception as failure:
                error = str(failure)
        last = self._last or ComputationStatus(self.name)
        return replace(
            _progress(last, status) if status.batches else last,
            state="failed" if error is not None else status.state,
            owner=os.getpid(),
            token=self._owner.token,
            batches=status.batches,
            counts=self.counts.read(),
            counts_offset=self.counts.offset,
            error=error,
        )

    def stop(self) -> None:
        """Stops it; it goes on where it was when it is run again."""
        self._resources.close()


def _progress(last: ComputationStatus, status: StreamStatus) -> ComputationStatus:
    """Returns how far a computation is, by the status of its stream."""
    (exchange,) = status.exchanges.values()
    behind = [source.lag for source in status.sources.values() if source.lag is not None]
    return replace(
        last,
        low_watermark=exchange.watermark if exchange.watermark > MIN_TIME else None,
        output_watermark=exchange.output_watermark if exchange.output_watermark > MIN_TIME else None,
        behind=sum(behind) if behind else None,
        lag=exchange.lag if exchange.watermark < MAX_TIME else None,
        keys=exchange.held,
    )


class Mill:
    """Runs computations of a directory, as long as the `with` block lasts.

    `run` runs a computation of this program. `follow` runs those that `headrace millwheel add` has declared, and stops
    those that were removed; with `names`, only these. With `take_over`, also those that another process runs.

    >>> import tempfile, time
    >>> from headrace import millwheel as mw
    >>> class Shout(mw.Computation):
    ...     inputs = {"words": mw.key(lambda record: record.value[0])}
    ...     outputs = ("loud",)
    ...     def process_record(self, record):
    ...         self.produce("loud", record.value.upper())
    >>> directory = tempfile.mkdtemp()
    >>> with mw.Mill(directory) as mill:
    ...     mill.run(Shout())
    ...     with mw.Injector("words", log=mill.log, name="me") as injector:
    ...         injector.send("mill", timestamp=1)
    ...         injector.advance(2)
    ...     while mill.status("Shout").counts.get("produced") != 1:
    ...         time.sleep(0.05)
    >>> from headrace.log import Log
    >>> [record.value for record in Log(mill.log).topic("loud").read(0)]
    ['MILL']
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        spark: Any = None,
        names: Collection[str] | None = None,
        take_over: bool = False,
        clock: Callable[[], int] = now,
    ) -> None:
        self.folder = MillFolder(directory)
        self.log, self.names, self.clock = self.folder.log, names, clock
        self._spark, self._take_over = spark, take_over
        self._running: dict[str, RunningComputation] = {}
        self._failed: dict[str, str] = {}
        self._restarts: dict[str, int] = {}  # since a computation last got through a micro-batch
        self._looks = 0

    def __enter__(self) -> Mill:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in list(self._running):
            self._stop(name)

    def run(
        self, computation: Computation, name: str | None = None, *, start: Literal["earliest", "latest"] = "earliest"
    ) -> None:
        """Runs a computation of this program, under the name of its class unless another is given."""
        name = type(computation).__name__ if name is None else name
        if name in self._running:
            raise ComputationError(f"a computation {name!r} is running already; give another name")
        streams = tuple(computation.inputs), tuple(computation.outputs)
        declared = Declared(name, None, "running", start, *streams)
        before = self.folder.read(name)
        if before is None or before.wanted == "discarded":
            self.folder.check_new(name)
        self._start(declared, computation)
        self.folder.declare(declared)  # not before it runs here: the declaration may be that of another process

    def remove(self, name: str) -> None:
        """Stops a computation of this program; run again under this name, it goes on where it was."""
        self.folder.remove(name)
        self._stop(name)

    def follow(self, stop: threading.Event) -> None:
        """Runs what the directory declares until the event is set."""
        while not stop.is_set():
            self.look()
            stop.wait(POLL_SECONDS)

    def look(self) -> None:
        """Looks at the directory once: starts what was added or failed, stops what was removed or taken over.

        Every now and then it writes the status.
        """
        declared = {each.name: each for each in self.folder.declared() if self.names is None or each.name in self.names}
        for name in [name for name in self._running if name not in declared]:
            self._stop(name)
        self.folder.discard_stopped()
        for name in [name for name, running in self._running.items() if not running.owned]:
            _log.warning("%s was taken over by another process, and is stopped in this one", name)
            self._running.pop(name).stop()
            self._failed[name] = "another process took it over"
        for name in [name for name, running in self._running.items() if running.failed]:
            self._restart(name)
        self._failed = {name: error for name, error in self._failed.items() if name in declared}
        for each in declared.values():
            if each.name not in self._running and each.name not in self._failed and each.source is not None:
                self._try(each)
        self._looks += 1
        if self._looks % _PUBLISH_EVERY == 1:
            self.publish()

    def _restart(self, name: str) -> None:
        """Stops a computation that has failed, so that it starts again; gives up if that was of no use a few times."""
        running = self._running.pop(name)
        status = running.status()
        running.stop()
        self._restarts[name] = 1 if status.batches else self._restarts.get(name, 0) + 1
        if self._restarts[name] <= _MAX_RESTARTS:
            _log.warning("%s has failed and starts again: %s", name, status.error)
            return
        self._failed[name] = status.error or "it has failed"
        self.folder.publish_last(name, lambda: replace(status, state="failed"))
        _log.error("%s has failed: %s", name, status.error)

    def _try(self, declared: Declared) -> None:
        assert declared.source is not None
        if not self._take_over and self.folder.owner(declared.name) is not None:
            return  # it may become free; until then nothing of it is loaded or made
        try:
            self._start(declared, load_computation(declared.source))
        except Owned:
            return  # it may become free
        except Exception as error:
            self._failed[declared.name] = message = str(error)
            status = ComputationStatus(declared.name, "failed", os.getpid(), error=message)
            self.folder.publish_last(declared.name, lambda: status)
            _log.error("%s cannot run: %s", declared.name, error)

    def _start(self, declared: Declared, computation: Computation) -> None:
        if self._spark is None:
            from headrace.engine.spark.session import spark_session  # which takes seconds

            self._spark = spark_session()
        running = RunningComputation(self.folder, declared, computation, self._spark, take_over=self._take_over)
        self._running[declared.name] = running

    def _stop(self, name: str) -> None:
        running = self._running.pop(name)
        running.stop()
        if running.owned:
            self.folder.publish_last(name, lambda: replace(running.status(), state="waiting", owner=None))

    def publish(self) -> None:
        """Writes the status of all that runs here, for other processes."""
        for running in list(self._running.values()):
            if running.owned:
                self.folder.publish(running.status())

    def status(self, name: str) -> ComputationStatus:
        """Returns the status of a computation that runs here."""
        if name not in self._running:
            names = ", ".join(self._running) or "none"
            raise ComputationError(f"no computation {name!r} runs here; there are: {names}")
        return self._running[name].status()

    def handle(self, name: str) -> StreamHandle:
        """Returns the handle of a computation's stream."""
        return self._running[name].handle
