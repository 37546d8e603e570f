"""Formats of what outlives a process in a directory, and whether this version reads them. No Spark.

Whoever writes such files writes the number of their format, so that another version refuses what it would misread. This
looks for all of them.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from headrace.dialects.dstreams.execution import streamprogram
from headrace.dialects.sql import catalog
from headrace.engine.checkpoint import manifest
from headrace.log import topics
from headrace.model.errors import HeadraceError
from headrace.views.archive import manifests
from headrace.views.stores import storetables

_SQLITE: Final = b"SQLite format 3\0"


class NotReadable(HeadraceError, ValueError):
    """A directory that cannot be examined."""


@dataclass(frozen=True)
class Finding:
    """Something that was found: where, what it is, its format, which formats this version reads, and what to know."""

    path: str
    kind: str
    format: int | None
    reads: tuple[int, ...]
    note: str = ""

    @property
    def readable(self) -> bool:
        """Whether this version reads it."""
        return self.format in self.reads

    @property
    def verdict(self) -> str:
        """Says whether this version reads it, and what to do if it does not."""
        if self.readable:
            return "is read by this version" + (f"; {self.note}" if self.note else "")
        known = " and ".join(map(str, self.reads))
        return f"is of another version: this one reads format {known}; use the version that wrote it"


def examine(folder: str) -> list[Finding]:
    """Returns what is in a directory on a disk of this machine, sorted by path.

    >>> import tempfile
    >>> from headrace.log import Log
    >>> path = tempfile.mkdtemp()
    >>> visits = Log(path).create("visits")
    >>> for finding in examine(path):
    ...     print(finding.path, finding.kind, finding.format, finding.verdict, sep=" | ")
    topics/visits | topic of a log | 1 | is read by this version
    """
    root = Path(folder)
    if not root.is_dir():
        raise NotReadable(f"there is no directory {folder!r} on a disk of this machine; give the path of one")
    return sorted(_found(root), key=lambda finding: finding.path)


def _found(root: Path) -> Iterator[Finding]:
    for at, folders, files in os.walk(root):
        here = Path(at)
        place = str(here.relative_to(root))
        streams = sorted(name for name in files if name.startswith("headrace-") and name.endswith(".json"))
        if streams:
            yield _checkpoint(place, _json(here / streams[-1]))
            folders[:] = [name for name in folders if name not in ("spark", "initial")]
        steps = sorted(name for name in files if name.startswith(("step-", "base-")) and name.endswith(".json"))
        if steps and here.name == "manifests":
            number = _json(here / steps[-1]).get("format", 1)
            yield Finding(str(Path(place).parent), "master data", number, (manifests.FORMAT,))
        for name, (kind, reads, number_of) in _FILES.items():
            if name in files:
                yield Finding(place, kind, number_of(_json(here / name)), (reads,))
                folders[:] = [] if name == "topic.json" else folders
        for name in files:
            if name.endswith(".db") and (store := _store(here / name)) is not None:
                yield Finding(os.path.join(place, name), "store of views", store, (storetables.FORMAT,))


def _number(stored: dict[str, Any]) -> int | None:
    return stored.get("format")


def _number_or_first(stored: dict[str, Any]) -> int:
    return int(stored.get("format", 1))  # the first had no number


_FILES: Final[dict[str, tuple[str, int, Callable[[dict[str, Any]], int | None]]]] = {
    "topic.json": ("topic of a log", topics.FORMAT, _number_or_first),
    "catalog.json": ("catalog of SQL", catalog.FORMAT, _number),
    "dstreams.json": ("checkpoint of a StreamingContext", streamprogram.FORMAT, _number),
}


def _checkpoint(place: str, stored: dict[str, Any]) -> Finding:
    number = _number_or_first(stored)
    note = "" if stored.get("slots") else "its keys have no slots yet, which `headrace rescale` gives them"
    return Finding(place, "checkpoint or savepoint", number, manifest.READABLE, note)


def _json(path: Path) -> dict[str, Any]:
    try:
        stored = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {"format": None}
    return stored if isinstance(stored, dict) else {"format": None}


def _store(path: Path) -> int | None:
    """Returns the format of a store of views; None if the file is none."""
    with open(path, "rb") as file:
        if file.read(len(_SQLITE)) != _SQLITE:
            return None
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            (number,) = connection.execute(f"SELECT format FROM {storetables.STORE.name}").fetchone()
            return int(number)
    except (sqlite3.Error, TypeError):
        return None
