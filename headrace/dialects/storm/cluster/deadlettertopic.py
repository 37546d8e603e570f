"""Dead letters: writes and reads the topic of tuples that were given up."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from headrace.dialects.storm.api.failures import DeadLetter
from headrace.log import Topic
from headrace.log.producers import producer_id


@dataclass(frozen=True)
class DeadLetterWriter:
    """Appends dead letters of one spout task, whose name is unique, to their topic.

    >>> import tempfile
    >>> from headrace.log import Log
    >>> topic = Log(tempfile.mkdtemp()).create("dead")
    >>> writer = DeadLetterWriter(topic, "clicks-0", clock=lambda: 5)
    >>> for _ in range(2):  # as after a crash in between
    ...     writer.append([DeadLetter("clicks", 0, ("x",), 7, attempts=4, why="failed")], 3)
    >>> [letter.message_id for letter in read_dead_letters(topic)]
    [7]
    """

    topic: Topic
    task: str
    clock: Callable[[], int]

    def append(self, letters: list[DeadLetter], number: int | None) -> None:
        """Appends letters; those that are appended again under the same number, which grows, are there once."""
        batch = self.topic.batch(list(map(asdict, letters)), timestamps=[self.clock()] * len(letters))
        if number is None:
            self.topic.append(0, batch)
        else:
            self.topic.partition(0).append(batch, producer=producer_id(self.task), sequence=number)


def read_dead_letters(topic: Topic) -> list[DeadLetter]:
    """Reads all dead letters of a topic, oldest first."""
    return [DeadLetter(**{**record.value, "values": tuple(record.value["values"])}) for record in topic.read(0)]


def json_or_repr(value: Any) -> Any:
    """Returns a value that JSON can represent: the value itself, or its repr.

    >>> json_or_repr([1, "a"]), json_or_repr({1})
    ([1, 'a'], '{1}')
    """
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return repr(value)
    return value
