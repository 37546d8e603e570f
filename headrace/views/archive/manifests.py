"""Manifests of master data: which files have which records. Written once, checked when read, and never unpickled.

A step names the files of the records from one offset to before another. A base stands for all steps up to its number:
after a compaction it names the files that have their records now, and those that they replaced.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from headrace.model.errors import HeadraceError, other_format
from headrace.views.errors import ViewError
from headrace.views.offsets import Offsets, dump_offsets, load_offsets, reaches

FORMAT: Final = 1
"""Of manifests and of the files they name: another number for what this version would misread, or an older one."""
_NAME: Final = re.compile(r"(step|base)-(\d{6,})\.json")


@dataclass(frozen=True)
class File:
    """A Parquet file: its path below the data, its records and bytes, of each partition the first and last offset, and
    a digest of its bytes where that is known.

    >>> File("step-000000-ab/_day=2026-01-31/a.parquet", 3, 900, {0: (5, 9)}).overlaps({0: 7}, {0: 8})
    True
    """

    path: str
    records: int
    bytes: int
    offsets: Mapping[int, tuple[int, int]]
    digest: str | None = None

    def overlaps(self, since: Offsets, until: Offsets) -> bool:
        """Whether it may have records from `since` to before `until`."""
        return any(
            first < until.get(partition, 0) and last >= since.get(partition, 0)
            for partition, (first, last) in self.offsets.items()
        )

    @property
    def day(self) -> str:
        """The directory of its day."""
        return self.path.split("/")[-2]


@dataclass(frozen=True)
class Step:
    """An archive step: it has the records from `since` to before `until`, in these files.

    `counts` says how many those are in each partition, if not every offset has one. So many could not be read as the
    topic's columns, for each reason, as `bad` says: they are kept as they came. `before` and `seal` are the seals of
    the manifest before it and of its own; a base has that of the last step it stands for, and which files it
    replaced, with the time.

    >>> Step(0, {0: 2}, {0: 7, 1: 4}).count({0: 5}, {0: 6, 1: 9})
    5
    >>> Step(0, {0: 2}, {0: 7}, counts={0: 3}).records
    3
    """

    number: int
    since: Offsets
    until: Offsets
    counts: Offsets | None = None
    bad: Mapping[str, int] = field(default_factory=dict)
    files: tuple[File, ...] = ()
    before: str = ""
    replaced: Mapping[str, int] | None = None
    seal: str = field(default="", compare=False)

    def count(self, since: Offsets, until: Offsets) -> int:
        """How many of its records are from `since` to before `until`; at most, if not every offset has one."""
        there = [number for number in self.until if self.counts is None or self.counts.get(number)]
        ends = {number: min(self.until[number], until.get(number, 0)) for number in there}
        firsts = {number: max(self.since.get(number, 0), since.get(number, 0)) for number in there}
        return sum(max(ends[number] - firsts[number], 0) for number in there)

    @property
    def records(self) -> int:
        """How many it has."""
        return self.count(self.since, self.until) if self.counts is None else sum(self.counts.values())

    @property
    def name(self) -> str:
        """The name of its manifest."""
        return f"{'step' if self.replaced is None else 'base'}-{self.number:06d}.json"

    def write(self) -> bytes:
        held: dict[str, Any] = {
            "number": self.number,
            "since": dump_offsets(self.since),
            "until": dump_offsets(self.until),
            "counts": None if self.counts is None else dump_offsets(self.counts),
            "bad": dict(self.bad),
            "before": self.before,
            "replaced": None if self.replaced is None else dict(self.replaced),
            "files": [
                [each.path, each.records, each.bytes, [[n, *ends] for n, ends in each.offsets.items()], each.digest]
                for each in self.files
            ],
        }
        return json.dumps({"format": FORMAT, "seal": _seal(held), "held": held}).encode()

    @classmethod
    def read(cls, data: bytes) -> Step:
        """What `write` wrote; refuses what is not.

        >>> Step.read(Step(3, {0: 2}, {0: 7}).write()) == Step(3, {0: 2}, {0: 7})
        True
        >>> Step.read(Step(3, {0: 2}, {0: 7}).write().replace(b"7", b"8"))
        Traceback (most recent call last):
            ...
        headrace.views.errors.ViewError: it is not what was written
        """
        try:
            found = json.loads(data)
            if (format := found.get("format", 1)) != FORMAT:  # the first had no number
                raise OtherFormat(format)
            held, seal = found["held"], found["seal"]
        except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
            raise ViewError("it is not a manifest") from None
        if _seal(held) != seal:
            raise ViewError("it is not what was written")
        return cls(
            held["number"],
            load_offsets(held["since"]),
            load_offsets(held["until"]),
            None if held["counts"] is None else load_offsets(held["counts"]),
            held["bad"],
            tuple(
                File(path, records, size, {number: (first, last) for number, first, last in offsets}, digest)
                for path, records, size, offsets, digest in held["files"]
            ),
            held["before"],
            held["replaced"],
            # What the next step follows on, whether this is the step before it or a base in its place.
            seal if held["replaced"] is None else held["before"],
        )


class OtherFormat(HeadraceError):
    """A manifest that another version of Headrace wrote."""

    def __init__(self, found: object) -> None:
        super().__init__(f"format {found}")
        self.found = found


class Shelf(Protocol):
    """Where manifests are."""

    def names(self) -> list[str]: ...

    def read(self, name: str) -> bytes | None: ...


@dataclass(frozen=True)
class LocalShelf:
    """A directory of this machine."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    def names(self) -> list[str]:
        """What is in it; nothing, if it does not exist."""
        return sorted(each.name for each in self.path.iterdir()) if self.path.is_dir() else []

    def read(self, name: str) -> bytes | None:
        """What a file has; None if there is none."""
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            return None


class Manifests:
    """The manifests on a shelf, as far as they are complete. Those that were read are not read again."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf, self._lock = shelf, threading.Lock()
        self._steps: list[Step] = []

    def steps(self) -> list[Step]:
        """A base, if there is one, and the steps after it; each begins where the one before ended."""
        with self._lock:
            there = {found[0]: int(found[2]) for name in self._shelf.names() if (found := _NAME.fullmatch(name))}
            base = max((number for name, number in there.items() if name.startswith("base")), default=None)
            if base is not None and (not self._steps or _base_of(self._steps) < base):
                if (step := self._read(f"base-{base:06d}.json")) is None:  # a newer one has come, and it has gone
                    raise self._damaged(f"base {base} is missing")
                self._steps = [step, *(each for each in self._steps if each.number > base)]
            while (name := f"step-{self._next:06d}.json") in there and (step := self._read(name)) is not None:
                self._check(step)
                self._steps.append(step)
            if later := [number for number in there.values() if number > self._next]:
                raise self._damaged(f"step {self._next} is missing, but there is {min(later)}")
            return list(self._steps)

    @property
    def _next(self) -> int:
        return self._steps[-1].number + 1 if self._steps else 0

    def _read(self, name: str) -> Step | None:
        data = self._shelf.read(name)
        if data is None:
            return None
        try:
            step = Step.read(data)
        except OtherFormat as error:
            remedy = "archive the topic anew in another directory, if its log has all records still"
            raise ViewError(other_format(f"the master data in {self._shelf}", error.found, FORMAT, remedy)) from None
        except ViewError as error:
            raise self._damaged(f"{name}: {error}") from None
        if step.name != name:
            raise self._damaged(f"{name} is the manifest {step.name}")
        return step

    def _check(self, step: Step) -> None:
        """Refuses a step that does not follow on the one before."""
        before = self._steps[-1] if self._steps else None
        if before is not None and not same(step.since, before.until):
            raise self._damaged(
                f"step {step.number} begins at {dict(step.since)}, but the one before ended at {dict(before.until)}"
            )
        if step.before != ("" if before is None else before.seal):
            raise self._damaged(f"step {step.number} was not written after the manifest that is before it now")

    def _damaged(self, what: str) -> ViewError:
        return ViewError(f"the master data in {self._shelf} is damaged: {what}; restore its manifests")


def same(one: Offsets, other: Offsets) -> bool:
    """Whether two offsets are the same; a partition that is missing is at its beginning.

    >>> same({0: 3}, {0: 3, 1: 0})
    True
    """
    return reaches(one, other) and reaches(other, one)


def _base_of(steps: list[Step]) -> int:
    return -1 if steps[0].replaced is None else steps[0].number


def _seal(held: object) -> str:
    """A checksum of what a manifest holds. It tells what was changed by hand or by a fault, not by who can seal."""
    return hashlib.sha256(json.dumps(held, sort_keys=True).encode()).hexdigest()
