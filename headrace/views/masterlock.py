"""One writer of master data at a time: a lock in its folder, which ends with the process that holds it.

It is for local disks. Elsewhere the manifests decide: each is put where none is, so of two writers of a step one fails.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.views.errors import ViewError


@contextmanager
def held(folder: Path | None) -> Iterator[None]:
    """This process writes, until the end of the block; refused while another does.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with held(folder):
    ...     int((folder / "lock").read_bytes()) == os.getpid()
    True
    >>> with held(folder), held(folder):  # doctest: +ELLIPSIS
    ...     pass
    Traceback (most recent call last):
        ...
    headrace.views.errors.ViewError: the master data in ... is being written by process ...; one writes at a time: \
ask again when it is done, or stop that process
    """
    if folder is None:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "a+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().decode() or "that has only just begun"
            raise ViewError(
                f"the master data in {folder} is being written by process {holder}; one writes at a time: ask again "
                "when it is done, or stop that process"
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()).encode())
        file.flush()
        yield
