"""Manifests of master data: they name the files of records. Written once, checked when read, and never unpickled.

A step names the files of the records between two offsets. A base stands for all steps up to its number: after a
compaction it names the files that have their records now, and the files that those replaced.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final, Protocol

from headrace.model.errors import HeadraceError, other_format
from headrace.views.errors import ViewError
from headrace.views.offsets import Offsets, dump_offsets, load_offsets, reaches

FORMAT: Final = 1
"""The format of manifests and their files. It gets another number when one version would misread the other's."""
_NAME: Final = re.compile(r"(step|base)-(\d{6,})\.json")


@dataclass(frozen=True)
class MasterFile:
    """A Parquet file of master data: its path below the data, its size, and the first and last offset per partition.

    `digest` is that of its bytes, where it is known.

    >>> MasterFile("step-000000-ab/_day=2026-01-31/a.parquet", 3, 900, {0: (5, 9)}).overlaps({0: 7}, {0: 8})
    True
    """

    path: str
    records: int
    bytes: int
    offsets: Mapping[int, tuple[int, int]]
    digest: str | None = None

    def overlaps(self, since: Offsets, until: Offsets) -> bool:
        """Returns whether it may have records from `since` to before `until`."""
        return any(
            first < until.get(partition, 0) and last >= since.get(partition, 0)
            for partition, (first, last) in self.offsets.items()
        )

    @property
    def day(self) -> str:
        """The directory of its day."""
        return self.path.split("/")[-2]


@dataclass(frozen=True)
class ArchiveStep:
    """An archive step: the records from `since` to before `until`, in these files.

    `counts` has the number of records of each partition, if not every offset has one. `bad` counts, by reason, the
    records that could not be read as the topic's columns; they are archived as they are. `before` and `seal` are the
    seals of the manifest before and of this one. A base has the seal of the last step that it stands for, and in
    `replaced` the files that it replaced, with the time.

    >>> ArchiveStep(0, {0: 2}, {0: 7, 1: 4}).count({0: 5}, {0: 6, 1: 9})
    5
    >>> ArchiveStep(0, {0: 2}, {0: 7}, counts={0: 3}).records
    3
    """

    number: int
    since: Offsets
    until: Offsets
    counts: Offsets | None = None
    bad: Mapping[str, int] = field(default_factory=dict)
    files: tuple[MasterFile, ...] = ()
    before: str = ""
    replaced: Mapping[str, int] | None = None
    seal: str = field(default="", compare=False)

    def count(self, since: Offsets, until: Offsets) -> int:
        """Counts its records from `since` to before `until`; an upper bound, if not every offset has one."""
        partitions = [number for number in self.until if self.counts is None or self.counts.get(number)]
        ends = {number: min(self.until[number], until.get(number, 0)) for number in partitions}
        firsts = {number: max(self.since.get(number, 0), since.get(number, 0)) for number in partitions}
        return sum(max(ends[number] - firsts[number], 0) for number in partitions)

    @property
    def records(self) -> int:
        """The number of its records."""
        return self.count(self.since, self.until) if self.counts is None else sum(self.counts.values())

    @property
    def name(self) -> str:
        """The file name of its manifest."""
        return f"{'step' if self.replaced is None else 'base'}-{self.number:06d}.json"

    def write(self) -> bytes:
        """Encodes the step as a manifest."""
        fields = asdict(_ManifestFields.of(self))
        return json.dumps({"format": FORMAT, "seal": _seal(fields), "held": fields}).encode()

    @classmethod
    def read(cls, data: bytes) -> ArchiveStep:
        """Decodes a manifest; refuses what `write` did not write.

        >>> ArchiveStep.read(ArchiveStep(3, {0: 2}, {0: 7}).write()) == ArchiveStep(3, {0: 2}, {0: 7})
        True
        >>> ArchiveStep.read(ArchiveStep(3, {0: 2}, {0: 7}).write().replace(b"7", b"8"))
        Traceback (most recent call last):
            ...
        headrace.views.errors.ViewError: it is not what was written
        """
        try:
            manifest = json.loads(data)
            if (format := manifest.get("format", 1)) != FORMAT:  # the first had no number
                raise FormatMismatch(format)
            fields, seal = manifest["held"], manifest["seal"]
        except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
            raise ViewError("it is not a manifest") from None
        if _seal(fields) != seal:
            raise ViewError("it is not what was written")
        return _ManifestFields(**fields).step(seal)


@dataclass(frozen=True)
class _ManifestFields:
    """The fields of a manifest as they are in its JSON, which its seal covers."""

    number: int
    since: str
    until: str
    counts: str | None
    bad: dict[str, int]
    before: str
    replaced: dict[str, int] | None
    files: list[tuple[str, int, int, list[tuple[int, int, int]], str | None]]

    @classmethod
    def of(cls, step: ArchiveStep) -> _ManifestFields:
        return cls(
            step.number,
            dump_offsets(step.since),
            dump_offsets(step.until),
            None if step.counts is None else dump_offsets(step.counts),
            dict(step.bad),
            step.before,
            None if step.replaced is None else dict(step.replaced),
            [
                (file.path, file.records, file.bytes, [(n, *ends) for n, ends in file.offsets.items()], file.digest)
                for file in step.files
            ],
        )

    def step(self, seal: str) -> ArchiveStep:
        return ArchiveStep(
            self.number,
            load_offsets(self.since),
            load_offsets(self.until),
            None if self.counts is None else load_offsets(self.counts),
            self.bad,
            tuple(
                MasterFile(path, records, size, {number: (first, last) for number, first, last in offsets}, digest)
                for path, records, size, offsets, digest in self.files
            ),
            self.before,
            self.replaced,
            # The next step follows on this seal, whether this is the step before it or a base in its place.
            seal if self.replaced is None else self.before,
        )


class FormatMismatch(HeadraceError):
    """A manifest was written by another version of Headrace."""

    def __init__(self, format: object) -> None:
        super().__init__(f"format {format}")
        self.format = format


class ManifestFolder(Protocol):
    """A directory of manifests."""

    def names(self) -> list[str]: ...

    def read(self, name: str) -> bytes | None: ...


@dataclass(frozen=True)
class LocalManifestFolder:
    """A directory of manifests on this machine."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    def names(self) -> list[str]:
        """Returns the names of its files; none, if it does not exist."""
        return sorted(entry.name for entry in self.path.iterdir()) if self.path.is_dir() else []

    def read(self, name: str) -> bytes | None:
        """Returns the content of a file; None if it does not exist."""
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            return None


class Manifests:
    """The manifests of a folder. Those that were read are not read again."""

    def __init__(self, folder: ManifestFolder) -> None:
        self._folder, self._lock = folder, threading.Lock()
        self._steps: list[ArchiveStep] = []

    def steps(self) -> list[ArchiveStep]:
        """Returns the base, if there is one, and the steps after it; each begins where the one before ended."""
        with self._lock:
            manifests = {match[0]: int(match[2]) for name in self._folder.names() if (match := _NAME.fullmatch(name))}
            base = max((number for name, number in manifests.items() if name.startswith("base")), default=None)
            if base is not None and (not self._steps or _base_of(self._steps) < base):
                if (step := self._read(f"base-{base:06d}.json")) is None:  # deleted because a newer one was written
                    raise self._damaged(f"base {base} is missing")
                self._steps = [step, *(later for later in self._steps if later.number > base)]
            while (name := f"step-{self._next:06d}.json") in manifests and (step := self._read(name)) is not None:
                self._check(step)
                self._steps.append(step)
            if later := [number for number in manifests.values() if number > self._next]:
                raise self._damaged(f"step {self._next} is missing, but step {min(later)} exists")
            return list(self._steps)

    @property
    def _next(self) -> int:
        return self._steps[-1].number + 1 if self._steps else 0

    def _read(self, name: str) -> ArchiveStep | None:
        data = self._folder.read(name)
        if data is None:
            return None
        try:
            step = ArchiveStep.read(data)
        except FormatMismatch as error:
            remedy = "archive the topic again in another directory, if its log still has all records"
            raise ViewError(other_format(f"the master data in {self._folder}", error.format, FORMAT, remedy)) from None
        except ViewError as error:
            raise self._damaged(f"{name}: {error}") from None
        if step.name != name:
            raise self._damaged(f"{name} is the manifest {step.name}")
        return step

    def _check(self, step: ArchiveStep) -> None:
        """Refuses a step that does not follow on the one before."""
        before = self._steps[-1] if self._steps else None
        if before is not None and not same_offsets(step.since, before.until):
            raise self._damaged(
                f"step {step.number} begins at {dict(step.since)}, but the one before ended at {dict(before.until)}"
            )
        if step.before != ("" if before is None else before.seal):
            raise self._damaged(f"step {step.number} was not written after the manifest that now precedes it")

    def _damaged(self, what: str) -> ViewError:
        return ViewError(f"the master data in {self._folder} is damaged: {what}; restore its manifests")


def same_offsets(one: Offsets, other: Offsets) -> bool:
    """Returns whether two offsets are the same; a missing partition is at its beginning.

    >>> same_offsets({0: 3}, {0: 3, 1: 0})
    True
    """
    return reaches(one, other) and reaches(other, one)


def _base_of(steps: list[ArchiveStep]) -> int:
    return -1 if steps[0].replaced is None else steps[0].number


def _seal(fields: object) -> str:
    """Returns the checksum of a manifest's fields. It detects faults and edits by hand, not whoever can seal too."""
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
