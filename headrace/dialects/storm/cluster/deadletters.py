"""What became of tuples: what ackers found, and the letters of those that were given up."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from headrace.log import Topic
from headrace.log.producers import producer_id


@dataclass(frozen=True)
class Outcome:
    """What became of tuples, by their places; `offset` is that of the record that tells it."""

    offset: int
    acked: tuple[int, ...] = ()
    failed: tuple[int, ...] = ()
    timed_out: tuple[int, ...] = ()


@dataclass(frozen=True)
class DeadLetter:
    """A tuple of which there is no hope: it failed once more than it was to be replayed, or could not be written.

    >>> DeadLetter("clicks", 0, ("x",), 7, attempts=4, why="failed").values
    ('x',)
    """

    component: str
    task: int
    values: tuple[Any, ...]
    message_id: Any
    attempts: int
    why: str
    stream: str = "default"


@dataclass(frozen=True)
class DeadLetters:
    """The topic of dead letters, for one spout task, which no other is called like.

    >>> import tempfile
    >>> from headrace.log import Log
    >>> topic = Log(tempfile.mkdtemp()).create("dead")
    >>> letters = DeadLetters(topic, "clicks-0", clock=lambda: 5)
    >>> for _ in range(2):  # there was a crash in between
    ...     letters.bury([DeadLetter("clicks", 0, ("x",), 7, attempts=4, why="failed")], 3)
    >>> [letter.message_id for letter in dead_letters(topic)]
    [7]
    """

    topic: Topic
    task: str
    clock: Callable[[], int]

    def bury(self, letters: list[DeadLetter], number: int | None) -> None:
        """Appends letters; those that come again under a number, which grows, are there once."""
        batch = self.topic.batch(list(map(asdict, letters)), timestamps=[self.clock()] * len(letters))
        if number is None:
            self.topic.append(0, batch)
        else:
            self.topic.partition(0).append(batch, producer=producer_id(self.task), sequence=number)


def dead_letters(topic: Topic) -> list[DeadLetter]:
    """All letters of a topic, oldest first."""
    return [DeadLetter(**{**each.value, "values": tuple(each.value["values"])}) for each in topic.read(0)]


def shown(value: Any) -> Any:
    """A value as JSON knows it: as it is, or as its text.

    >>> shown([1, "a"]), shown({1})
    ([1, 'a'], '{1}')
    """
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return repr(value)
    return value
