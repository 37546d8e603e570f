"""The directory of a system: where its parts are, what it runs, and which process it belongs to."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Self

import sqlalchemy as sa

from headrace.model.secrets import bare
from headrace.views.errors import ViewError


@dataclass(frozen=True)
class Holder:
    """The process that a directory belongs to, and where its server is, if it has one."""

    pid: int
    url: str | None = None


@dataclass(frozen=True)
class Runs:
    """What a system runs: the file of its app, its store and its log. A password is left out."""

    app: str
    store: str
    log: str

    @classmethod
    def of(cls, app: str, store: str, log: str) -> Self:
        """The same, as it may be written down.

        >>> Runs.of("/apps/app.py", "postgresql://ann:secret@db/views", "/data/log").store
        'postgresql://ann@db/views'
        """
        return cls(app, bare(sa.make_url(store)), log)


@dataclass(frozen=True)
class Home:
    """The directory of a system.

    >>> import tempfile
    >>> home = Home(Path(tempfile.mkdtemp()))
    >>> home.checkpoint("visitors").relative_to(home.path).as_posix()
    'speed/visitors'
    >>> with home.held() as hold:
    ...     hold.tell("http://127.0.0.1:8787")
    ...     home.holder().url
    'http://127.0.0.1:8787'
    >>> home.holder() is None
    True
    """

    path: Path

    @property
    def log(self) -> str:
        """The embedded log."""
        return str(self.path / "log")

    @property
    def store(self) -> str:
        """The URL of the store, if no other is given."""
        return f"sqlite:///{self.path.absolute()}/views.db"

    @property
    def masters(self) -> Path:
        """The master data: of each topic, a directory of its name."""
        return self.path / "master"

    def checkpoint(self, view: str) -> Path:
        """What the speed layer of a view goes on from."""
        return self.path / "speed" / view

    def runs(self) -> Runs | None:
        """What the system runs, or ran last; None if there was none."""
        try:
            return Runs(**json.loads((self.path / "runs.json").read_bytes()))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError) as error:
            raise ViewError(f"{self.path / 'runs.json'} is damaged ({error}); `headrace up` writes it anew") from None

    def remember(self, runs: Runs) -> None:
        """Notes what the system runs."""
        new = self.path / "runs.json.new"
        new.write_text(json.dumps(asdict(runs)))
        new.replace(self.path / "runs.json")

    def holder(self) -> Holder | None:
        """The process that has the directory now."""
        try:
            with open(self._lock, "rb") as file:
                return None if _locked(file, fcntl.LOCK_SH) else _holder(file)
        except FileNotFoundError:
            return None

    @contextmanager
    def held(self) -> Iterator[Hold]:
        """This process has the directory, until the end of the block or its own. Refused while another has it."""
        self.path.mkdir(parents=True, exist_ok=True)
        with open(self._lock, "a+b") as file:
            if not _locked(file, fcntl.LOCK_EX):
                other = _holder(file)
                at = f", at {other.url}" if other.url else ""
                raise ViewError(
                    f"{self.path} belongs to process {other.pid}{at}: two at once would archive and count twice; stop "
                    "that one, or give another directory"
                )
            hold = Hold(file)
            hold.tell(None)
            yield hold

    @property
    def _lock(self) -> Path:
        return self.path / "up.lock"


class Hold:
    """A directory that is held. The lock ends with the process, whatever ends that."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def tell(self, url: str | None) -> None:
        """Says where the server of this process is."""
        self._file.truncate(0)
        self._file.write(json.dumps({"pid": os.getpid(), "url": url}).encode())
        self._file.flush()


def _locked(file: IO[bytes], how: int) -> bool:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False


def _holder(file: IO[bytes]) -> Holder:
    file.seek(0)
    said = file.read()
    return Holder(**json.loads(said)) if said else Holder(0)  # it has only just begun
