"""A lock file that belongs to one process at a time and names that process. For local disks."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Final

from headrace.local.filelock import open_lock, try_lock
from headrace.local.privatefile import private_opener
from headrace.local.privatefolder import check_folder, make_folder

_PATIENCE: Final = 0.2  # seconds; `lock_holder` itself locks the file for an instant, which must not refuse anybody


@dataclass(frozen=True)
class LockHolder:
    """A process that holds a lock, and the URL of its server, if it has one."""

    pid: int
    url: str | None = None

    def __str__(self) -> str:
        process = f"process {self.pid}" if self.pid else "a process that has only just started"
        return f"{process}, at {self.url}" if self.url else process


class ProcessLock:
    """A lock that this process holds."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def publish_url(self, url: str | None) -> None:
        """Writes to the lock file where the server of this process is."""
        self._file.truncate(0)
        self._file.write(json.dumps(asdict(LockHolder(os.getpid(), url))).encode())
        self._file.flush()


@contextmanager
def exclusive(path: Path, refusal: Callable[[LockHolder], Exception]) -> Iterator[ProcessLock]:
    """Holds the lock until the block or the process ends. Raises `refusal(holder)` if another process holds it.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "lock")
    >>> with exclusive(path, lambda holder: ValueError(f"it belongs to {holder}")) as lock:
    ...     lock.publish_url("http://127.0.0.1:8787")
    ...     lock_holder(path) == LockHolder(os.getpid(), "http://127.0.0.1:8787")
    True
    >>> lock_holder(path) is None
    True
    """
    make_folder(path.parent)
    with open_lock(path) as file:
        deadline = time.monotonic() + _PATIENCE
        while not try_lock(file):
            if time.monotonic() > deadline:
                raise refusal(_read(file))
            time.sleep(_PATIENCE / 20)
        lock = ProcessLock(file)
        lock.publish_url(None)
        yield lock


def lock_holder(path: Path) -> LockHolder | None:
    """Returns the process that holds a lock now; None if none does."""
    check_folder(path.parent)
    try:
        with open(path, "rb", opener=private_opener) as file:
            return None if try_lock(file, shared=True) else _read(file)
    except FileNotFoundError:
        return None


def _read(file: IO[bytes]) -> LockHolder:
    file.seek(0)
    text = file.read()
    if not text:
        return LockHolder(0)
    fields = json.loads(text)  # another version of Headrace may have written more fields
    return LockHolder(fields["pid"], fields["url"])
