"""Tuples of a spout task in the log: one record each, whose offset is the tuple's place in the task's sequence.

So any of them can be read again, by that place. Values and message ids are what JSON knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from headrace.dialects.storm.api.collectors import Emitted
from headrace.log import LogError, Topic

WAKE: Final = "__wake"
"""The stream of records that are no tuples, but cause for a micro-batch: somebody waits for time to pass."""


@dataclass(frozen=True)
class Emission:
    """A tuple in the log: the spout's task it is of, by its place, and its place in that task's sequence.

    - attempt: 0, or how often it was replayed before; original: its place when it was emitted first
    - target: the task it was emitted to, if it was to one only
    - turn: its place among the tuples of its stream, by which a shuffle goes; without one, as its place among all

    >>> emission = Emission(0, 7, "default", ("hello",), message_id=1, turn=5)
    >>> emission.record()
    [0, 7, 'default', ['hello'], 1, None, 0, 7, 5]
    >>> Emission.read(emission.record()) == emission
    True
    """

    index: int
    sequence: int
    stream: str
    values: tuple[Any, ...]
    message_id: Any = None
    target: int | None = None
    attempt: int = 0
    original: int | None = None
    turn: int | None = None

    @classmethod
    def of(cls, index: int, sequence: int, turn: int, emitted: Emitted) -> Emission:
        """What a spout emitted."""
        return cls(index, sequence, emitted.stream, emitted.values, emitted.message_id, emitted.task, turn=turn)

    @property
    def tracked(self) -> bool:
        """Whether the spout wants to know what becomes of it."""
        return self.message_id is not None

    def again(self, sequence: int, turn: int | None = None) -> Emission:
        """The replay of it, which takes a turn of its own."""
        original = self.sequence if self.original is None else self.original
        return replace(self, sequence=sequence, attempt=self.attempt + 1, original=original, turn=turn)

    def record(self) -> list[Any]:
        """Its record."""
        original = self.sequence if self.original is None else self.original
        first = [self.index, self.sequence, self.stream, list(self.values)]
        turn = self.sequence if self.turn is None else self.turn
        return [*first, self.message_id, self.target, self.attempt, original, turn]

    @classmethod
    def read(cls, record: list[Any]) -> Emission:
        """The tuple of a record."""
        index, sequence, stream, values, message_id, target, attempt, original, turn = record
        held = None if original == sequence else original
        return cls(index, sequence, stream, tuple(values), message_id, target, attempt, held, turn)


class Unwritable(ValueError):
    """A tuple that cannot be written to the log."""


@dataclass(frozen=True)
class EmissionLog:
    """The log of one spout task: a partition of its spout's topic, which nobody else appends to."""

    topic: Topic
    index: int

    def end(self) -> int:
        """The place of the next tuple."""
        return self.topic.partition(self.index).next_offset()

    def append(self, emissions: list[Emission], *, time: int) -> None:
        """Writes tuples, which follow on those that are there: all of them, or none."""
        at = self.topic.append(self.index, self._batch(emissions, time))
        if at != emissions[0].sequence:
            raise LogError(
                f"{self.topic.name}/{self.index}: somebody else has appended to it, at offset "
                f"{emissions[0].sequence}; it is for one spout task only, use another name for the topology"
            )

    def refusal(self, emission: Emission) -> Unwritable | None:
        """Why a tuple cannot be written; None if it can."""
        try:
            self._batch([emission], 0)
        except Unwritable as error:
            return error
        return None

    def _batch(self, emissions: list[Emission], time: int) -> pa.RecordBatch:
        try:
            return self.topic.batch([each.record() for each in emissions], timestamps=[time] * len(emissions))
        except LogError as error:
            raise Unwritable(
                f"a spout's tuples are written to the log, so its values and message ids are what JSON knows (text, "
                f"numbers, true, false, None, lists and dicts of these): {error}"
            ) from None

    def read(self, sequence: int, until: int | None = None) -> Iterator[Emission]:
        """The tuples from a place on."""
        return (Emission.read(record.value) for record in self.topic.read(self.index, sequence, until))

    def one(self, sequence: int) -> Emission:
        """The tuple at a place."""
        return next(self.read(sequence, sequence + 1))
