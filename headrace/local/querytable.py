"""A table of queries that a stream reads while others change it: a file to which lines are added, and its lock.

A query counts from one micro-batch on, and up to another. Which, is decided while nobody reads: a batch that has begun
by then does not see the change, in whichever of its tasks and however often it is run; one that has not, does.
"""

from __future__ import annotations

import fcntl
import json
import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headrace.local.atomicfile import replace_file
from headrace.local.filelock import open_lock
from headrace.local.privatefile import private_opener


@dataclass(frozen=True)
class StoredQuery:
    """A query: its constants, the text it came from, and the micro-batches it counts in, from `first` to before `end`.

    One without an `end` goes on.
    """

    number: int
    constants: tuple[list[Any], ...]
    text: str
    first: int
    end: int | None = None

    def counts_in(self, batch: int | None) -> bool:
        """Returns whether it counts in a micro-batch; None is the time after all that there are now."""
        if batch is None:
            return self.end is None
        return self.first <= batch and (self.end is None or batch < self.end)


class QueryTable:
    """The queries of a file. What was read is kept; `refresh` reads what was added since.

    >>> import tempfile
    >>> table = QueryTable(Path(tempfile.mkdtemp(), "queries"))
    >>> number = table.add([["IBM"]], "SELECT ...", lambda: 7)
    >>> table.end(number, lambda: 9)
    >>> [[query.number for query in table.active(batch)] for batch in (6, 7, 8, 9)]
    [[], [0], [0], []]
    """

    def __init__(self, path: Path) -> None:
        self.path, self.lock = path, path.with_name(f"{path.name}.lock")
        self.version: tuple[str, int] | None = None  # the identity of the file, and how far it was read
        self.settled = 0  # the first micro-batch from which on all count that count at all
        self.queries: dict[int, StoredQuery] = {}
        self._next = 0

    def add(self, constants: Sequence[Sequence[Any]], text: str, next_batch: Callable[[], int]) -> int:
        """Adds a query, which counts from the next micro-batch on; returns its number."""
        with self._locked(fcntl.LOCK_EX):
            self._read()
            number = self._next
            line = {"query": number, "constants": constants, "text": text, "first": next_batch()}
            self._append(line)
        return number

    def take(self, query: StoredQuery) -> None:
        """Becomes the table of this query alone, which counts from now on in every micro-batch."""
        with self._locked(fcntl.LOCK_EX):
            self._next = query.number + 1
            lines = [self._head(), *_lines(replace(query, first=0, end=None))]
            replace_file(self.path, b"".join(map(_encoded, lines)))
            self._read()

    def end(self, number: int, next_batch: Callable[[], int]) -> None:
        """Ends a query with the next micro-batch."""
        with self._locked(fcntl.LOCK_EX):
            self._read()
            self._append({"query": number, "end": next_batch()})

    def refresh(self) -> None:
        """Reads what was added since it was read last."""
        with self._locked(fcntl.LOCK_SH):
            self._read()

    def active(self, batch: int | None) -> list[StoredQuery]:
        """Returns the queries that count in a micro-batch."""
        return [query for query in self.queries.values() if query.counts_in(batch)]

    @property
    def ended(self) -> int:
        """The number of queries that have ended, of all there were."""
        return self._next - len(self.active(None))

    def compact(self, done: int | None = None) -> None:
        """Removes queries that have ended before the micro-batch after `done`, the last one that is committed.

        None: all that have ended. The stream that reads it must then have stopped, with no batch under way.
        """
        with self._locked(fcntl.LOCK_EX):
            self._read()
            there = [
                each for each in self.queries.values() if each.end is None or (done is not None and each.end > done + 1)
            ]
            lines = [self._head(), *(line for query in there for line in _lines(query))]
            replace_file(self.path, b"".join(map(_encoded, lines)))

    @contextmanager
    def _locked(self, kind: int) -> Iterator[None]:
        with open_lock(self.lock) as file:
            fcntl.flock(file, kind)
            yield

    def _read(self) -> None:
        if not self.path.exists():
            return
        with open(self.path, "rb", opener=private_opener) as file:
            head = json.loads(file.readline())
            if self.version is None or self.version[0] != head["table"]:
                self.version, self.settled, self.queries = (head["table"], file.tell()), 0, {}
                self._next = head["next"]
            file.seek(self.version[1])
            added = file.read()
        whole = added[: added.rfind(b"\n") + 1]  # the last line may be that of a process that died
        for line in whole.splitlines():
            self._apply(json.loads(line))
        self.version = self.version[0], self.version[1] + len(whole)

    def _apply(self, line: Mapping[str, Any]) -> None:
        number = line["query"]
        if "first" in line:
            self.queries[number] = StoredQuery(number, tuple(line["constants"]), line["text"], line["first"])
            self._next = max(self._next, number + 1)
        else:
            self.queries[number] = replace(self.queries[number], end=line["end"])
        self.settled = max(self.settled, line.get("first", 0), line.get("end", 0))

    def _append(self, line: Mapping[str, Any]) -> None:
        if self.version is None:
            replace_file(self.path, _encoded(self._head()))
            self._read()
        assert self.version is not None
        with open(self.path, "ab", opener=private_opener) as file:
            os.ftruncate(file.fileno(), self.version[1])
            file.write(_encoded(line))
            file.flush()
            os.fsync(file.fileno())
        self._read()

    def _head(self) -> dict[str, Any]:
        """Returns the first line of a new file: the next number, and by what readers know the file from others."""
        return {"table": uuid.uuid4().hex, "next": self._next}


def _lines(query: StoredQuery) -> Iterator[dict[str, Any]]:
    yield {"query": query.number, "constants": query.constants, "text": query.text, "first": query.first}
    if query.end is not None:
        yield {"query": query.number, "end": query.end}


def _encoded(line: Mapping[str, Any]) -> bytes:
    return json.dumps(line).encode() + b"\n"
