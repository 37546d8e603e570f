"""Values of a group too large for memory: read as they come, and from a temporary file when read again."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import IO, Any

from headrace.model.pickling import dumps


class SpilledValues(Sequence[Any]):
    """A read-only sequence over lists that are still to come. What was read once is read again from a temporary file.

    >>> values = SpilledValues(iter([[1, 2], [3]]))
    >>> sum(values), len(values), list(values)
    (6, 3, [1, 2, 3])
    """

    def __init__(self, lists: Iterator[list[Any]]) -> None:
        self._lists = lists
        self._file: IO[bytes] = tempfile.TemporaryFile(prefix="headrace-values-")  # noqa: SIM115 (closed by discard)
        self._offsets = [0]
        self._count = 0

    def __iter__(self) -> Iterator[Any]:
        number = 0
        while number < len(self._offsets) - 1 or self._read_on():
            self._check_open()
            self._file.seek(self._offsets[number])
            yield from pickle.load(self._file)  # written below, by this very object
            number += 1

    def _read_on(self) -> bool:
        values = next(self._lists, None)
        if values is None:
            return False
        self._file.seek(self._offsets[-1])
        self._file.write(dumps(values))
        self._offsets.append(self._file.tell())
        self._count += len(values)
        return True

    def read_all(self) -> None:
        """Reads to the end, so that the length is known and what comes after the group can be read."""
        while self._read_on():
            pass

    def discard(self) -> None:
        """Deletes the temporary file; the values cannot be read any more."""
        self._file.close()

    def _check_open(self) -> None:
        if self._file.closed:
            raise RuntimeError(
                "the values of a large group can be read only while its element is worked on, and it no longer is; "
                "keep what is needed of them, e.g. list(values)"
            )

    def __len__(self) -> int:
        self.read_all()
        return self._count

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return list(self)[at]
        position = at if at >= 0 else at + len(self)
        for value in islice(self, position, None) if position >= 0 else ():
            return value
        raise IndexError(f"position {at} is beyond the {len(self)} values of the group")

    def __reduce__(self) -> Any:
        return list, (list(self),)
