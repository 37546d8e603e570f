"""What belongs to one process at a time: a file whose lock ends with the process, and which says what process that is.

Locks are for local disks.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Final

_LOOKS: Final = 0.2  # seconds; whoever asks `holder` has the lock for an instant, which is no reason to refuse anybody


@dataclass(frozen=True)
class Holder:
    """A process, and where its server is, if it has one."""

    pid: int
    url: str | None = None

    def __str__(self) -> str:
        known = f"process {self.pid}" if self.pid else "a process that has only just begun"
        return f"{known}, at {self.url}" if self.url else known


class Hold:
    """A file that is held."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def tell(self, url: str | None) -> None:
        """Says where the server of this process is."""
        self._file.truncate(0)
        self._file.write(json.dumps(asdict(Holder(os.getpid(), url))).encode())
        self._file.flush()


@contextmanager
def held(path: Path, refusal: Callable[[Holder], Exception]) -> Iterator[Hold]:
    """This process has the file, until the end of the block or its own. While another has it, that is refused.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "lock")
    >>> with held(path, lambda other: ValueError(f"it belongs to {other}")) as hold:
    ...     hold.tell("http://127.0.0.1:8787")
    ...     holder(path) == Holder(os.getpid(), "http://127.0.0.1:8787")
    True
    >>> holder(path) is None
    True
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+b") as file:
        deadline = time.monotonic() + _LOOKS
        while not _locked(file, fcntl.LOCK_EX):
            if time.monotonic() > deadline:
                raise refusal(_read(file))
            time.sleep(_LOOKS / 20)
        hold = Hold(file)
        hold.tell(None)
        yield hold


def holder(path: Path) -> Holder | None:
    """The process that has a file now."""
    try:
        with open(path, "rb") as file:
            return None if _locked(file, fcntl.LOCK_SH) else _read(file)
    except FileNotFoundError:
        return None


def _locked(file: IO[bytes], how: int) -> bool:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False


def _read(file: IO[bytes]) -> Holder:
    file.seek(0)
    said = file.read()
    if not said:
        return Holder(0)
    told = json.loads(said)  # perhaps by another version of Headrace, which tells more
    return Holder(told["pid"], told["url"])
