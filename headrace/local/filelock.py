"""Advisory locks on files (flock): a lock ends with the process that holds it. For local disks."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from headrace.local.privatefile import private_opener


def open_lock(path: Path) -> IO[bytes]:
    """Opens a lock file for this user only: whoever can open it can lock it, and keep everybody else waiting."""
    file = open(path, "a+b", opener=private_opener)  # noqa: SIM115 (its lock ends when it is closed)
    status = os.fstat(file.fileno())
    if status.st_mode & 0o077 and status.st_uid == os.geteuid():
        os.fchmod(file.fileno(), 0o600)  # an earlier version made it
    return file


def try_lock(file: IO[bytes], *, shared: bool = False) -> bool:
    """Locks an open file without waiting and returns whether that succeeded; closing the file releases the lock."""
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False


@contextmanager
def file_lock(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Holds the lock of a file in the `with` block; without `wait`, yields False if another process holds it.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "lock")
    >>> with file_lock(path) as first, file_lock(path, wait=False) as second:
    ...     first, second
    (True, False)
    """
    with open_lock(path) as file:
        if wait:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield wait or try_lock(file)
