"""Tuples of a spout task as records of its log. The offset of a record is the tuple's place in the task's sequence.

So any tuple can be read again, by that place. Values and message ids are values of JSON.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from headrace.dialects.storm.api.collectors import SpoutTuple

WAKE: Final = "__wake"
"""The stream of records that are not tuples, but cause a micro-batch when something waits for time to pass."""


@dataclass(frozen=True)
class LoggedTuple:
    """A tuple in the log of its spout task: the task's place in the spout, and the tuple's place in the sequence.

    - attempt: how often it was replayed before; original: its place when it was emitted first
    - target: the task it was emitted to, by `emit_direct`
    - turn: its place among the tuples of its stream, by which a shuffle chooses; None means its place among all

    >>> logged = LoggedTuple(0, 7, "default", ("hello",), message_id=1, turn=5)
    >>> logged.record()
    [0, 7, 'default', ['hello'], 1, None, 0, 7, 5]
    >>> LoggedTuple.read(logged.record()) == logged
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
    def of(cls, index: int, sequence: int, turn: int, emitted: SpoutTuple) -> LoggedTuple:
        """Gives a tuple that a spout emitted its place."""
        return cls(index, sequence, emitted.stream, emitted.values, emitted.message_id, emitted.task, turn=turn)

    @property
    def tracked(self) -> bool:
        """Whether it was emitted with a message id."""
        return self.message_id is not None

    def replay(self, sequence: int, turn: int | None = None) -> LoggedTuple:
        """Returns its next attempt, at a new place."""
        original = self.sequence if self.original is None else self.original
        return replace(self, sequence=sequence, attempt=self.attempt + 1, original=original, turn=turn)

    def record(self) -> list[Any]:
        """Returns its record."""
        original = self.sequence if self.original is None else self.original
        turn = self.sequence if self.turn is None else self.turn
        return [
            self.index,
            self.sequence,
            self.stream,
            list(self.values),
            self.message_id,
            self.target,
            self.attempt,
            original,
            turn,
        ]

    @classmethod
    def read(cls, record: list[Any]) -> LoggedTuple:
        """Reads the tuple of a record."""
        index, sequence, stream, values, message_id, target, attempt, original, turn = record
        replayed = None if original == sequence else original
        return cls(index, sequence, stream, tuple(values), message_id, target, attempt, replayed, turn)


class TupleRecords(NamedTuple):
    """The records of many tuples, field by field, in the order of `LoggedTuple.record`: no object for each tuple."""

    task: tuple[int, ...]
    sequence: tuple[int, ...]
    stream: tuple[str, ...]
    values: tuple[list[Any], ...]
    message_id: tuple[Any, ...]
    target: tuple[int | None, ...]
    attempt: tuple[int, ...]
    original: tuple[int, ...]
    turn: tuple[int, ...]

    @staticmethod
    def of(records: Iterable[list[Any]]) -> TupleRecords:
        """Transposes records.

        >>> TupleRecords.of([LoggedTuple(0, at, "default", ("x",)).record() for at in (7, 8)]).sequence
        (7, 8)
        """
        return TupleRecords(*zip(*records, strict=True))


def task_and_stream(record: list[Any]) -> tuple[int, str]:
    """Returns the place of a record's task in the spout, and the stream of its tuple.

    >>> task_and_stream(LoggedTuple(3, 7, "default", ("x",)).record())
    (3, 'default')
    """
    return record[0], record[2]
