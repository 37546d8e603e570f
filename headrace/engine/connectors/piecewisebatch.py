"""The rows of a batch for a table, which may come in more pieces than fit into memory, as parts that share no key.

Whoever computes the net effect of a batch needs all rows of a key together, and no others. So a batch of one piece is
one part; of more, rows are put into files by the hash of their keys, and each file is a part.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import IO, Final, NamedTuple

from headrace.edges.tablestatements import Row

_FILES: Final = 256


class Mark(NamedTuple):
    """The place of an element in the order of elements, and whether it is a retraction."""

    order: tuple[int, int, int, int]
    retraction: bool


Part = tuple[list[Row], list[Mark]]


class PiecewiseBatch(AbstractContextManager["PiecewiseBatch"]):
    """Collects rows, and gives them back in parts; each key is in one part, in which rows are in the order they came.

    >>> one, two = Mark((0, 0, 0, 1), False), Mark((0, 0, 0, 2), False)
    >>> with PiecewiseBatch() as batch:
    ...     batch.add([("a",), ("b",)], [("a", 1), ("b", 2)], [one, one])
    ...     whole = list(batch.parts())
    ...     batch.add([("a",)], [("a", 3)], [two])
    ...     parts = list(batch.parts())
    >>> [rows for rows, marks in whole]
    [[('a', 1), ('b', 2)]]
    >>> sorted(rows for rows, marks in parts)
    [[('a', 1), ('a', 3)], [('b', 2)]]
    """

    def __init__(self) -> None:
        self._first: tuple[Sequence[Row], Part] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._files: dict[int, IO[bytes]] = {}

    def add(self, keys: Sequence[Row], rows: list[Row], marks: list[Mark]) -> None:
        """Adds a piece. Rows without a key are their own."""
        if self._first is None and self._folder is None:
            self._first = keys, (rows, marks)
            return
        if self._first is not None:
            self._folder = tempfile.TemporaryDirectory(prefix="headrace-batch-")
            first_keys, first = self._first
            self._first = None
            self._put(first_keys, *first)
        self._put(keys, rows, marks)

    def parts(self) -> Iterator[Part]:
        """Yields the parts."""
        if self._first is not None:
            yield self._first[1]
        for number in sorted(self._files):
            yield self._read(self._files[number])

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files.values():
            file.close()
        if self._folder is not None:
            self._folder.cleanup()

    def _put(self, keys: Sequence[Row], rows: list[Row], marks: list[Mark]) -> None:
        by_file: dict[int, list[tuple[Row, Mark]]] = {}
        for key, row, mark in zip(keys, rows, marks, strict=True):
            by_file.setdefault(hash(key or row) % _FILES, []).append((row, mark))
        for number, pairs in by_file.items():
            if number not in self._files:
                assert self._folder is not None
                self._files[number] = open(f"{self._folder.name}/{number}", "w+b")  # noqa: SIM115
            pickle.dump(pairs, self._files[number], protocol=5)

    def _read(self, file: IO[bytes]) -> Part:
        rows: list[Row] = []
        marks: list[Mark] = []
        file.seek(0)
        while True:
            try:
                pairs = pickle.load(file)  # what this process has put there
            except EOFError:
                return rows, marks
            for row, mark in pairs:
                rows.append(row)
                marks.append(mark)
