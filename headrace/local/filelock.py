"""Advisory locks on files (flock): a lock ends with the process that holds it. For local disks."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


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
    with path.open("ab") as file:
        if wait:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield wait or try_lock(file)
