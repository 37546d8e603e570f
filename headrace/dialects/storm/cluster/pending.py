"""What a spout task waits for: tuples whose trees are not done, and which of them were replayed. Kept in a file, too.

The log has all tuples, and the topic of outcomes what became of them; the file says from where on to read both, so
that a task that starts again knows what it waited for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.dialects.storm.task.loggedtuple import Emission
from headrace.local.atomicfile import replace_file


@dataclass
class Waiting:
    """A tuple that is under way: its message id, how often it was replayed, and when it was emitted, if known."""

    message_id: Any
    attempt: int = 0
    original: int | None = None
    since: int | None = None


@dataclass
class Pending:
    """Tuples under way by their places; `outcomes`, `emissions`: how far the topics of both were taken in.

    `turns`: how many tuples of each stream were emitted, replays among them.

    >>> pending = Pending()
    >>> pending.sent([Emission(0, 0, "default", (), "a"), Emission(0, 1, "default", (), "b")], time=5)
    >>> pending.sent([Emission(0, 0, "default", (), "a").again(2)], time=6)
    >>> [(place, each.message_id) for place, each in pending.waiting.items()], pending.emissions
    ([(1, 'b'), (2, 'a')], 3)
    """

    waiting: dict[int, Waiting] = field(default_factory=dict)
    outcomes: int = 0
    emissions: int = 0
    turns: dict[str, int] = field(default_factory=dict)
    _replayed: dict[int, int] = field(default_factory=dict)  # the places of last replays, by that of the original

    def __len__(self) -> int:
        return len(self.waiting)

    def sent(self, emissions: Iterable[Emission], *, time: int | None = None) -> None:
        """Tuples are in the log. A replay takes the place of what it replays."""
        for each in emissions:
            if each.tracked:
                self.waiting[each.sequence] = Waiting(each.message_id, each.attempt, each.original, time)
            self.turns[each.stream] = self.turns.get(each.stream, 0) + 1
            if each.original is not None:
                self.done(self._replayed.pop(each.original, each.original))
                self._replayed[each.original] = each.sequence
            self.emissions = each.sequence + 1  # at last: other threads take what is before it for known

    def done(self, place: int) -> Waiting | None:
        """A tuple is waited for no more; None if it was not, or was replayed since."""
        done = self.waiting.pop(place, None)
        if done is not None and done.original is not None:
            self._replayed.pop(done.original, None)
        return done

    def save(self, path: Path) -> None:
        """Writes it down, whole or not at all."""
        waiting = [[place, each.message_id, each.attempt, each.original] for place, each in self.waiting.items()]
        places = {"outcomes": self.outcomes, "emissions": self.emissions, "turns": self.turns}
        text = json.dumps({**places, "waiting": waiting})
        replace_file(path, text.encode())

    @classmethod
    def load(cls, path: Path) -> Pending:
        """What was written down last; nothing if there is no file."""
        if not path.exists():
            return cls()
        held = json.loads(path.read_bytes())
        waiting = {place: Waiting(message, attempt, original) for place, message, attempt, original in held["waiting"]}
        replayed = {each.original: place for place, each in waiting.items() if each.original is not None}
        return cls(waiting, held["outcomes"], held["emissions"], held["turns"], replayed)
