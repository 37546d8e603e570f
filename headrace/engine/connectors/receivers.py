"""Runs the receivers of the sockets that a stream reads, and chooses the topics that they write to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from headrace.edges.linereceiver import LineReceiver
from headrace.engine.checkpoint.checkpoint import Checkpoint
from headrace.engine.plan.taps import Tap
from headrace.local.filelock import file_lock
from headrace.log import Log
from headrace.model.errors import PipelineError
from headrace.model.sockets import ReadSocket
from headrace.model.times import DAY
from headrace.model.topics import Address


class Receivers:
    """The receivers of one stream. Topics are in the checkpoint unless a log is named; each has only one receiver."""

    def __init__(self, taps: list[Tap], checkpoint: Checkpoint) -> None:
        self._sockets: dict[str, ReadSocket] = {}  # by label
        self._receivers: dict[Address, LineReceiver] = {}
        self._locks = ExitStack()  # of the topics
        for tap in taps:
            source = tap.source.transform
            if isinstance(source, ReadSocket):
                self._sockets[tap.source.label] = source
                if source.in_checkpoint:
                    source.address = replace(source.address, log=_log_in(checkpoint, source))

    def open(self) -> None:
        """Creates missing topics, and locks all of them. Refuses a topic that another stream has locked."""
        for address, source in {source.address: source for source in self._sockets.values()}.items():
            log = Log(address.log or "")
            if address.name not in log.topics():
                log.create(address.name, values=source.values, keep_age=DAY)  # longer, if it has not been read yet
            lock = file_lock(log.topic(address.name).folder / "receiver", wait=False)
            if not self._locks.enter_context(lock):
                raise PipelineError(
                    f"{source}: another stream receives these lines already, into {address}; read that with ReadTopic"
                )

    def start(self, failed: Callable[[], object]) -> None:
        """Starts to receive; `failed` is called when a receiver gives up."""
        for address, source in {source.address: source for source in self._sockets.values()}.items():
            topic = Log(address.log or "").topic(address.name)
            self._receivers[address] = LineReceiver(topic, source.host, source.port, failed=failed)
            self._receivers[address].start()

    def check(self) -> None:
        """Raises the error with which a receiver has failed."""
        for receiver in self._receivers.values():
            if receiver.failure is not None:
                raise receiver.failure

    def counts(self) -> dict[str, dict[str, int]]:
        """Returns the counts of each receiver, by the label of its source."""
        sockets = self._sockets.items() if self._receivers else ()
        return {label: self._receivers[source.address].counts() for label, source in sockets}

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Writes nothing to the topics until the end of the block."""
        with ExitStack() as pauses:
            for receiver in self._receivers.values():
                pauses.enter_context(receiver.paused())
            yield

    def stop(self) -> None:
        """Stops receiving."""
        for receiver in self._receivers.values():
            receiver.stop()
        self._locks.close()


def _log_in(checkpoint: Checkpoint, source: ReadSocket) -> str:
    if not checkpoint.local:
        raise PipelineError(
            f"{source}: lines are written to a log on a disk of the driver, but the checkpoint is {checkpoint.folder}; "
            "name a directory: ReadSocket(..., log='/data/log')"
        )
    return str(checkpoint.folder).removeprefix("file:") + "/log"
