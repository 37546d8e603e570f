"""The state of an operator's partition, in files by version, and the copies that workers have of it in memory.

Version n is the state after n batches. A batch writes its delta: what it changes, under a name that says the version,
so that whoever does it again finds it done. From time to time all of the state is written. A version is thus read as
the last full file and the deltas after it; a worker that has an earlier version only reads the deltas since.

A file is there whole or not at all. What a version has never changes, so nobody waits for anybody.
"""

from __future__ import annotations

import os
import pickle
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from headrace.local.atomicfile import sync_path
from headrace.local.privatefile import private_opener
from headrace.model.errors import HeadraceError, other_format
from headrace.model.pickling import dumps

_FORMAT: Final = 1
_DELTA, _FULL = ".delta", ".full"
_SMALL: Final = 1 << 20
"""Bytes of deltas below which it does not pay to write all of the state."""
_BLOCK: Final = 1 << 12
"""Bytes that even the smallest delta takes on a disk: idle batches shall not leave thousands of files."""


class StateOperator(Protocol):
    """Changes and reads the state of a partition. A delta is what a batch changes, and can be pickled."""

    def empty(self, initial: dict[Any, Any]) -> Any:
        """Returns the first state."""

    def step(self, state: Any, blocks: list[Any], time: int) -> Any:
        """Returns the delta of a batch. It leaves the state as it is."""

    def apply(self, state: Any, delta: Any) -> None:
        """Changes the state by a delta."""

    def rows(self, state: Any, delta: Any) -> Iterator[Any]:
        """Returns the elements that the operator gives for a version."""


class ForgottenVersion(HeadraceError, LookupError):
    """A version of a state that is needed no more, and was removed."""


@dataclass
class _Copy:
    """A worker's copy of a state."""

    version: int
    state: Any
    delta: Any = None
    bytes_since: int = 0  # of deltas, since all was written
    full_bytes: int = 0


_copies: Final[dict[str, _Copy]] = {}
"""The last version that this worker has seen of each partition. Files are the truth; this saves reading them."""


class StateFiles:
    """The files of one partition. `run` names the run of the program, since another may have other functions."""

    def __init__(self, folder: str, run: str, operator: StateOperator) -> None:
        self.folder, self.run, self.operator = Path(folder), run, operator

    def begin(self, initial: dict[Any, Any]) -> None:
        """Writes version 0, unless it is there."""
        if not self._path(0, _FULL).exists():
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._write(0, _FULL, dumps(self.operator.empty(initial)))

    def advance(self, version: int, blocks: Callable[[], list[Any]], time: int) -> None:
        """Makes a version from the one before it and what a batch brings; does nothing if it was made before."""
        if self._path(version, _DELTA).exists():
            return
        for name in [name for name in _copies if not name.startswith(f"{self.run}:")]:
            del _copies[name]  # of a program that has ended
        copy = self._at(version - 1)
        _copies.pop(self._name, None)  # until all is well: a function may fail half-way
        delta = self.operator.step(copy.state, blocks(), time)
        data = dumps(delta)
        if not self._write(version, _DELTA, data):
            delta, data = self._read(version, _DELTA)  # another attempt was faster, and counts
        self.operator.apply(copy.state, delta)
        copy.version, copy.delta, copy.bytes_since = version, delta, copy.bytes_since + max(len(data), _BLOCK)
        if copy.bytes_since > max(copy.full_bytes, _SMALL):
            full = dumps(copy.state)
            self._write(version, _FULL, full)
            copy.bytes_since, copy.full_bytes = 0, len(full)
        _copies[self._name] = copy

    def rows(self, version: int) -> Iterator[Any]:
        """Reads the elements of a version."""
        copy = self._at(version)
        return self.operator.rows(copy.state, copy.delta)

    def forget(self, before: int) -> None:
        """Removes files that no version from `before` on needs."""
        versions = self._versions(_FULL)
        bases = [version for version in versions if version <= before]
        if not bases:
            return
        for suffix in (_DELTA, _FULL):
            for version in self._versions(suffix):
                if version < bases[-1]:
                    self._path(version, suffix).unlink(missing_ok=True)

    @property
    def _name(self) -> str:
        return f"{self.run}:{self.folder}"

    def _path(self, version: int, suffix: str) -> Path:
        return self.folder / f"{version}{suffix}"

    def _versions(self, suffix: str) -> list[int]:
        return sorted(int(path.stem) for path in self.folder.glob(f"[0-9]*{suffix}"))

    def _at(self, version: int) -> _Copy:
        """Returns a copy of a version; that of this worker, if it is not ahead."""
        copy = _copies.get(self._name)
        if copy is not None and copy.version == version:
            return copy
        if copy is not None and copy.version < version:
            _copies.pop(self._name)
            try:
                self._catch_up(copy, version)
            except FileNotFoundError:  # the deltas since are gone
                return self._loaded(version)
            _copies[self._name] = copy
            return copy
        loaded = self._loaded(version)
        if copy is None:  # one that is ahead will be asked for more often than what lies behind it
            _copies[self._name] = loaded
        return loaded

    def _loaded(self, version: int) -> _Copy:
        for base in reversed(self._versions(_FULL)):
            if base <= version:
                try:
                    state, data = self._read(base, _FULL)
                    copy = _Copy(base, state, full_bytes=len(data))
                    if base and self._path(base, _DELTA).exists():
                        copy.delta = self._read(base, _DELTA)[0]
                    self._catch_up(copy, version)
                    return copy
                except FileNotFoundError:
                    continue  # removed meanwhile
        raise ForgottenVersion(
            f"{self.folder}: the state after batch {version} is needed no more and was removed; to read RDDs of "
            "earlier batches, say for how long with StreamingContext.remember(seconds)"
        )

    def _catch_up(self, copy: _Copy, version: int) -> None:
        for each in range(copy.version + 1, version + 1):
            delta, data = self._read(each, _DELTA)
            self.operator.apply(copy.state, delta)
            copy.version, copy.delta, copy.bytes_since = each, delta, copy.bytes_since + max(len(data), _BLOCK)

    def _read(self, version: int, suffix: str) -> tuple[Any, bytes]:
        path = self._path(version, suffix)
        data = path.read_bytes()
        if data[0] != _FORMAT:
            raise HeadraceError(other_format(f"the state {path}", data[0], _FORMAT, "begin with a new checkpoint"))
        return pickle.loads(memoryview(data)[1:]), data

    def _write(self, version: int, suffix: str, data: bytes) -> bool:
        """Writes a file, all or nothing; returns False if another attempt has done so."""
        new = self.folder / f".{version}{suffix}.{uuid.uuid4().hex}"
        with open(new, "xb", opener=private_opener) as file:
            file.write(bytes([_FORMAT]))
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(new, self._path(version, suffix))  # unlike a rename, it replaces nothing
        except FileExistsError:
            return False
        finally:
            new.unlink()
        sync_path(self.folder)
        return True
