"""Retention: what a partition keeps of its records, and what it remembers of those it has removed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from headrace.local.atomicfile import replace_file
from headrace.log.segments import Entries
from headrace.model.times import now

_GONE: Final = np.dtype([("producer", "<i8"), ("sequence", "<i8"), ("base", "<i8")])


def nothing() -> None:
    """No offset is needed."""


@dataclass(frozen=True)
class Retention:
    """What a partition keeps: records younger than `age` microseconds, about `size` bytes; all, if neither is given.

    It also keeps what is at the offset that `needed` tells and behind it. That is asked when records are to be removed,
    and so is the clock.
    """

    age: int | None = None
    size: int | None = None
    needed: Callable[[], int | None] = nothing
    clock: Callable[[], int] = now

    def removable(self, segments: list[Entries], *, force: bool = False) -> int:
        """How many segments may go, the oldest first, given what their indices say; the newest never.

        >>> from headrace.log.segments import ENTRY
        >>> index = np.zeros(5, ENTRY)
        >>> index["base"], index["count"], index["length"], index["latest"] = range(5), 1, 100, range(5)
        >>> segments = [index[at : at + 1] for at in range(5)]
        >>> Retention(size=250).removable(segments), Retention(age=10, clock=lambda: 12).removable(segments)
        (3, 2)
        >>> held = Retention(size=0, needed=lambda: 1)
        >>> held.removable(segments), held.removable(segments, force=True)
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


class Departed:
    """The last batch of each named producer among those removed: its sequence number and offset, in a file.

    Who sends it again after that is still recognised. Producers without a name send nothing again once they are gone.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / "departed"

    def read(self) -> dict[int, tuple[int, int]]:
        """Sequence numbers and offsets by producer."""
        try:
            rows = np.frombuffer(self._file.read_bytes(), _GONE)
        except FileNotFoundError:
            return {}
        return {int(row["producer"]): (int(row["sequence"]), int(row["base"])) for row in rows}

    def add(self, segments: Iterable[Entries]) -> None:
        """Notes what is about to be removed."""
        last = self.read()
        for entries in segments:
            named = entries[entries["producer"] > 0]
            last |= {
                int(entry["producer"]): (int(entry["sequence"]), int(entry["base"]))
                for entry in named
                if int(entry["sequence"]) >= last.get(int(entry["producer"]), (-1, 0))[0]
            }
        rows = np.array([(producer, *place) for producer, place in sorted(last.items())], _GONE)
        replace_file(self._file, rows.tobytes())
