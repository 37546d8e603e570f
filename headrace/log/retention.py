"""Retention: which records a partition keeps, and the sequence numbers of those it has removed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from headrace.local.atomicfile import replace_file
from headrace.log.segments import Entries
from headrace.model.times import now

_REMOVED: Final = np.dtype([("producer", "<i8"), ("sequence", "<i8"), ("base", "<i8")])


def none_needed() -> None:
    """Returns None: no offset is needed."""


@dataclass(frozen=True)
class Retention:
    """The limits of a partition: records younger than `age` microseconds, about `size` bytes; None for no limit.

    Records from the offset that `needed` returns on are kept, too. It and the clock are called when records are to be
    removed.
    """

    age: int | None = None
    size: int | None = None
    needed: Callable[[], int | None] = none_needed
    clock: Callable[[], int] = now

    def removable(self, segments: list[Entries], *, force: bool = False) -> int:
        """Returns how many segments may be removed, oldest first, given their indices; never the newest.

        >>> from headrace.log.segments import ENTRY
        >>> index = np.zeros(5, ENTRY)
        >>> index["base"], index["count"], index["length"], index["latest"] = range(5), 1, 100, range(5)
        >>> segments = [index[number : number + 1] for number in range(5)]
        >>> Retention(size=250).removable(segments), Retention(age=10, clock=lambda: 12).removable(segments)
        (3, 2)
        >>> retention = Retention(size=0, needed=lambda: 1)
        >>> retention.removable(segments), retention.removable(segments, force=True)
        (1, 4)
        """
        if self.age is None and self.size is None:
            return 0
        since = None if self.age is None else self.clock() - self.age
        needed = None if force else self.needed()
        total = sum(int(entries["length"].sum()) for entries in segments)
        for number, entries in enumerate(segments[:-1]):
            old = since is not None and int(entries["latest"].max()) < since
            large = self.size is not None and total > self.size
            if not (old or large) or (needed is not None and entries[-1]["base"] + entries[-1]["count"] > needed):
                return number
            total -= int(entries["length"].sum())
        return len(segments) - 1


class RemovedBatches:
    """The last removed batch of each named producer: its sequence number and offset, in a file.

    So one that is sent again after its removal is still recognised. Producers without a name never send again.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / "departed"

    def read(self) -> dict[int, tuple[int, int]]:
        """Returns the sequence numbers and offsets by producer."""
        try:
            rows = np.frombuffer(self._file.read_bytes(), _REMOVED)
        except FileNotFoundError:
            return {}
        return {int(row["producer"]): (int(row["sequence"]), int(row["base"])) for row in rows}

    def add(self, segments: Iterable[Entries]) -> None:
        """Adds the batches of segments that are about to be removed."""
        last = self.read()
        for entries in segments:
            named = entries[entries["producer"] > 0]
            last |= {
                int(entry["producer"]): (int(entry["sequence"]), int(entry["base"]))
                for entry in named
                if int(entry["sequence"]) >= last.get(int(entry["producer"]), (-1, 0))[0]
            }
        rows = np.array([(producer, *place) for producer, place in sorted(last.items())], _REMOVED)
        replace_file(self._file, rows.tobytes())
