"""The log of a spout task: the partition of its spout's topic that has its tuples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from headrace.dialects.storm.task.loggedtuple import LoggedTuple
from headrace.log import LogError, Topic
from headrace.model.errors import HeadraceError


class UnwritableTuple(HeadraceError, ValueError):
    """A tuple that cannot be written to the log."""


@dataclass(frozen=True)
class SpoutLog:
    """The log of one spout task: a partition of its spout's topic, to which nobody else appends."""

    topic: Topic
    index: int

    def end(self) -> int:
        """Returns the place of the next tuple."""
        return self.topic.partition(self.index).next_offset()

    def append(self, tuples: list[LoggedTuple], *, time: int) -> None:
        """Appends tuples after those that are there: all of them, or none."""
        at = self.topic.append(self.index, self._batch(tuples, time))
        if at != tuples[0].sequence:
            raise LogError(
                f"{self.topic.name}/{self.index}: something else has appended to it, at offset "
                f"{tuples[0].sequence}; it is for one spout task only, use another name for the topology"
            )

    def write_error(self, logged: LoggedTuple) -> UnwritableTuple | None:
        """Returns the error that keeps a tuple from being written; None if there is none."""
        try:
            self._batch([logged], 0)
        except UnwritableTuple as error:
            return error
        return None

    def _batch(self, tuples: list[LoggedTuple], time: int) -> pa.RecordBatch:
        try:
            return self.topic.batch([logged.record() for logged in tuples], timestamps=[time] * len(tuples))
        except LogError as error:
            raise UnwritableTuple(
                f"a spout's tuples are written to the log, so its values and message ids are values of JSON (text, "
                f"numbers, true, false, None, lists and dicts of these): {error}"
            ) from None

    def read(self, sequence: int, until: int | None = None) -> Iterator[LoggedTuple]:
        """Reads the tuples from a place on."""
        return (LoggedTuple.read(record.value) for record in self.topic.read(self.index, sequence, until))

    def one(self, sequence: int) -> LoggedTuple:
        """Reads the tuple at a place."""
        return next(self.read(sequence, sequence + 1))
