"""The directory of a system: where its parts are, what it runs, and which process it belongs to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import sqlalchemy as sa

from headrace.local.atomicfile import replace_file
from headrace.local.processlock import LockHolder, ProcessLock, exclusive, lock_holder
from headrace.model.secrets import strip_passwords
from headrace.views.errors import ViewError


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
        return cls(app, strip_passwords(sa.make_url(store)), log)


@dataclass(frozen=True)
class Home:
    """The directory of a system.

    >>> import tempfile
    >>> home = Home(Path(tempfile.mkdtemp()))
    >>> home.checkpoint("visitors", "5f2c90ab77e4").relative_to(home.path).as_posix()
    'speed/visitors-5f2c90ab'
    >>> with home.exclusive() as lock:
    ...     lock.publish_url("http://127.0.0.1:8787")
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

    def checkpoint(self, view: str, identity: str) -> Path:
        """What the speed layer of a view goes on from: one for each store, or another would miss what the first has."""
        return self.path / "speed" / f"{view}-{identity[:8]}"

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
        replace_file(self.path / "runs.json", json.dumps(asdict(runs)).encode())

    def holder(self) -> LockHolder | None:
        """Returns the process that holds the directory's lock now; None if none does."""
        return lock_holder(self._lock)

    @contextmanager
    def exclusive(self) -> Iterator[ProcessLock]:
        """Holds the directory's lock until the block or the process ends. Refused while another process holds it."""
        with exclusive(self._lock, self._refusal) as lock:
            yield lock

    def _refusal(self, other: LockHolder) -> ViewError:
        return ViewError(
            f"{self.path} belongs to {other}: two at once would archive and count twice; stop that one, or give "
            "another directory"
        )

    @property
    def _lock(self) -> Path:
        return self.path / "up.lock"
