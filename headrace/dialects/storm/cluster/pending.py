"""The pending tuples of a spout task: those whose trees are not complete, and which of them are replays.

The log has all tuples, and the topic of outcomes what became of them. The file of a task says from which places on to
read both, so that a task that starts again knows its pending tuples.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.dialects.storm.task.loggedtuple import LoggedTuple
from headrace.local.atomicfile import replace_file


@dataclass
class PendingTuple:
    """A pending tuple: its message id, how often it was replayed, and when it was emitted, if known."""

    message_id: Any
    attempt: int = 0
    original: int | None = None
    since: int | None = None


@dataclass
class PendingTuples:
    """The pending tuples by their places; `outcomes`, `emissions`: the places up to which both topics were read.

    `turns`: how many tuples of each stream were emitted, replays included.

    >>> pending = PendingTuples()
    >>> pending.add([LoggedTuple(0, 0, "default", (), "a"), LoggedTuple(0, 1, "default", (), "b")], time=5)
    >>> pending.add([LoggedTuple(0, 0, "default", (), "a").replay(2)], time=6)
    >>> [(place, tup.message_id) for place, tup in pending.tuples.items()], pending.emissions
    ([(1, 'b'), (2, 'a')], 3)
    """

    tuples: dict[int, PendingTuple] = field(default_factory=dict)
    outcomes: int = 0
    emissions: int = 0
    turns: dict[str, int] = field(default_factory=dict)
    _replayed: dict[int, int] = field(default_factory=dict)  # the places of last replays, by that of the original

    def __len__(self) -> int:
        return len(self.tuples)

    def add(self, tuples: Iterable[LoggedTuple], *, time: int | None = None) -> None:
        """Adds tuples that are in the log. A replay takes the place of the tuple that it replays."""
        for logged in tuples:
            if logged.tracked:
                self.tuples[logged.sequence] = PendingTuple(logged.message_id, logged.attempt, logged.original, time)
            self.turns[logged.stream] = self.turns.get(logged.stream, 0) + 1
            if logged.original is not None:
                self.remove(self._replayed.pop(logged.original, logged.original))
                self._replayed[logged.original] = logged.sequence
            self.emissions = logged.sequence + 1  # last: other threads rely on all that is before it

    def remove(self, place: int) -> PendingTuple | None:
        """Removes a tuple; None if it was not pending, or was replayed since."""
        removed = self.tuples.pop(place, None)
        if removed is not None and removed.original is not None:
            self._replayed.pop(removed.original, None)
        return removed

    def save(self, path: Path) -> None:
        """Writes them to a file, completely or not at all."""
        waiting = [[place, tup.message_id, tup.attempt, tup.original] for place, tup in self.tuples.items()]
        places = {"outcomes": self.outcomes, "emissions": self.emissions, "turns": self.turns}
        text = json.dumps({**places, "waiting": waiting})
        replace_file(path, text.encode())

    @classmethod
    def load(cls, path: Path) -> PendingTuples:
        """Reads a file; without one, nothing is pending."""
        if not path.exists():
            return cls()
        stored = json.loads(path.read_bytes())
        tuples = {
            place: PendingTuple(message_id, attempt, original)
            for place, message_id, attempt, original in stored["waiting"]
        }
        replayed = {tup.original: place for place, tup in tuples.items() if tup.original is not None}
        return cls(tuples, stored["outcomes"], stored["emissions"], stored["turns"], replayed)
