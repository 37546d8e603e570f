"""The sockets that a stream reads: where their lines are kept, and who receives them while the stream runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from headrace.edges.sockets import Receiver
from headrace.engine.checkpoint import Checkpoint
from headrace.engine.taps import Tap
from headrace.log import Log
from headrace.model.errors import PipelineError
from headrace.model.sockets import ReadSocket
from headrace.model.times import DAY


class Receivers:
    """The receivers of one stream, by the label of the source. Topics are in the checkpoint unless a log is named."""

    def __init__(self, taps: list[Tap], checkpoint: Checkpoint) -> None:
        self._sockets: dict[str, ReadSocket] = {}
        self._receivers: dict[str, Receiver] = {}
        for tap in taps:
            source = tap.source.transform
            if isinstance(source, ReadSocket):
                self._sockets[tap.source.label] = source
                if source.in_checkpoint:
                    source.address = replace(source.address, log=_log_in(checkpoint, source))

    def open(self) -> None:
        """Sees that there are topics for them."""
        for source in self._sockets.values():
            log, name = Log(source.address.log or ""), source.address.name
            if name not in log.topics():
                log.create(name, values=source.values(), keep_age=DAY)  # and longer, until it is read

    def start(self, failed: Callable[[], object]) -> None:
        """Begins to receive; `failed` is called when one gives up."""
        for label, source in self._sockets.items():
            topic = Log(source.address.log or "").topic(source.address.name)
            receiver = self._receivers[label] = Receiver(topic, source.host, source.port, failed=failed)
            receiver.start()

    def check(self) -> None:
        """Raises what one has failed with."""
        for receiver in self._receivers.values():
            if receiver.failure is not None:
                raise receiver.failure

    def counts(self) -> dict[str, dict[str, int]]:
        """What was received and what was not, by label."""
        return {label: receiver.counts() for label, receiver in self._receivers.items()}

    @contextmanager
    def held(self) -> Iterator[None]:
        """In the `with` block nothing is written to the topics."""
        with ExitStack() as all_of_them:
            for receiver in self._receivers.values():
                all_of_them.enter_context(receiver.held())
            yield

    def stop(self) -> None:
        """Stops receiving."""
        for receiver in self._receivers.values():
            receiver.stop()


def _log_in(checkpoint: Checkpoint, source: ReadSocket) -> str:
    if not checkpoint.local:
        raise PipelineError(
            f"{source}: lines are written to a log on a disk of the driver, but the checkpoint is {checkpoint.folder}; "
            "name a directory: ReadSocket(..., log='/data/log')"
        )
    return str(checkpoint.folder).removeprefix("file:") + "/log"
